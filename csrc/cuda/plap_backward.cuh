#pragma once

#include "plap.cuh"

namespace plufg::cuda {

// The edges that a row of the derivative speaks for: those it receives over, those it sends over (then the
// CSR is the transpose), or both at once; and where the sums of their pieces are.
template <typename T, typename I>
struct Side {
  const I* rowptr;
  const I* col;
  const T* weight;
  bool receives;
  bool sends;
  T* sums;
};

// One side where a graph is its own transpose, else two.
template <typename T, typename I>
struct Sides {
  Side<T, I> first;
  Side<T, I> second;
  int count;

  // Member by member: an array in the arguments of a kernel would be copied before it can be indexed.
  __device__ Side<T, I> at(int n) const {
    return {n ? second.rowptr : first.rowptr, n ? second.col : first.col,
            n ? second.weight : first.weight, n ? second.receives : first.receives,
            n ? second.sends : first.sends,   n ? second.sums : first.sums};
  }
};

// h, u and s of the derivative, and z.
template <typename T, typename I>
__global__ void __launch_bounds__(kThreads) plap_backward_scale_kernel(PlapBackward<T, I> s, int order) {
  constexpr int V = kVector<T>;
  const Team team(order);
  const bool valid = team.unit < s.rows * s.bands;
  const int64_t node = valid ? team.unit : 0;
  const T d = s.dinv[node / s.bands];
  const T ad = s.a[node] * d;
  T* h = s.hu + node * 2 * s.width;
  T total = 0;
  for (int64_t c = team.lane * V; valid && c < s.width; c += team.lanes * V) {
    const int64_t at = node * s.channels + c;
    const int64_t left = s.channels - c;
    Pack<T, V> f = read<V, T>(s.f, at, left);
    Pack<T, V> u = read<V, T>(s.grad, at, left);
    const Pack<T, V> out = read<V, T>(s.out, at, left);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      f.at[v] *= d;
      u.at[v] *= ad;
      total += u.at[v] * out.at[v];
    }
    store<V>(h + c, f);
    store<V>(h + s.width + c, u);
  }
  total = team.sum(total);
  if (!valid || team.lane) return;
  s.s[node] = d * total;
  if (!s.z) return;
  s.z[node] = z_at(s.penalty, s.parameter, s.norm[node], s.p[node % s.bands]);
}

// Sums of an edge over channels: |h_j - h_i|^2, <u_i, h_j> where the side receives, and that and, where it
// sends, <h_i, u_j> together.
template <typename T>
struct EdgeSums {
  T square;
  T mine;
  T both;
};

// A thread's share of them.
template <typename T>
struct EdgeShare {
  T square = 0;
  T mine = 0;
  T theirs = 0;

  __device__ void add(T h, T u, T other_h, T other_u, bool receives, bool sends) {
    square += (h - other_h) * (h - other_h);
    if (receives) mine += u * other_h;
    if (sends) theirs += h * other_u;
  }

  // Only the derivative by p asks for `apart`, what <u_i, h_j> is alone.
  __device__ EdgeSums<T> over(const Team& team, bool apart) const {
    T sums[2] = {square, mine + theirs};
    team.sum(sums);
    return {sums[0], apart ? team.sum(mine) : T(0), sums[1]};
  }
};

// A node's own scalars.
template <typename T, typename I>
struct Own {
  T p;
  T s;
  T z = 0;
  T t = 0;

  __device__ Own(const PlapBackward<T, I>& b, int64_t node, int64_t band) : p(b.p[band]), s(b.s[node]) {
    if (!b.z) return;
    z = b.z[node];
    t = b.t[node];
  }
};

// What is added over an edge: c (h_i - h_j) and, where a row sends, m u_j; and to dp.
template <typename T>
struct Coefficients {
  T c;
  T m;
  T dp;
};

