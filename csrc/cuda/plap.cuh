#pragma once

#include <cfloat>

#include "../common/plap.h"
#include "rows.cuh"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace plufg::cuda {

// A unit of work is a row of one band, the bands of a row beside each other: what they read of a neighbour
// is, too. h is filled up to whole vectors, so every gather is one of whole, aligned vectors.
//
// A row of at most kHeld vectors a thread stays in registers between the norm of an edge and its addition,
// and is read once. A wider one is read a second time for the addition, a batch of edges later.
inline constexpr int kHeld = 2;

template <typename T>
inline constexpr T kLeast = sizeof(T) == 4 ? T(FLT_MIN) : T(DBL_MIN);

__device__ inline float inverse_root(float x) { return rsqrtf(x); }
__device__ inline double inverse_root(double x) { return rsqrt(x); }

// n2^((p-2)/2), and where n2 counts as zero 1 for p = 2, else 0. The common exponents need roots only.
template <typename T>
__device__ inline T power(T n2, T p) {
  if (p == T(2)) return T(1);
  if (n2 < kLeast<T>) return T(0);
  if (p == T(1)) return inverse_root(n2);
  if (p == T(1.5)) {
    const T y = inverse_root(n2);
    return y * inverse_root(y);
  }
  if (p == T(2.5)) return inverse_root(inverse_root(n2));
  if (p == T(3)) return n2 * inverse_root(n2);
  return raised(n2, (p - T(2)) / T(2));
}

// V numbers of a signal from number `at` on, of which the row has `left`; zeros behind.
template <int V, typename T>
__device__ inline Pack<T, V> read(const Signal& x, int64_t at, int64_t left) {
  Pack<T, V> pack = {};
  if constexpr (sizeof(T) == 4) {
    if (x.storage != Storage::full) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if (v >= left) break;
        pack.at[v] = x.storage == Storage::float16
                         ? __half2float(static_cast<const __half*>(x.data)[at + v])
                         : __bfloat162float(static_cast<const __nv_bfloat16*>(x.data)[at + v]);
      }
      return pack;
    }
  }
  const T* from = static_cast<const T*>(x.data) + at;
  if (left >= V && reinterpret_cast<uintptr_t>(from) % sizeof(pack) == 0) return load<V>(from);
#pragma unroll
  for (int v = 0; v < V; ++v) {
    if (v < left) pack.at[v] = from[v];
  }
  return pack;
}

template <int V, typename T>
__device__ inline void write(const Signal& x, int64_t at, int64_t left, const Pack<T, V>& pack) {
  if constexpr (sizeof(T) == 4) {
    if (x.storage != Storage::full) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if (v >= left) break;
        if (x.storage == Storage::float16) {
          static_cast<__half*>(x.data)[at + v] = __float2half_rn(pack.at[v]);
        } else {
          static_cast<__nv_bfloat16*>(x.data)[at + v] = __float2bfloat16_rn(pack.at[v]);
        }
      }
      return;
    }
  }
  T* to = static_cast<T*>(x.data) + at;
  if (left >= V && reinterpret_cast<uintptr_t>(to) % sizeof(pack) == 0) return store<V>(to, pack);
#pragma unroll
  for (int v = 0; v < V; ++v) {
    if (v < left) to[v] = pack.at[v];
  }
}

// What a team works on: a row of a band, or a piece of one. A team without work has no edges and no channels,
// but comes to every sum over a team that others of its warp come to.
template <typename I>
struct Work {
  bool valid;
  int64_t outer;  // row or slot
  int64_t band;
  Span span;

  template <typename T>
  __device__ Work(const Team& team, int64_t units, int64_t bands, const I* rowptr, int64_t rows,
                  int64_t edges, const Cut<T>& cut, bool pieces)
      : valid(team.unit < units), outer(valid ? team.unit / bands : 0), band(valid ? team.unit % bands : 0) {
    span = pieces ? cut.piece(rowptr, rows, edges, outer) : whole_row(rowptr, outer);
  }

  // Edges to go through; those of a long row have been summed piece by piece.
  template <typename T>
  __device__ int count(const Cut<T>& cut) const {
    return valid && !cut.is_long(span) ? static_cast<int>(span.size()) : 0;
  }
};

// The numbers that a piece of a row leaves: its sums over channels, and V more.
template <typename T>
PLUFG_HD constexpr int64_t piece_numbers(int64_t width) {
  return width + kVector<T>;
}

