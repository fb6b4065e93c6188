// Compiled once per instruction set, with PLUFG_ISA naming the namespace. Nothing here may come from the
// standard library or from torch: an inline function compiled with wide instructions could be picked by the
// linker for all.
#include "plap.h"

#include "vector.h"

namespace plufg::PLUFG_ISA {
namespace {

// Edges are taken in blocks: first all norms, whose sums over channels are independent of each other and
// overlap, then all powers, a vector of edges at a time, then all additions, from rows that are still in the
// first cache. One edge at a time would wait for sum, root and division in turn.
constexpr int kBlock = 16;

// The smallest normal number: squares below it have lost their bits and count as zero.
inline float tiny(float) { return __FLT_MIN__; }
inline double tiny(double) { return __DBL_MIN__; }

inline float root(float x) { return __builtin_sqrtf(x); }
inline double root(double x) { return __builtin_sqrt(x); }
inline float natural_log(float x) { return __builtin_logf(x); }
inline double natural_log(double x) { return __builtin_log(x); }

// x^e for normal x > 0, a vector at a time, as 2^(e log2 x). The exponent of x is split off exactly and log2
// of the rest is a series in (m - 1) / (m + 1), so that the error is that of the product e log2 x: relative
// 2e-7 for results near 1, growing by 4e-8 for every power of two away from it.
inline Vector<float> power(Vector<float> x, float e) {
  using Int = typename VectorOf<int32_t, kLanes<float>>::type;
  const Int bits = reinterpret_cast<Int>(x);
  // Mantissas from sqrt(1/2) to sqrt(2), around 1.
  const Int shift = (bits - 0x3f3504f3) >> 23;
  const Vector<float> m = reinterpret_cast<Vector<float>>(bits - (shift << 23));
  const Vector<float> z = (m - 1.0f) / (m + 1.0f);
  const Vector<float> z2 = z * z;
  // 2 / ln 2 * (z + z^3/3 + z^5/5 + z^7/7 + z^9/9)
  const Vector<float> series =
      2.8853900818f + z2 * (0.9617966939f + z2 * (0.5770780164f + z2 * (0.4121985831f + z2 * 0.3205988980f)));
  Vector<float> t = e * __builtin_convertvector(shift, Vector<float>) + e * (z * series);
  // Beyond these the result is 0 or infinity; the bounds keep the shift below inside the exponent's range.
  t = t < -126.0f ? Vector<float>{} - 126.0f : t;
  t = t > 127.0f ? Vector<float>{} + 127.0f : t;
  const Vector<float> half = t < 0.0f ? Vector<float>{} - 0.5f : Vector<float>{} + 0.5f;
  const Int whole = __builtin_convertvector(t + half, Int);
  const Vector<float> r = (t - __builtin_convertvector(whole, Vector<float>)) * 0.6931471806f;
  // e^r for |r| <= ln(2)/2 by its series
  const Vector<float> er =
      1.0f + r * (1.0f + r * (0.5f + r * (1.6666667e-1f +
                                          r * (4.1666667e-2f + r * (8.3333333e-3f + r * 1.3888889e-3f)))));
  return er * reinterpret_cast<Vector<float>>((whole + 127) << 23);
}

inline Vector<double> power(Vector<double> x, double e) {
  for (int k = 0; k < kLanes<double>; ++k) x[k] = __builtin_pow(x[k], e);
  return x;
}

// f(n2) for every edge of a block, 0 where n2 counts as zero. Steps of a constant length, so that they become
// vectors: the block is an array of full length, and what lies behind `count` is filled with ones.
template <typename T, typename F>
inline void each(T (&n2)[kBlock], int count, F f) {
  constexpr int kStep = 8;
  const T least = tiny(T());
  for (int k = count; k % kStep; ++k) n2[k] = T(1);
  for (int start = 0; start < count; start += kStep)
    for (int k = start; k < start + kStep; ++k) {
      const bool zero = n2[k] < least;
      const T value = f(zero ? T(1) : n2[k]);
      n2[k] = zero ? T(0) : value;
    }
}

template <typename T>
inline void each_power(T (&n2)[kBlock], int count, T e) {
  const T least = tiny(T());
  for (int k = count; k % kLanes<T>; ++k) n2[k] = T(1);
  for (int k = 0; k < count; k += kLanes<T>) {
    const Vector<T> x = load(n2 + k);
    const Vector<T> ones = Vector<T>{} + T(1);
    store(n2 + k, x < least ? Vector<T>{} : power(x < least ? ones : x, e));
  }
}

// n2^((p-2)/2) of a block, in place; 1 where n2 counts as zero and p = 2, else 0 there. The common exponents
// need square roots only.
template <typename T>
inline void powers(T (&n2)[kBlock], int count, T p) {
  if (p == T(2)) {
    for (int k = 0; k < count; ++k) n2[k] = T(1);
  } else if (p == T(1)) {
    each(n2, count, [](T x) { return T(1) / root(x); });
  } else if (p == T(1.5)) {
    each(n2, count, [](T x) { return T(1) / root(root(x)); });
  } else if (p == T(2.5)) {
    each(n2, count, [](T x) { return root(root(x)); });
  } else if (p == T(3)) {
    each(n2, count, [](T x) { return root(x); });
  } else {
    each_power(n2, count, (p - T(2)) / T(2));
  }
}

// Fetches rows a block ahead, as many as are being worked on, so that every edge's row is fetched once.
template <typename T, typename I>
inline void prefetch_rows(const T* rows, const I* col, int64_t start, int count, int64_t edges,
                          int64_t stride, int64_t width) {
  const int64_t from = start + kBlock;
  const int64_t stop = from + count < edges ? from + count : edges;
  for (int64_t e = from; e < stop; ++e) {
    const char* row = reinterpret_cast<const char*>(rows + static_cast<int64_t>(col[e]) * stride);
    for (int64_t b = 0; b < width * static_cast<int64_t>(sizeof(T)); b += kCacheLine)
      __builtin_prefetch(row + b);
  }
}

// Channels as V full vectors; V = 0: as many as there are, and the rest one by one.
template <typename T, int V>
struct Width {
  int64_t channels;
  int64_t vectors() const { return V ? V : channels / kLanes<T>; }
  int64_t rest() const { return V ? V * kLanes<T> : channels / kLanes<T> * kLanes<T>; }
  int64_t end() const { return V ? V * kLanes<T> : channels; }
};

// The row h_i = d_i f_i that neighbours are compared with: in registers where the width is known.
template <typename T, int V>
struct Centre {
  Vector<T> at[V];
  Centre(T d, const T* f, Width<T, V>) {
    for (int v = 0; v < V; ++v) at[v] = rounded(d * load(f + v * kLanes<T>));
  }
  // |d f - h_i|^2, exactly 0 where d f and h_i are equal
  T distance2(T d, const T* f, Width<T, V>) const {
    Vector<T> total = {};
    for (int v = 0; v < V; ++v) total += away(d, f, v) * away(d, f, v);
    return sum(total);
  }
  // d f - h_i, of one vector
  Vector<T> away(T d, const T* f, int64_t v) const { return rounded(d * load(f + v * kLanes<T>)) - at[v]; }
};

template <typename T>
struct Centre<T, 0> {
  T di;
  const T* fi;
  Centre(T d, const T* f, Width<T, 0>) : di(d), fi(f) {}
  T distance2(T d, const T* f, Width<T, 0> w) const {
    Vector<T> total = {};
    for (int64_t v = 0; v < w.vectors(); ++v) total += away(d, f, v) * away(d, f, v);
    T out = sum(total);
    for (int64_t c = w.rest(); c < w.channels; ++c) out += away_at(d, f, c) * away_at(d, f, c);
    return out;
  }
  Vector<T> away(T d, const T* f, int64_t v) const {
    return rounded(d * load(f + v * kLanes<T>)) - rounded(di * load(fi + v * kLanes<T>));
  }
  T away_at(T d, const T* f, int64_t c) const { return rounded(d * f[c]) - rounded(di * fi[c]); }
};

// <x, y>
template <typename T, int V>
inline T dot(const T* x, const T* y, Width<T, V> w) {
  Vector<T> total = {};
  for (int64_t v = 0; v < w.vectors(); ++v) total += load(x + v * kLanes<T>) * load(y + v * kLanes<T>);
  T out = sum(total);
  for (int64_t c = w.rest(); c < w.end(); ++c) out += x[c] * y[c];
  return out;
}

// A row of sums: in registers where the width is known, in the output otherwise.
template <typename T, int V>
struct Sums {
  Vector<T> at[V] = {};
  Sums(T*, Width<T, V>) {}
  void add(T m, const T* x, Width<T, V>) {
    for (int v = 0; v < V; ++v) at[v] += m * load(x + v * kLanes<T>);
  }
  // Adds m (d f - h_i): the difference first, for neighbours may be close and m large.
  void add_away(T m, T d, const T* f, const Centre<T, V>& centre, Width<T, V>) {
    for (int v = 0; v < V; ++v) at[v] += m * centre.away(d, f, v);
  }
  // scale sums + extra x
  void finish(T* out, T scale, T extra, const T* x, Width<T, V>) {
    for (int v = 0; v < V; ++v) store(out + v * kLanes<T>, scale * at[v] + extra * load(x + v * kLanes<T>));
  }
};

template <typename T>
struct Sums<T, 0> {
  T* at;
  Sums(T* out, Width<T, 0> w) : at(out) {
    for (int64_t c = 0; c < w.channels; ++c) out[c] = T(0);
  }
  void add(T m, const T* x, Width<T, 0> w) {
    for (int64_t v = 0; v < w.vectors(); ++v)
      store(at + v * kLanes<T>, load(at + v * kLanes<T>) + m * load(x + v * kLanes<T>));
    for (int64_t c = w.rest(); c < w.channels; ++c) at[c] += m * x[c];
  }
  void add_away(T m, T d, const T* f, const Centre<T, 0>& centre, Width<T, 0> w) {
    for (int64_t v = 0; v < w.vectors(); ++v)
      store(at + v * kLanes<T>, load(at + v * kLanes<T>) + m * centre.away(d, f, v));
    for (int64_t c = w.rest(); c < w.channels; ++c) at[c] += m * centre.away_at(d, f, c);
  }
  void finish(T* out, T scale, T extra, const T* x, Width<T, 0> w) {
    for (int64_t c = 0; c < w.channels; ++c) out[c] = scale * at[c] + extra * x[c];
  }
};

template <typename T, typename I, int V>
void step_row(const PlapStep<T, I>& s, int64_t i, int64_t band, Width<T, V> w) {
  const int64_t stride = s.bands * s.channels;
  const T* f = s.f + band * s.channels;
  const T* fi = f + i * stride;
  const T di = s.dinv[i];
  const T p = s.p[band];
  const int64_t at = i * stride + band * s.channels;
  const int64_t stop = s.rowptr[i + 1];
  const Centre<T, V> centre(di, fi, w);
  Sums<T, V> sums(s.out + at, w);
  T total = T(0);
  for (int64_t start = s.rowptr[i]; start < stop; start += kBlock) {
    const int count = static_cast<int>(stop - start < kBlock ? stop - start : kBlock);
    prefetch_rows(f, s.col, start, count, s.edges, stride, w.end());
    T m[kBlock];
    T dj[kBlock];
    for (int k = 0; k < count; ++k) dj[k] = s.dinv[s.col[start + k]];
    if (p != T(2)) {
      for (int k = 0; k < count; ++k) {
        const T d2 = centre.distance2(dj[k], f + static_cast<int64_t>(s.col[start + k]) * stride, w);
        m[k] = (s.weight ? s.weight[start + k] * d2 : d2) + s.eps * s.eps;
      }
    }
    powers(m, count, p);
    for (int k = 0; k < count; ++k) {
      const T mk = s.weight ? p * s.weight[start + k] * m[k] : p * m[k];
      total += mk;
      sums.add(mk * dj[k], f + static_cast<int64_t>(s.col[start + k]) * stride, w);
    }
  }
  const T twice_mu = T(2) * s.mu[band];
  const T a = T(1) / (di * di * total + twice_mu);
  s.a[i * s.bands + band] = a;
  sums.finish(s.out + at, a * di, a * twice_mu, s.y + at, w);
}

template <typename T, typename I, int V>
void scalars_row(const PlapBackward<T, I>& s, int64_t i, int64_t band, Width<T, V> w) {
  const int64_t node = i * s.bands + band;
  const T ad = s.a[node] * s.dinv[i];
  s.scalars[2 * node] = ad;
  s.scalars[2 * node + 1] = s.dinv[i] * ad * dot(s.grad + node * s.channels, s.out + node * s.channels, w);
}

// The part of one CSR in row i of the derivative: `receive` what comes from the row's own norms, `send` what
// comes through the rows it sends to. Adds M u_j - c (h_j - h_i) to the sums.
template <typename T, typename I, int V, bool receive, bool send>
void backward_part(const PlapBackward<T, I>& s, const I* rowptr, const I* col, const T* weight, int64_t i,
                   int64_t band, Width<T, V> w, Sums<T, V>& sums, T& dp) {
  const int64_t stride = s.bands * s.channels;
  const T* f = s.f + band * s.channels;
  const T* grad = s.grad + band * s.channels;
  const T* fi = f + i * stride;
  const T* gi = grad + i * stride;
  const T di = s.dinv[i];
  const T adi = s.scalars[2 * (i * s.bands + band)];
  const T si = s.scalars[2 * (i * s.bands + band) + 1];
  const T p = s.p[band];
  const T least = tiny(T());
  const Centre<T, V> centre(di, fi, w);
  // At p = 2 the weights are constants: only the derivative by p asks for the norms.
  const bool norms = p != T(2) || (receive && s.dp);
  const int64_t stop = rowptr[i + 1];
  for (int64_t start = rowptr[i]; start < stop; start += kBlock) {
    const int count = static_cast<int>(stop - start < kBlock ? stop - start : kBlock);
    if (norms) prefetch_rows(f, col, start, count, s.edges, stride, w.end());
    if constexpr (send) prefetch_rows(grad, col, start, count, s.edges, stride, w.end());
    T n2[kBlock];
    T m[kBlock];
    T mine[kBlock];    // <u_i, h_j> - s_i
    T theirs[kBlock];  // <u_j, h_i> - s_j
    for (int k = 0; norms && k < count; ++k) {
      const int64_t j = col[start + k];
      const T* fj = f + j * stride;
      const T* scalars = s.scalars + 2 * (j * s.bands + band);
      const T dj = s.dinv[j];
      const T d2 = centre.distance2(dj, fj, w);
      n2[k] = m[k] = (weight ? weight[start + k] * d2 : d2) + s.eps * s.eps;
      mine[k] = receive ? adi * dj * dot(gi, fj, w) - si : T(0);
      theirs[k] = send ? scalars[0] * di * dot(grad + j * stride, fi, w) - scalars[1] : T(0);
    }
    powers(m, count, p);
    for (int k = 0; k < count; ++k) {
      const int64_t j = col[start + k];
      const T wk = weight ? weight[start + k] : T(1);
      const T mk = p * wk * m[k];
      if constexpr (send) sums.add(mk * s.scalars[2 * (j * s.bands + band)], grad + j * stride, w);
      if (!norms) continue;
      const bool zero = n2[k] < least;
      // The product with M first: a small norm makes M large and mbar small.
      const T c = zero ? T(0) : (mine[k] + theirs[k]) * mk * (p - T(2)) * wk / n2[k];
      sums.add_away(-c, s.dinv[j], f + j * stride, centre, w);
      if (receive && s.dp) dp += mine[k] * mk * (T(1) / p + (zero ? T(0) : natural_log(n2[k]) / T(2)));
    }
  }
}

template <typename T, typename I, int V>
void backward_row(const PlapBackward<T, I>& s, int64_t i, int64_t band, Width<T, V> w) {
  const int64_t at = (i * s.bands + band) * s.channels;
  Sums<T, V> sums(s.df + at, w);
  T dp = T(0);
  if (s.rowptr == s.rowptr_t && s.col == s.col_t) {
    backward_part<T, I, V, true, true>(s, s.rowptr, s.col, s.weight, i, band, w, sums, dp);
  } else {
    backward_part<T, I, V, true, false>(s, s.rowptr, s.col, s.weight, i, band, w, sums, dp);
    backward_part<T, I, V, false, true>(s, s.rowptr_t, s.col_t, s.weight_t, i, band, w, sums, dp);
  }
  sums.finish(s.df + at, s.dinv[i], T(0), s.f + at, w);
  if (s.dp) s.dp[i * s.bands + band] = dp;
}

// Calls `row(i, band, width)` with the width as a constant where it is one, two, four or eight full vectors.
template <typename T, typename Row>
void for_rows(int64_t begin, int64_t end, int64_t bands, int64_t channels, Row row) {
  const auto all = [&](auto w) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t band = 0; band < bands; ++band) row(i, band, w);
  };
  const int64_t lanes = kLanes<T>;
  if (channels == lanes) {
    all(Width<T, 1>{channels});
  } else if (channels == 2 * lanes) {
    all(Width<T, 2>{channels});
  } else if (channels == 4 * lanes) {
    all(Width<T, 4>{channels});
  } else if (channels == 8 * lanes) {
    all(Width<T, 8>{channels});
  } else {
    all(Width<T, 0>{channels});
  }
}