template <typename T, typename I>
__device__ inline Coefficients<T> coefficients(const PlapBackward<T, I>& s, const Side<T, I>& side,
                                               const Own<T, I>& own, const EdgeSums<T>& sums, int64_t e,
                                               int64_t neighbour) {
  const T n2 = smoothed(s, side.weight, e, sums.square);
  const T weight = side.weight ? side.weight[e] : T(1);
  const bool zero = n2 < kLeast<T>;
  const T x = zero ? T(1) : n2;
  const T mbar = sums.both - ((side.receives ? own.s : T(0)) + (side.sends ? s.s[neighbour] : T(0)));
  Coefficients<T> result = {T(0), weight * power(n2, own.p), T(0)};
  if (s.z) {
    result.c = result.m * ((side.receives ? own.t : T(0)) + (side.sends ? s.t[neighbour] : T(0)));
    result.m *= T(0.5) * (own.z + s.z[neighbour]);
  } else {
    result.m *= own.p;
  }
  // The product with M first: a small norm makes M large and mbar small.
  if (own.p != T(2)) result.c += mbar * result.m * ((own.p - T(2)) * weight) / x;
  if (zero) result.c = T(0);
  if (side.receives && s.dp) {
    const T log = T(0.5) * logarithm(x);
    result.dp = (sums.mine - own.s) * result.m * (s.z ? log : log + T(1) / own.p);
  }
  return result;
}

// The sums of one edge over all channels, from memory.
template <typename T, typename I>
__device__ inline EdgeSums<T> compare(const PlapBackward<T, I>& s, const Side<T, I>& side, const Team& team,
                                      const T* own, const T* other, bool live) {
  constexpr int V = kVector<T>;
  EdgeShare<T> share;
#pragma unroll 1
  for (int64_t c = team.lane * V; live && c < s.width; c += team.lanes * V) {
    const Pack<T, V> h = load<V>(own + c);
    const Pack<T, V> u = load<V>(own + s.width + c);
    const Pack<T, V> other_h = load<V>(other + c);
    Pack<T, V> other_u = {};
    if (side.sends) other_u = load<V>(other + s.width + c);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      share.add(h.at[v], u.at[v], other_h.at[v], other_u.at[v], side.receives, side.sends);
    }
  }
  return share.over(team, side.receives && s.dp);
}

// t_i, and the part of dp_i that comes through N_i and z_i. A piece leaves two numbers.
template <typename T, typename I>
__global__ void __launch_bounds__(kThreads)
    plap_backward_nodes_kernel(PlapBackward<T, I> s, Sides<T, I> sides, int64_t chunk, int order,
                               int64_t units, bool pieces) {
  const Team team(order);
  T zbar = 0;
  T logs = 0;
  const int first_side = pieces ? static_cast<int>(blockIdx.y) : 0;
  const int last_side = pieces ? first_side + 1 : sides.count;
  const bool valid = team.unit < units;
  const int64_t band = valid ? team.unit % s.bands : 0;
  const T p = s.p[band];
  for (int n = first_side; n < last_side; ++n) {
    const Side<T, I> side = sides.at(n);
    const Cut<T> cut{chunk, side.sums};
    const Work<I> work(team, units, s.bands, side.rowptr, s.rows, s.edges, cut, pieces);
    const int64_t node = work.span.row * s.bands + band;
    const T own_s = s.s[node];
    const int count = work.count(cut);
    const int most = team.most(count);
    for (int k = 0; k < most; ++k) {
      const bool live = k < count;
      const int64_t e = work.span.start + k;
      const int64_t neighbour = (live ? static_cast<int64_t>(side.col[e]) : work.span.row) * s.bands + band;
      const EdgeSums<T> sums =
          compare(s, side, team, s.hu + node * 2 * s.width, s.hu + neighbour * 2 * s.width, live);
      if (!live) continue;
      const T n2 = smoothed(s, side.weight, e, sums.square);
      const T q = power(n2, p);
      const T mbar = sums.both - ((side.receives ? own_s : T(0)) + (side.sends ? s.s[neighbour] : T(0)));
      const T share = T(0.5) * q * mbar;
      zbar += side.weight ? share * side.weight[e] : share;
      if (side.receives && s.dp && !(n2 < kLeast<T>)) logs += q * n2 * T(0.5) * logarithm(n2);
    }
    if (pieces) {
      if (valid && count && team.lane == 0) {
        side.sums[2 * team.unit] = zbar;
        side.sums[2 * team.unit + 1] = logs;
      }
    } else if (cut.is_long(work.span)) {
      for (int64_t k = cut.first_chunk(work.span); k <= cut.last_chunk(work.span); ++k) {
        const T* piece = side.sums + 2 * (cut.slot(work.span, k) * s.bands + band);
        zbar += piece[0];
        logs += piece[1];
      }
    }
  }
  if (pieces || !valid || team.lane) return;
  const T norm = s.norm[team.unit];
  T t = 0;
  T dp = 0;
  if (norm > T(0)) {
    const Curve<T> z = curve(s.penalty, s.parameter, norm, p);
    t = zbar * z.dz_dx * raised(norm, T(1) - p);
    if (s.dp) {
      const T mean_log = logs / raised(norm, p);
      const T log = logarithm(norm);
      dp = zbar * (z.dz_dx * norm * (mean_log - log) / p - log * z.z);
    }
  }
  s.t[team.unit] = t;
  if (s.dp) s.dp[team.unit] = dp;
}

