#pragma once

#include "../common/cheb.h"
#include "rows.cuh"

namespace plufg::cuda {

// Adds N edges of row i, the first at `e`; all of the neighbours are asked for before the first is added.
template <int N, typename T, typename I, int V, int K>
__device__ inline void add_edges(const ChebStep<T, I>& s, int64_t i, int64_t e, const Channels<V, K>& c,
                                 Part<T, V, K>& sum) {
  int64_t j[N];
  T a[N];
  Pack<T, V> x[N][K];
#pragma unroll
  for (int n = 0; n < N; ++n) {
    j[n] = s.col[e + n];
    a[n] = cheb_edge(s, e + n, j[n]);
    const T* from = s.x + j[n] * s.channels;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (c.has(k)) x[n][k] = load<V>(from + c.at(k));
    }
  }
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      // A self-loop is left out, not multiplied by 0: its value may be infinite.
      if (j[n] == i || !c.has(k)) continue;
#pragma unroll
      for (int v = 0; v < V; ++v) sum.of[k].at[v] += a[n] * x[n][k].at[v];
    }
  }
}

template <typename T, typename I, int V, int K>
__device__ inline void gather(const ChebStep<T, I>& s, const Span& span, const Channels<V, K>& c,
                              Part<T, V, K>& sum) {
  constexpr int kAtOnce = 2;
  int64_t e = span.start;
  for (; e + kAtOnce <= span.stop; e += kAtOnce) add_edges<kAtOnce>(s, span.row, e, c, sum);
  if (e < span.stop) add_edges<1>(s, span.row, e, c, sum);
}

// What is done with a vector of a step: `value` is the step itself, x and prev are what it was made of, `at`
// is their place in signals like x.
template <int V, typename T, typename I>
__device__ inline void finish(const ChebAnalysis<T, I>& s, int64_t i, int64_t c, const Pack<T, V>& value,
                              const Pack<T, V>& x, const Pack<T, V>& prev) {
  const int64_t channels = s.step.channels;
  const int64_t at = i * channels + c;
  if (s.bands) {
    Pack<T, V> first = {};
    if (s.taps > 3) first = load<V>(s.first + at);
    for (int64_t r = 0; r < s.filters; ++r) {
      const T* weight = s.weights + r * s.terms;
      T* to = s.bands + (i * s.filters + r) * channels + c;
      Pack<T, V> band = {};
      if (s.add) band = load<V>(to);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        band.at[v] += weight[0] * value.at[v];
        if (s.taps > 1) band.at[v] += weight[-1] * x.at[v];
        if (s.taps > 2) band.at[v] += weight[-2] * prev.at[v];
        if (s.taps > 3) band.at[v] += weight[-3] * first.at[v];
      }
      store<V>(to, band);
    }
  }
  // It may take the place of prev, of which this thread has read its part.
  if (s.step.out) store<V>(s.step.out + at, value);
}

template <int V, typename T, typename I>
__device__ inline void finish(const ChebSynthesis<T, I>& s, int64_t i, int64_t c, Pack<T, V> value,
                              const Pack<T, V>&, const Pack<T, V>&) {
  const int64_t channels = s.step.channels;
  const int64_t at = i * channels + c;
  const int64_t filters = s.apart ? 1 : s.filters;
  const T* weight = s.apart ? s.weights + c / (channels / s.filters) * s.terms : s.weights;
  const T* band = s.apart ? s.bands + at : s.bands + i * s.filters * channels + c;
  for (int64_t r = 0; r < filters; ++r) {
    const Pack<T, V> z = load<V>(band + r * channels);
#pragma unroll
    for (int v = 0; v < V; ++v) value.at[v] += weight[r * s.terms] * z.at[v];
  }
  store<V>(s.step.out + at, value);
}