// dinv_i f_i
template <typename T, typename I>
__global__ void __launch_bounds__(kThreads) plap_scale_kernel(PlapScale<T, I> s) {
  constexpr int V = kVector<T>;
  const int64_t vectors = s.width / V;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t node = at / vectors;
  if (node >= s.rows * s.bands) return;
  const int64_t c = at % vectors * V;
  const T d = s.dinv[node / s.bands];
  Pack<T, V> f = read<V, T>(s.f, node * s.channels + c, s.channels - c);
#pragma unroll
  for (int v = 0; v < V; ++v) f.at[v] *= d;
  store<V>(s.h + node * s.width + c, f);
}

// A thread's share of |a - b|^2.
template <typename T>
__device__ inline T square_distance(const Team& team, const T* a, const T* b, int64_t width) {
  constexpr int V = kVector<T>;
  T sum = 0;
#pragma unroll 1
  for (int64_t c = team.lane * V; c < width; c += team.lanes * V) {
    const Pack<T, V> x = load<V>(a + c);
    const Pack<T, V> y = load<V>(b + c);
#pragma unroll
    for (int v = 0; v < V; ++v) sum += (x.at[v] - y.at[v]) * (x.at[v] - y.at[v]);
  }
  return sum;
}

template <typename T, typename I>
__device__ inline T smoothed(const PlapProblem<T, I>& s, const T* weight, int64_t e, T square) {
  return (weight ? weight[e] * square : square) + s.eps * s.eps;
}

// N_i and z_i; both 0 at a node all whose edges are.
template <typename T, typename I>
__global__ void __launch_bounds__(kThreads)
    plap_norms_kernel(PlapStep<T, I> s, Cut<T> cut, const int64_t* done, int order, int64_t units,
                      bool pieces) {
  if (done && *done) return;
  const Team team(order);
  const Work<I> work(team, units, s.bands, s.rowptr, s.rows, s.edges, cut, pieces);
  const T p = s.p[work.band];
  const T* own = s.h + (work.span.row * s.bands + work.band) * s.width;
  const int count = work.count(cut);
  const int most = team.most(count);
  T total = 0;
  for (int k = 0; k < most; ++k) {
    const bool live = k < count;
    const int64_t e = work.span.start + k;
    T square = 0;
    if (live) square = square_distance(team, own, s.h + (s.col[e] * s.bands + work.band) * s.width, s.width);
    square = team.sum(square);
    if (!live) continue;
    const T n2 = smoothed(s, s.weight, e, square);
    if (!(n2 < kLeast<T>)) total += n2 * power(n2, p);
  }
  if (!work.valid || team.lane) return;
  if (pieces) {
    if (count) cut.sums[team.unit] = total;
    return;
  }
  if (cut.is_long(work.span)) {
    for (int64_t chunk = cut.first_chunk(work.span); chunk <= cut.last_chunk(work.span); ++chunk) {
      total += cut.sums[cut.slot(work.span, chunk) * s.bands + work.band];
    }
  }
  const T norm = total > T(0) ? raised(total, T(1) / p) : T(0);
  s.norm[team.unit] = norm;
  s.z[team.unit] = z_at(s.penalty, s.parameter, norm, p);
}

// M_ij
template <typename T, typename I>
__device__ inline T coefficient(const PlapStep<T, I>& s, int64_t e, T square, T p, T own_z,
                                int64_t neighbour) {
  T m = power(smoothed(s, s.weight, e, square), p);
  if (s.weight) m *= s.weight[e];
  return m * (s.z ? T(0.5) * (own_z + s.z[neighbour]) : p);
}

// The end of a row, vector by vector: from its sums to its new values.
template <typename T, typename I>
struct StepEnd {
  static constexpr int V = kVector<T>;
  const PlapStep<T, I>& s;
  int64_t node;
  T d;
  T twice_mu;
  T a;
  T changed = 0;
  T size = 0;

  __device__ StepEnd(const PlapStep<T, I>& s_, int64_t row, int64_t band, T total)
      : s(s_), node(row * s.bands + band), d(s.dinv[row]), twice_mu(T(2) * s.mu[band]) {
    a = T(1) / (d * d * total + twice_mu);
  }

