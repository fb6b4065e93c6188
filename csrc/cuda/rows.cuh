#pragma once

// How the rows of a graph are laid out over threads. Nothing of it changes what is computed: every sum has
// one order, which depends on the graph and the width of a row alone.
#include <cstdint>

#include "../common/macros.h"
#include "launch.cuh"

namespace plufg::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kThreads = 128;
inline constexpr unsigned kWholeWarp = 0xffffffffu;

// V numbers that one instruction moves, if they lie at a multiple of their size.
template <typename T, int V>
struct alignas(V * sizeof(T)) Pack {
  T at[V];
};
template <typename T>
inline constexpr int kVector = 16 / static_cast<int>(sizeof(T));

template <int V, typename T>
__device__ inline Pack<T, V> load(const T* from) {
  return *reinterpret_cast<const Pack<T, V>*>(from);
}

template <int V, typename T>
__device__ inline void store(T* to, const Pack<T, V>& pack) {
  *reinterpret_cast<Pack<T, V>*>(to) = pack;
}

template <typename T>
inline bool is_aligned(const T* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

// A team is 2^order neighbouring threads of a warp: as many as a row has vectors, at most a warp. Narrow rows
// thus share a warp. Every team of a grid has one unit of work.
struct Team {
  int lanes;
  int lane;
  int64_t unit;

  __device__ explicit Team(int order)
      : lanes(1 << order),
        lane(static_cast<int>(threadIdx.x) & (lanes - 1)),
        unit((static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) >> order) {}

  // The sum over a team, of which every thread gets the same bits. All threads of the warp have to come here.
  template <typename T>
  __device__ T sum(T x) const {
    for (int offset = lanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kWholeWarp, x, offset);
    return x;
  }

  // N sums, which do not wait for each other.
  template <typename T, int N>
  __device__ void sum(T (&x)[N]) const {
    for (int offset = lanes / 2; offset > 0; offset /= 2) {
#pragma unroll
      for (int n = 0; n < N; ++n) x[n] += __shfl_xor_sync(kWholeWarp, x[n], offset);
    }
  }

  // The most that any team of the warp has.
  __device__ int most(int x) const {
    for (int offset = kWarp / 2; offset >= lanes; offset /= 2) {
      const int other = __shfl_xor_sync(kWholeWarp, x, offset);
      x = x > other ? x : other;
    }
    return x;
  }
};

inline int order_for(int64_t vectors) {
  int order = 0;
  while ((1 << order) < kWarp && (1 << order) < vectors) ++order;
  return order;
}

// Blocks of kThreads for as many teams. A grid takes 2^31 - 1 of them, at least 2^33 teams.
inline unsigned blocks_for(int64_t units, int order) {
  return static_cast<unsigned>(((units << order) + kThreads - 1) / kThreads);
}

// The channels of one row that a thread has: K vectors of V, a team's width apart, so that neighbouring
// threads read neighbouring vectors. Where a row is wider, this is one of its tiles.
template <int V, int K>
struct Channels {
  int64_t first;
  int stride;
  int64_t all;

  __device__ Channels(const Team& team, unsigned tile, int64_t channels)
      : first((static_cast<int64_t>(tile) * K * team.lanes + team.lane) * V),
        stride(team.lanes * V),
        all(channels) {}

  __device__ int64_t at(int k) const { return first + k * stride; }
  // Vectors are whole: V is 1 where it does not divide the channels.
  __device__ bool has(int k) const { return at(k) < all; }
};

// The numbers there, in registers.
template <typename T, int V, int K>
struct Part {
  Pack<T, V> of[K] = {};
};

// Edges [start, stop) of a row.
struct Span {
  int64_t row;
  int64_t start;
  int64_t stop;

  __device__ int64_t size() const { return stop - start; }
};

template <typename I>
__device__ inline Span whole_row(const I* rowptr, int64_t row) {
  return {row, rowptr[row], rowptr[row + 1]};
}

// The row that edge e belongs to: the last one that starts at or before it.
template <typename I>
__device__ inline int64_t row_of(const I* rowptr, int64_t rows, int64_t e) {
  int64_t low = 0;
  int64_t high = rows;
  while (high - low > 1) {
    const int64_t mid = low + (high - low) / 2;
    (rowptr[mid] <= e ? low : high) = mid;
  }
  return low;
}

// Long rows are summed in two stages, so that a hub does not keep one team busy long after all others: the
// edges of a graph are cut into chunks; what a row of more edges than a chunk has in one of them is a piece.
// A launch over all pieces leaves the sums of each, and the one over all rows adds them in order. Where the
// long rows are only the device knows, and nobody waits for it to tell: a chunk touches two of them at most,
// that of its first edge and that of its last, so every chunk has slots for two pieces, most of them unused.
template <typename T>
struct Cut {
  int64_t edges;  // of a chunk
  T* sums;        // [slots, numbers of a piece]

  static int64_t slots(int64_t all, int64_t chunk) {
    return all > chunk ? 2 * ((all + chunk - 1) / chunk) : 0;
  }

  __device__ bool is_long(const Span& row) const { return row.size() > edges; }
  __device__ int64_t first_chunk(const Span& row) const { return row.start / edges; }
  __device__ int64_t last_chunk(const Span& row) const { return (row.stop - 1) / edges; }
  __device__ int64_t slot(const Span& row, int64_t chunk) const {
    return 2 * chunk + (row.start > chunk * edges ? 1 : 0);
  }

  // The piece in a slot, without edges where there is none.
  template <typename I>
  __device__ Span piece(const I* rowptr, int64_t rows, int64_t all, int64_t slot) const {
    const int64_t start = slot / 2 * edges;
    const int64_t stop = start + edges < all ? start + edges : all;
    const bool last = slot % 2 != 0;
    Span span = whole_row(rowptr, row_of(rowptr, rows, last ? stop - 1 : start));
    if (!is_long(span) || last != (span.start > start)) return {span.row, start, start};
    if (span.start < start) span.start = start;
    if (span.stop > stop) span.stop = stop;
    return span;
  }
};

// A compromise: enough rows stay whole, and the longest chain of additions short.
inline constexpr int64_t kChunkEdges = 512;

}  // namespace plufg::cuda