template <typename T, typename I, int K>
__global__ void __launch_bounds__(kThreads)
    plap_backward_kernel(PlapBackward<T, I> s, Sides<T, I> sides, int64_t chunk, int order, int64_t units,
                         bool pieces) {
  constexpr int V = kVector<T>;
  const Team team(order);
  const bool valid = team.unit < units;
  const int64_t band = valid ? team.unit % s.bands : 0;
  const Channels<V, K> c(team, 0, valid ? s.width : 0);
  Part<T, V, K> sum;
  T dp = 0;
  const int first_side = pieces ? static_cast<int>(blockIdx.y) : 0;
  const int last_side = pieces ? first_side + 1 : sides.count;
  for (int n = first_side; n < last_side; ++n) {
    const Side<T, I> side = sides.at(n);
    const Cut<T> cut{chunk, side.sums};
    const Work<I> work(team, units, s.bands, side.rowptr, s.rows, s.edges, cut, pieces);
    const int64_t node = work.span.row * s.bands + band;
    const Own<T, I> own(s, node, band);
    Part<T, V, K> h;
    Part<T, V, K> u;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (!c.has(k)) continue;
      h.of[k] = load<V>(s.hu + node * 2 * s.width + c.at(k));
      if (side.receives) u.of[k] = load<V>(s.hu + node * 2 * s.width + s.width + c.at(k));
    }
    const int count = work.count(cut);
    const int most = team.most(count);
    for (int k = 0; k < most; ++k) {
      const bool live = k < count;
      const int64_t e = work.span.start + k;
      const int64_t neighbour = (live ? static_cast<int64_t>(side.col[e]) : work.span.row) * s.bands + band;
      const T* other = s.hu + neighbour * 2 * s.width;
      Part<T, V, K> other_h;
      Part<T, V, K> other_u;
      EdgeShare<T> share;
#pragma unroll
      for (int m = 0; m < K; ++m) {
        if (!live || !c.has(m)) continue;
        other_h.of[m] = load<V>(other + c.at(m));
        if (side.sends) other_u.of[m] = load<V>(other + s.width + c.at(m));
      }
#pragma unroll
      for (int m = 0; m < K; ++m) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          share.add(h.of[m].at[v], u.of[m].at[v], other_h.of[m].at[v], other_u.of[m].at[v], side.receives,
                    side.sends);
        }
      }
      const EdgeSums<T> sums = share.over(team, side.receives && s.dp);
      if (!live) continue;
      const Coefficients<T> by = coefficients(s, side, own, sums, e, neighbour);
      dp += by.dp;
#pragma unroll
      for (int m = 0; m < K; ++m) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          // The difference first: neighbours may be close and c large.
          sum.of[m].at[v] += by.c * (h.of[m].at[v] - other_h.of[m].at[v]);
          if (side.sends) sum.of[m].at[v] += by.m * other_u.of[m].at[v];
        }
      }
    }
    if (pieces) {
      if (count == 0) return;
      T* to = side.sums + team.unit * piece_numbers<T>(s.width);
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (c.has(k)) store<V>(to + c.at(k), sum.of[k]);
      }
      if (team.lane == 0) to[s.width] = dp;
      return;
    }
    if (valid && cut.is_long(work.span)) {
      for (int64_t k = cut.first_chunk(work.span); k <= cut.last_chunk(work.span); ++k) {
        const int64_t slot = cut.slot(work.span, k) * s.bands + band;
        const T* piece = side.sums + slot * piece_numbers<T>(s.width);
        dp += piece[s.width];
#pragma unroll
        for (int m = 0; m < K; ++m) {
          if (!c.has(m)) continue;
          const Pack<T, V> part = load<V>(piece + c.at(m));
#pragma unroll
          for (int v = 0; v < V; ++v) sum.of[m].at[v] += part.at[v];
        }
      }
    }
  }
  if (!valid) return;
  const T d = s.dinv[team.unit / s.bands];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (!c.has(k)) continue;