  __device__ void vector(int64_t c, const Pack<T, V>& sum) {
    const int64_t at = node * s.channels + c;
    const int64_t left = s.channels - c;
    Pack<T, V> value = read<V, T>(s.y, at, left);
    // The value first, for itself: scaled sums would round otherwise than a step that is scaled later.
#pragma unroll
    for (int v = 0; v < V; ++v) value.at[v] = a * d * sum.at[v] + a * twice_mu * value.at[v];
    if (s.out.data) write<V>(s.out, at, left, value);
    if (s.change) {
      const Pack<T, V> h = load<V>(s.h + node * s.width + c);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        // f_i = h_i / d; a node that nothing reaches keeps its value.
        const T f = d > T(0) ? h.at[v] / d : value.at[v];
        changed += (value.at[v] - f) * (value.at[v] - f);
        size += f * f;
      }
    }
    if (s.next) {
#pragma unroll
      for (int v = 0; v < V; ++v) value.at[v] *= d;
      store<V>(s.next + node * s.width + c, value);
    }
  }

  // All threads of the warp have to come here.
  __device__ void close(const Team& team, bool valid) {
    if (s.change) {
      changed = team.sum(changed);
      size = team.sum(size);
    }
    if (!valid || team.lane) return;
    if (s.a) s.a[node] = a;
    if (s.change) {
      s.change[2 * node] = changed;
      s.change[2 * node + 1] = size;
    }
  }
};

template <typename T, typename I, int K>
__global__ void __launch_bounds__(kThreads)
    plap_step_kernel(PlapStep<T, I> s, Cut<T> cut, const int64_t* done, int order, int64_t units,
                     bool pieces) {
  constexpr int V = kVector<T>;
  constexpr int kAtOnce = sizeof(T) == 4 ? 2 : 1;  // edges on their way together
  if (done && *done) return;
  const Team team(order);
  const Work<I> work(team, units, s.bands, s.rowptr, s.rows, s.edges, cut, pieces);
  const Channels<V, K> c(team, 0, work.valid ? s.width : 0);
  const int64_t i = work.span.row;
  const T p = s.p[work.band];
  const T own_z = s.z ? s.z[i * s.bands + work.band] : T(0);
  Part<T, V, K> own;
  Part<T, V, K> sum;
  T total = 0;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (c.has(k)) own.of[k] = load<V>(s.h + (i * s.bands + work.band) * s.width + c.at(k));
  }
  const int count = work.count(cut);
  const int most = team.most(count);
  for (int first = 0; first < most; first += kAtOnce) {
    Part<T, V, K> other[kAtOnce];
    T square[kAtOnce] = {};
    int64_t neighbour[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const bool live = first + n < count;
      neighbour[n] =
          (live ? static_cast<int64_t>(s.col[work.span.start + first + n]) : i) * s.bands + work.band;
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (live && c.has(k)) other[n].of[k] = load<V>(s.h + neighbour[n] * s.width + c.at(k));
      }
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
#pragma unroll
      for (int k = 0; k < K; ++k) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const T difference = own.of[k].at[v] - other[n].of[k].at[v];
          square[n] += difference * difference;
        }
      }
    }
    team.sum(square);
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      if (first + n >= count) continue;
      const T m = coefficient(s, work.span.start + first + n, square[n], p, own_z, neighbour[n]);
      total += m;
#pragma unroll
      for (int k = 0; k < K; ++k) {
#pragma unroll
        for (int v = 0; v < V; ++v) sum.of[k].at[v] += m * other[n].of[k].at[v];
      }
    }
  }
  if (pieces) {
    if (count == 0) return;
    T* to = cut.sums + team.unit * piece_numbers<T>(s.width);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (c.has(k)) store<V>(to + c.at(k), sum.of[k]);
    }
    if (team.lane == 0) to[s.width] = total;
    return;
  }
  if (work.valid && cut.is_long(work.span)) {
    for (int64_t chunk = cut.first_chunk(work.span); chunk <= cut.last_chunk(work.span); ++chunk) {
      const int64_t slot = cut.slot(work.span, chunk) * s.bands + work.band;
      const T* piece = cut.sums + slot * piece_numbers<T>(s.width);
      total += piece[s.width];
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (!c.has(k)) continue;
        const Pack<T, V> part = load<V>(piece + c.at(k));
#pragma unroll
        for (int v = 0; v < V; ++v) sum.of[k].at[v] += part.at[v];
      }
    }
  }
  StepEnd<T, I> end(s, i, work.band, total);
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (c.has(k)) end.vector(c.at(k), sum.of[k]);
  }
  end.close(team, work.valid);
}

