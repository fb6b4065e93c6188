// Compiled once per instruction set, with PLUFG_ISA naming the namespace. Nothing here may come from the
// standard library or from torch: an inline function compiled with wide instructions could be picked by the
// linker for all.
#include "cheb.h"
#include "vector.h"

namespace plufg::PLUFG_ISA {
namespace {

// Eight accumulators leave half of the sixteen vector registers for operands; a wider row is done in several
// tiles.
constexpr int kAccumulators = 8;
// Neighbours are fetched this many edges ahead: about the latency of memory over the time of one edge.
constexpr int64_t kPrefetchEdges = 8;

// Channels [c, c + W) of row i. The vector type is a plain array of T to the memory: no alignment is assumed.
template <typename T, typename I, int W>
void row_tile(const ChebStep<T, I>& s, ChebRow<T> row, int64_t i, int64_t c) {
  constexpr int kWidth = W < kLanes<T> ? W : kLanes<T>;
  constexpr int kVectors = W / kWidth;
  using Part = typename VectorOf<T, kWidth>::type;

  Part sum[kVectors] = {};
  const int64_t stop = s.rowptr[i + 1];
  for (int64_t e = s.rowptr[i]; e < stop; ++e) {
    if (e + kPrefetchEdges < s.edges) {
      const T* ahead = s.x + static_cast<int64_t>(s.col[e + kPrefetchEdges]) * s.channels + c;
      for (int b = 0; b < W * static_cast<int>(sizeof(T)); b += kCacheLine)
        __builtin_prefetch(reinterpret_cast<const char*>(ahead) + b);
    }
    const int64_t j = s.col[e];
    if (j == i) continue;
    const T a = cheb_edge(s, e, j);
    const T* xj = s.x + j * s.channels + c;
    for (int k = 0; k < kVectors; ++k) {
      Part v;
      __builtin_memcpy(&v, xj + k * kWidth, sizeof(v));
      sum[k] += a * v;
    }
  }

  const int64_t at = i * s.channels + c;
  for (int k = 0; k < kVectors; ++k) {
    Part v;
    __builtin_memcpy(&v, s.x + at + k * kWidth, sizeof(v));
    v = row.self * v + row.sum * sum[k];
    if (s.prev) {
      Part p;
      __builtin_memcpy(&p, s.prev + at + k * kWidth, sizeof(p));
      v += s.gamma * p;
    }
    __builtin_memcpy(s.out + at + k * kWidth, &v, sizeof(v));
  }
}

template <typename T, typename I, int W>
void row_tile_of(int64_t width, const ChebStep<T, I>& s, ChebRow<T> row, int64_t i, int64_t c) {
  if (width == W) {
    row_tile<T, I, W>(s, row, i, c);
  } else if constexpr (W > 1) {
    row_tile_of<T, I, W / 2>(width, s, row, i, c);
  }
}

// Covers any number of channels by tiles of 1, 2, 4, ... channels without partial vectors: the rest of a row
// is done by the next wider tile, shifted left over channels that are simply computed twice, where the row is
// wide enough for that, and by the next narrower one otherwise. The split depends on the width alone, never
// on rows or threads.
template <typename T, typename I>
void rows(const ChebStep<T, I>& s, int64_t begin, int64_t end) {
  constexpr int kWidest = kAccumulators * kLanes<T>;
  for (int64_t i = begin; i < end; ++i) {
    const ChebRow<T> row = cheb_row(s, i);
    int64_t width = kWidest;
    for (int64_t c = 0; c < s.channels; c += width) {
      const int64_t left = s.channels - c;
      while (width / 2 >= left) width /= 2;
      while (width > s.channels) width /= 2;
      row_tile_of<T, I, kWidest>(width, s, row, i, width > left ? s.channels - width : c);
    }
  }
}

}  // namespace

void cheb_step(const ChebStep<float, int32_t>& s, int64_t begin, int64_t end) { rows(s, begin, end); }
void cheb_step(const ChebStep<float, int64_t>& s, int64_t begin, int64_t end) { rows(s, begin, end); }
void cheb_step(const ChebStep<double, int32_t>& s, int64_t begin, int64_t end) { rows(s, begin, end); }
void cheb_step(const ChebStep<double, int64_t>& s, int64_t begin, int64_t end) { rows(s, begin, end); }

}  // namespace plufg::PLUFG_ISA