// One step of a recurrence: a unit of work is a row, or with `pieces` a piece of a long row; a tile of its
// channels is that of the block.
template <int V, int K, typename S, typename T>
__global__ void __launch_bounds__(kThreads)
    cheb_kernel(S s, Cut<T> cut, int order, int64_t units, bool pieces) {
  const auto& step = s.step;
  const Team team(order);
  if (team.unit >= units) return;
  const Channels<V, K> c(team, blockIdx.y, step.channels);
  Part<T, V, K> sum;
  if (pieces) {
    const Span span = cut.piece(step.rowptr, step.rows, step.edges, team.unit);
    if (span.size() == 0) return;
    gather(step, span, c, sum);
    for (int k = 0; k < K; ++k) {
      if (c.has(k)) store<V>(cut.sums + team.unit * step.channels + c.at(k), sum.of[k]);
    }
    return;
  }
  const int64_t i = team.unit;
  if (step.x) {
    const Span row = whole_row(step.rowptr, i);
    if (cut.is_long(row)) {
      for (int64_t chunk = cut.first_chunk(row); chunk <= cut.last_chunk(row); ++chunk) {
        const T* piece = cut.sums + cut.slot(row, chunk) * step.channels;
        for (int k = 0; k < K; ++k) {
          if (!c.has(k)) continue;
          const Pack<T, V> part = load<V>(piece + c.at(k));
          for (int v = 0; v < V; ++v) sum.of[k].at[v] += part.at[v];
        }
      }
    } else {
      gather(step, row, c, sum);
    }
  }
  const ChebRow<T> row = cheb_row(step, i);
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (!c.has(k)) continue;
    const int64_t at = i * step.channels + c.at(k);
    Pack<T, V> x = {};
    Pack<T, V> prev = {};
    Pack<T, V> value = {};
    if (step.x) {
      x = load<V>(step.x + at);
#pragma unroll
      for (int v = 0; v < V; ++v) value.at[v] = row.self * x.at[v] + row.sum * sum.of[k].at[v];
    }
    if (step.prev) {
      prev = load<V>(step.prev + at);
#pragma unroll
      for (int v = 0; v < V; ++v) value.at[v] += step.gamma * prev.at[v];
    }
    finish<V>(s, i, c.at(k), value, x, prev);
  }
}

// weight_ij right_j, edge after edge.
template <typename T, typename I>
__global__ void __launch_bounds__(kThreads) cheb_send_kernel(ChebStep<T, I> s, T* to) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e < s.edges) to[e] = cheb_edge(s, e, static_cast<int64_t>(s.col[e]));
}

template <typename T, typename I, typename Stream>
void cheb_send(const ChebStep<T, I>& s, T* to, Stream stream) {
  if (s.edges == 0) return;
  PLUFG_LAUNCH((cheb_send_kernel<T, I>), blocks_for(s.edges, 0), kThreads, stream, s, to);
}

template <int V, int K, typename S, typename T, typename Stream>
void cheb_launch(const S& s, const Cut<T>& cut, Stream stream) {
  const int64_t channels = s.step.channels;
  const int order = order_for((channels + V * K - 1) / (V * K));
  const int64_t tile = int64_t{V * K} << order;
  const auto launch = [&](int64_t units, bool pieces) {
    const dim3 blocks(blocks_for(units, order), static_cast<unsigned>((channels + tile - 1) / tile));
    PLUFG_LAUNCH((cheb_kernel<V, K, S, T>), blocks, kThreads, stream, s, cut, order, units, pieces);
  };
  const int64_t slots = s.step.x ? Cut<T>::slots(s.step.edges, cut.edges) : 0;
  if (slots) launch(slots, true);
  launch(s.step.rows, false);
}

// What lies in rows of the step's channels, all of it aligned or not.
template <typename T, typename I>
bool is_aligned(const ChebStep<T, I>& s) {
  return s.channels % kVector<T> == 0 && is_aligned(s.x) && is_aligned(s.prev) && is_aligned(s.out);
}
template <typename T, typename I>
bool is_aligned(const ChebAnalysis<T, I>& s) {
  return is_aligned(s.step) && is_aligned(s.first) && is_aligned(s.bands);
}
template <typename T, typename I>
bool is_aligned(const ChebSynthesis<T, I>& s) {
  const int64_t width = s.apart ? s.step.channels / s.filters : s.step.channels;
  return is_aligned(s.step) && is_aligned(s.bands) && width % kVector<T> == 0;
}

// One step of type S, ChebAnalysis or ChebSynthesis; `cut.sums` has room for `step.channels` numbers a slot.
template <typename S, typename T, typename Stream>
void cheb_run(const S& s, const Cut<T>& cut, Stream stream) {
  if (is_aligned(s)) {
    cheb_launch<kVector<T>, 1>(s, cut, stream);
  } else if (s.step.channels <= kWarp) {
    cheb_launch<1, 1>(s, cut, stream);
  } else {
    cheb_launch<1, 4>(s, cut, stream);
  }
}

}  // namespace plufg::cuda