#pragma unroll
    for (int v = 0; v < V; ++v) sum.of[k].at[v] *= d;
    write<V>(s.df, team.unit * s.channels + c.at(k), s.channels - c.at(k), sum.of[k]);
  }
  if (s.dp && team.lane == 0) s.dp[team.unit] = s.z ? s.dp[team.unit] + dp : dp;
}

// The same for rows too wide for registers, as in plap_step_wide_kernel; `rows` holds the sums of rows.
template <typename T, typename I>
__global__ void __launch_bounds__(kThreads)
    plap_backward_wide_kernel(PlapBackward<T, I> s, Sides<T, I> sides, int64_t chunk, T* rows, int64_t units,
                              bool pieces) {
  constexpr int V = kVector<T>;
  constexpr int64_t kStride = kWarp * V;
  const Team team(5);
  if (team.unit >= units) return;  // a whole warp
  const int64_t band = team.unit % s.bands;
  const int64_t numbers = piece_numbers<T>(s.width);
  T dp = 0;
  bool fresh = true;  // no sums have been written yet
  const int first_side = pieces ? static_cast<int>(blockIdx.y) : 0;
  const int last_side = pieces ? first_side + 1 : sides.count;
  for (int n = first_side; n < last_side; ++n) {
    const Side<T, I> side = sides.at(n);
    const Cut<T> cut{chunk, side.sums};
    const Work<I> work(team, units, s.bands, side.rowptr, s.rows, s.edges, cut, pieces);
    const int64_t node = work.span.row * s.bands + band;
    const T* own_row = s.hu + node * 2 * s.width;
    T* sums = (pieces ? side.sums : rows) + team.unit * numbers;
    const Own<T, I> own(s, node, band);
    const int count = work.count(cut);
    for (int first = 0; first < count; first += kWarp) {
      const int batch = count - first < kWarp ? count - first : kWarp;
      const int64_t e = work.span.start + first;
      const int64_t mine =
          (team.lane < batch ? static_cast<int64_t>(side.col[e + team.lane]) : work.span.row);
      T own_c = 0;
      T own_m = 0;
      for (int k = 0; k < batch; ++k) {
        const int64_t neighbour = __shfl_sync(kWholeWarp, mine, k) * s.bands + band;
        const EdgeSums<T> edge = compare(s, side, team, own_row, s.hu + neighbour * 2 * s.width, true);
        const Coefficients<T> by = coefficients(s, side, own, edge, e + k, neighbour);
        dp += by.dp;
        if (team.lane != k) continue;
        own_c = by.c;
        own_m = by.m;
      }
      for (int64_t begin = 0; begin < s.width; begin += kStride) {
        const int64_t at = begin + team.lane * V;
        const bool has = at < s.width;
        Pack<T, V> sum = {};
        Pack<T, V> h = {};
        if (has && !fresh) sum = load<V>(sums + at);
        if (has) h = load<V>(own_row + at);
#pragma unroll 2  // more would not fit the registers
        for (int k = 0; k < batch; ++k) {
          const int64_t neighbour = __shfl_sync(kWholeWarp, mine, k) * s.bands + band;
          const T by_c = __shfl_sync(kWholeWarp, own_c, k);
          const T by_m = __shfl_sync(kWholeWarp, own_m, k);
          if (!has) continue;
          const T* other = s.hu + neighbour * 2 * s.width + at;
          const Pack<T, V> other_h = load<V>(other);
          Pack<T, V> other_u = {};
          if (side.sends) other_u = load<V>(other + s.width);
#pragma unroll
          for (int v = 0; v < V; ++v) {
            sum.at[v] += by_c * (h.at[v] - other_h.at[v]);
            if (side.sends) sum.at[v] += by_m * other_u.at[v];
          }
        }
        if (has) store<V>(sums + at, sum);
      }
      fresh = false;
    }
    if (pieces) {
      if (count && team.lane == 0) sums[s.width] = dp;
      return;
    }
    if (cut.is_long(work.span)) {
      for (int64_t k = cut.first_chunk(work.span); k <= cut.last_chunk(work.span); ++k) {
        const T* piece = side.sums + (cut.slot(work.span, k) * s.bands + band) * numbers;
        dp += piece[s.width];
        for (int64_t c = team.lane * V; c < s.width; c += kStride) {
          Pack<T, V> sum = load<V>(piece + c);
          if (!fresh) {
            const Pack<T, V> before = load<V>(sums + c);
#pragma unroll
            for (int v = 0; v < V; ++v) sum.at[v] = before.at[v] + sum.at[v];
          }
          store<V>(sums + c, sum);
        }
        fresh = false;
      }
    }
  }
  const T d = s.dinv[team.unit / s.bands];
  for (int64_t c = team.lane * V; c < s.width; c += kStride) {
    Pack<T, V> sum = {};
    if (!fresh) sum = load<V>(rows + team.unit * numbers + c);
#pragma unroll
    for (int v = 0; v < V; ++v) sum.at[v] *= d;
    write<V>(s.df, team.unit * s.channels + c, s.channels - c, sum);
  }
  if (s.dp && team.lane == 0) s.dp[team.unit] = s.z ? s.dp[team.unit] + dp : dp;
}