// The same for rows too wide for registers; a warp has one. What M is of a batch of edges stays with the
// threads, one each; the sums over channels wait in memory, those of pieces behind those of rows.
template <typename T, typename I>
__global__ void __launch_bounds__(kThreads)
    plap_step_wide_kernel(PlapStep<T, I> s, Cut<T> cut, const int64_t* done, int64_t units, bool pieces) {
  constexpr int V = kVector<T>;
  constexpr int64_t kStride = kWarp * V;
  if (done && *done) return;
  const Team team(5);
  if (team.unit >= units) return;  // a whole warp
  const Work<I> work(team, units, s.bands, s.rowptr, s.rows, s.edges, cut, pieces);
  const int64_t i = work.span.row;
  const T p = s.p[work.band];
  const T own_z = s.z ? s.z[i * s.bands + work.band] : T(0);
  const T* h = s.h + work.band * s.width;
  const int64_t stride = s.bands * s.width;
  const int64_t numbers = piece_numbers<T>(s.width);
  T* behind_rows = cut.sums + s.rows * s.bands * numbers;
  T* sums = (pieces ? behind_rows : cut.sums) + team.unit * numbers;
  const int count = work.count(cut);
  T total = 0;
  for (int first = 0; first < count; first += kWarp) {
    const int batch = count - first < kWarp ? count - first : kWarp;
    const int64_t mine =
        team.lane < batch ? static_cast<int64_t>(s.col[work.span.start + first + team.lane]) : i;
    T own_m = 0;
    for (int n = 0; n < batch; ++n) {
      const int64_t j = __shfl_sync(kWholeWarp, mine, n);
      const T square = team.sum(square_distance(team, h + i * stride, h + j * stride, s.width));
      const T m = coefficient(s, work.span.start + first + n, square, p, own_z, j * s.bands + work.band);
      total += m;
      if (team.lane == n) own_m = m;
    }
    for (int64_t c = 0; c < s.width; c += kStride) {
      const int64_t at = c + team.lane * V;
      const bool has = at < s.width;
      Pack<T, V> sum = {};
      if (has && first) sum = load<V>(sums + at);
#pragma unroll 2  // more would not fit the registers
      for (int n = 0; n < batch; ++n) {
        const int64_t j = __shfl_sync(kWholeWarp, mine, n);
        const T m = __shfl_sync(kWholeWarp, own_m, n);
        if (!has) continue;
        const Pack<T, V> x = load<V>(h + j * stride + at);
#pragma unroll
        for (int v = 0; v < V; ++v) sum.at[v] += m * x.at[v];
      }
      if (has) store<V>(sums + at, sum);
    }
  }
  if (pieces) {
    if (count && team.lane == 0) sums[s.width] = total;
    return;
  }
  const bool is_long = cut.is_long(work.span);
  const T* piece = behind_rows + work.band * numbers;
  if (is_long) {
    for (int64_t chunk = cut.first_chunk(work.span); chunk <= cut.last_chunk(work.span); ++chunk) {
      total += piece[cut.slot(work.span, chunk) * s.bands * numbers + s.width];
    }
  }
  StepEnd<T, I> end(s, i, work.band, total);
  for (int64_t c = team.lane * V; c < s.width; c += kStride) {
    Pack<T, V> sum = {};
    if (count) sum = load<V>(sums + c);
    if (is_long) {
      for (int64_t chunk = cut.first_chunk(work.span); chunk <= cut.last_chunk(work.span); ++chunk) {
        const Pack<T, V> part = load<V>(piece + cut.slot(work.span, chunk) * s.bands * numbers + c);
#pragma unroll
        for (int v = 0; v < V; ++v) sum.at[v] += part.at[v];
      }
    }
    end.vector(c, sum);
  }
  end.close(team, true);
}

// Whether every band has settled: the sums of change [rows, bands, 2] over rows, in double precision and in
// two stages, each by one warp per column.
inline constexpr int64_t kSettleRows = 1024;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    plap_change_kernel(const T* change, int64_t rows, int64_t columns, double* sums, const int64_t* done) {
  if (*done) return;
  const Team team(5);
  const int64_t chunk = team.unit / columns;
  const int64_t column = team.unit % columns;
  const int64_t start = chunk * kSettleRows;
  const int64_t stop = start + kSettleRows < rows ? start + kSettleRows : rows;
  double sum = 0;
  for (int64_t i = start + team.lane; i < stop; i += kWarp)
    sum += static_cast<double>(change[i * columns + column]);
  sum = team.sum(sum);
  if (start < rows && team.lane == 0) sums[team.unit] = sum;
}