template <typename T, typename I>
void step_rows(const PlapStep<T, I>& s, int64_t begin, int64_t end) {
  for_rows<T>(begin, end, s.bands, s.channels,
              [&](int64_t i, int64_t band, auto w) { step_row(s, i, band, w); });
}

template <typename T, typename I>
void scalars_rows(const PlapBackward<T, I>& s, int64_t begin, int64_t end) {
  for_rows<T>(begin, end, s.bands, s.channels,
              [&](int64_t i, int64_t band, auto w) { scalars_row(s, i, band, w); });
}

template <typename T, typename I>
void backward_rows(const PlapBackward<T, I>& s, int64_t begin, int64_t end) {
  for_rows<T>(begin, end, s.bands, s.channels,
              [&](int64_t i, int64_t band, auto w) { backward_row(s, i, band, w); });
}

}  // namespace

#define PLUFG_DEFINE_PLAP(T, I)                                                                     \
  void plap_step(const PlapStep<T, I>& s, int64_t begin, int64_t end) { step_rows(s, begin, end); } \
  void plap_backward_scalars(const PlapBackward<T, I>& s, int64_t begin, int64_t end) {             \
    scalars_rows(s, begin, end);                                                                    \
  }                                                                                                 \
  void plap_backward(const PlapBackward<T, I>& s, int64_t begin, int64_t end) {                     \
    backward_rows(s, begin, end);                                                                   \
  }
PLUFG_DEFINE_PLAP(float, int32_t)
PLUFG_DEFINE_PLAP(float, int64_t)
PLUFG_DEFINE_PLAP(double, int32_t)
PLUFG_DEFINE_PLAP(double, int64_t)

}  // namespace plufg::PLUFG_ISA