// How many numbers plap_backward works in: the pieces of two sides, and rows that are wide.
template <typename T, typename I>
int64_t plap_backward_sums(const PlapProblem<T, I>& s, int64_t chunk) {
  return plap_sums(s, chunk) + Cut<T>::slots(s.edges, chunk) * s.bands * piece_numbers<T>(s.width);
}

template <typename T, typename I, typename Stream>
void plap_backward(const PlapBackward<T, I>& s, const Cut<T>& cut, Stream stream) {
  const int64_t held = held_vectors(s);
  const int order = order_for(s.width / kVector<T>);
  const int64_t chunk = cut.edges;
  const int64_t slots = Cut<T>::slots(s.edges, chunk) * s.bands;
  const bool symmetric = s.rowptr == s.rowptr_t && s.col == s.col_t;
  T* second = cut.sums + slots * piece_numbers<T>(s.width);
  T* rows = second + slots * piece_numbers<T>(s.width);
  const Sides<T, I> sides = {{s.rowptr, s.col, s.weight, true, symmetric, cut.sums},
                             {s.rowptr_t, s.col_t, s.weight_t, false, true, second},
                             symmetric ? 1 : 2};
  const unsigned threads = kThreads;
  PLUFG_LAUNCH((plap_backward_scale_kernel<T, I>), blocks_for(s.rows * s.bands, order), threads, stream, s,
               order);
  const auto blocks = [&](int64_t units, bool pieces) {
    return dim3(blocks_for(units, order), pieces ? static_cast<unsigned>(sides.count) : 1);
  };
  if (s.norm) {
    in_two_stages(s.rows, s.edges, s.bands, cut, [&](int64_t units, bool pieces) {
      PLUFG_LAUNCH((plap_backward_nodes_kernel<T, I>), blocks(units, pieces), threads, stream, s, sides,
                   chunk, order, units, pieces);
    });
  }
  in_two_stages(s.rows, s.edges, s.bands, cut, [&](int64_t units, bool pieces) {
    if (held == 1) {
      PLUFG_LAUNCH((plap_backward_kernel<T, I, 1>), blocks(units, pieces), threads, stream, s, sides, chunk,
                   order, units, pieces);
    } else if (held == 2) {
      PLUFG_LAUNCH((plap_backward_kernel<T, I, 2>), blocks(units, pieces), threads, stream, s, sides, chunk,
                   order, units, pieces);
    } else {
      PLUFG_LAUNCH((plap_backward_wide_kernel<T, I>), blocks(units, pieces), threads, stream, s, sides, chunk,
                   rows, units, pieces);
    }
  });
}

}  // namespace plufg::cuda