// One warp. Every band by itself: one that is not a number has not settled, nor has one that leaves zero.
template <typename Sum>
__global__ void __launch_bounds__(kWarp) plap_settle_kernel(const Sum* sums, int64_t chunks, int64_t bands,
                                                            double tol, int64_t* taken, int64_t* done) {
  if (*done) return;
  const Team team(5);
  bool settled = true;
  for (int64_t b = 0; b < bands; ++b) {
    Sum total[2] = {};
    for (int64_t k = team.lane; k < chunks; k += kWarp) {
      total[0] += sums[(k * bands + b) * 2];
      total[1] += sums[(k * bands + b) * 2 + 1];
    }
    team.sum(total);
    settled = settled && (total[0] == 0.0 || root(total[0] / total[1]) < tol);
  }
  // Behind the last sum, where every thread has read `done`.
  if (team.lane) return;
  ++*taken;
  *done = settled;
}

template <typename T, typename I>
int64_t held_vectors(const PlapProblem<T, I>& s) {
  return (s.width / kVector<T> + kWarp - 1) / kWarp;
}

// How many numbers a Cut needs for a problem.
template <typename T, typename I>
int64_t plap_sums(const PlapProblem<T, I>& s, int64_t chunk) {
  const int64_t rows = held_vectors(s) > kHeld ? s.rows : 0;
  return (Cut<T>::slots(s.edges, chunk) + rows) * s.bands * piece_numbers<T>(s.width);
}

template <typename T, typename I, typename Stream>
void plap_scale(const PlapScale<T, I>& s, Stream stream) {
  const int64_t vectors = s.rows * s.bands * (s.width / kVector<T>);
  PLUFG_LAUNCH((plap_scale_kernel<T, I>), blocks_for(vectors, 0), kThreads, stream, s);
}

// Calls launch(units, pieces) for the pieces of long rows, if there can be any, and then for all rows.
template <typename T, typename Launch>
void in_two_stages(int64_t rows, int64_t edges, int64_t bands, const Cut<T>& cut, Launch launch) {
  const int64_t slots = Cut<T>::slots(edges, cut.edges);
  if (slots) launch(slots * bands, true);
  launch(rows * bands, false);
}

// One step; nothing is done where `done` is not null and what it points to is not 0.
template <typename T, typename I, typename Stream>
void plap_step(const PlapStep<T, I>& s, const Cut<T>& cut, const int64_t* done, Stream stream) {
  const int64_t held = held_vectors(s);
  const int order = order_for(s.width / kVector<T>);
  const unsigned threads = kThreads;
  if (s.norm) {
    in_two_stages(s.rows, s.edges, s.bands, cut, [&](int64_t units, bool pieces) {
      PLUFG_LAUNCH((plap_norms_kernel<T, I>), blocks_for(units, order), threads, stream, s, cut, done, order,
                   units, pieces);
    });
  }
  in_two_stages(s.rows, s.edges, s.bands, cut, [&](int64_t units, bool pieces) {
    const unsigned blocks = blocks_for(units, order);
    if (held == 1) {
      PLUFG_LAUNCH((plap_step_kernel<T, I, 1>), blocks, threads, stream, s, cut, done, order, units, pieces);
    } else if (held == 2) {
      PLUFG_LAUNCH((plap_step_kernel<T, I, 2>), blocks, threads, stream, s, cut, done, order, units, pieces);
    } else {
      PLUFG_LAUNCH((plap_step_wide_kernel<T, I>), blocks, threads, stream, s, cut, done, units, pieces);
    }
  });
}

inline int64_t plap_settle_sums(int64_t rows, int64_t bands) {
  return (rows + kSettleRows - 1) / kSettleRows * 2 * bands;
}

// Counts a step that was taken, and whether it was the last one.
template <typename T, typename Stream>
void plap_settle(const T* change, int64_t rows, int64_t bands, double tol, double* sums, int64_t* taken,
                 int64_t* done, Stream stream) {
  const int64_t chunks = (rows + kSettleRows - 1) / kSettleRows;
  PLUFG_LAUNCH((plap_change_kernel<T>), blocks_for(chunks * 2 * bands, 5), kThreads, stream, change, rows,
               2 * bands, sums, done);
  PLUFG_LAUNCH((plap_settle_kernel<double>), 1, kWarp, stream, sums, chunks, bands, tol, taken, done);
}

}  // namespace plufg::cuda
