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
// The sums of as many rows as fit into a quarter of a first cache wait there for what is done with them:
// their own rows of the signals, which follow each other, are then read and written in one go. Of a wider row
// it is so many channels.
template <typename T>
constexpr int64_t kPanel = 8192 / static_cast<int64_t>(sizeof(T));

// W values in memory, wherever they start. A memcpy would do as well, but may become narrower moves than the
// loads that follow it, which then wait for it.
template <typename T, int W>
struct Stored {
  typedef T type __attribute__((vector_size(W * sizeof(T)), aligned(sizeof(T)), may_alias));
};

template <int W, typename T>
inline typename VectorOf<T, W>::type load_part(const T* from) {
  return *reinterpret_cast<const typename Stored<T, W>::type*>(from);
}

template <int W, typename T>
inline void store_part(T* to, typename VectorOf<T, W>::type v) {
  *reinterpret_cast<typename Stored<T, W>::type*>(to) = v;
}

// Bands that are read once a step are fetched this many rows ahead: between the gathers of two rows the
// hardware does not see them coming.
constexpr int64_t kRowsAhead = 2;

template <typename T>
inline void fetch(const T* row, int64_t channels) {
  for (int64_t k = 0; k < channels; k += kCacheLine / static_cast<int64_t>(sizeof(T)))
    __builtin_prefetch(row + k);
}

// sum_{j != i} a_ij x_j for rows [begin, end), channels [c, c + W), to rows `stride` apart. Which factors an
// edge has is known to the compiler, which does not move such tests out of the loop by itself.
template <int W, bool kWeight, bool kRight, typename T, typename I>
void gather_tile(const ChebStep<T, I>& s, int64_t begin, int64_t end, int64_t c, T* to, int64_t stride) {
  constexpr int kWidth = W < kLanes<T> ? W : kLanes<T>;
  constexpr int kBytes = W * static_cast<int>(sizeof(T));
  // Neighbours are fetched this many edges ahead: about the latency of memory over the time of one edge.
  constexpr int64_t kAhead = kBytes > 2 * kCacheLine ? 16 : 32;
  using Part = typename VectorOf<T, kWidth>::type;
  for (int64_t i = begin; i < end; ++i, to += stride) {
    Part sum[W / kWidth];
    for (int k = 0; k < W / kWidth; ++k) sum[k] = Part{};
    const int64_t stop = s.rowptr[i + 1];
    for (int64_t e = s.rowptr[i]; e < stop; ++e) {
      const int64_t next = e + kAhead < s.edges ? e + kAhead : e;
      const auto row = reinterpret_cast<const char*>(s.x + s.col[next] * s.channels + c);
      for (int b = 0; b < kBytes; b += kCacheLine) __builtin_prefetch(row + b);
      const int64_t j = s.col[e];
      if (j == i) continue;
      T a = kWeight ? s.weight[e] : T(1);
      if (kRight) a *= s.right[j];
      const T* xj = s.x + j * s.channels + c;
      for (int k = 0; k < W / kWidth; ++k) sum[k] += a * load_part<kWidth>(xj + k * kWidth);
    }
    for (int k = 0; k < W / kWidth; ++k) store_part<kWidth>(to + k * kWidth, sum[k]);
  }
}

template <int W, bool kWeight, bool kRight, typename T, typename I>
inline void gather_tile_of(int64_t width, const ChebStep<T, I>& s, int64_t begin, int64_t end, int64_t c,
                           T* to, int64_t stride) {
  if (width == W) {
    gather_tile<W, kWeight, kRight>(s, begin, end, c, to, stride);
  } else if constexpr (W > 1) {
    gather_tile_of<W / 2, kWeight, kRight>(width, s, begin, end, c, to, stride);
  }
}

// Covers channels [c, c + channels) by tiles of 1, 2, 4, ... channels without partial vectors: the rest of a
// row is done by the next wider tile, shifted left over channels that are simply summed twice, where the row
// is wide enough for that, and by the next narrower one otherwise. The split depends on the width alone,
// never on rows or threads.
template <bool kWeight, bool kRight, typename T, typename I>
void gather(const ChebStep<T, I>& s, int64_t begin, int64_t end, int64_t c, int64_t channels, T* sum) {
  constexpr int kWidest = kAccumulators * kLanes<T>;
  int64_t width = kWidest;
  for (int64_t k = 0; k < channels; k += width) {
    const int64_t left = channels - k;
    while (width / 2 >= left) width /= 2;
    while (width > channels) width /= 2;
    const int64_t at = width > left ? channels - width : k;
    gather_tile_of<kWidest, kWeight, kRight>(width, s, begin, end, c + at, sum + at, channels);
  }
}

// Calls f<W>(k) for channels [k, k + W), each channel once: by full vectors, the rest by narrower ones.
template <typename T, int W = kLanes<T>, typename F>
inline void each_part(int64_t k, int64_t channels, F f) {
  for (; k + W <= channels; k += W) f.template operator()<W>(k);
  if constexpr (W > 1) each_part<T, W / 2>(k, channels, f);
}

// sum_{t < K} factor_t row_t: made term by term, then summed in one pass over the channels. The number of
// terms is known to the compiler, which keeps all of it in registers.
template <typename T, int K>
struct Mixture {
  T factor[K + 1];
  const T* row[K + 1];

  Mixture<T, K + 1> with(T f, const T* r) const {
    Mixture<T, K + 1> more;
    for (int t = 0; t < K; ++t) {
      more.factor[t] = factor[t];
      more.row[t] = row[t];
    }
    more.factor[K] = f;
    more.row[K] = r;
    return more;
  }

  // Channels [begin, end), to a row that may be one of those it is made of.
  void write(int64_t begin, int64_t end, T* to) const {
    each_part<T>(begin, end, [&, m = *this]<int W>(int64_t k) {
      typename VectorOf<T, W>::type v = {};
      for (int t = 0; t < K; ++t) v += m.factor[t] * load_part<W>(m.row[t] + k);
      store_part<W>(to + k, v);
    });
  }
};

// Calls finish(i, c, channels, mixture, buffer) for rows [begin, end) of a step and channels [c, c +
// channels); the mixture is what the step makes of x and prev there, and may refer to the buffer.
template <typename T, typename I, typename Finish>
inline void rows(const ChebStep<T, I>& s, int64_t begin, int64_t end, Finish finish) {
  const auto gathered = s.weight ? (s.right ? gather<true, true, T, I> : gather<true, false, T, I>)
                                 : (s.right ? gather<false, true, T, I> : gather<false, false, T, I>);
  T sums[kPanel<T>];
  const int64_t width = s.channels < kPanel<T> ? s.channels : kPanel<T>;
  const int64_t height = kPanel<T> / width;
  for (int64_t top = begin; top < end; top += height) {
    const int64_t bottom = end - top < height ? end : top + height;
    for (int64_t c = 0; c < s.channels; c += width) {
      const int64_t channels = s.channels - c < width ? s.channels - c : width;
      if (s.x) gathered(s, top, bottom, c, channels, sums);
      for (int64_t i = top; i < bottom; ++i) {
        const ChebRow<T> row = cheb_row(s, i);
        const int64_t at = i * s.channels + c;
        T* sum = sums + (i - top) * channels;
        const auto continued = [&](auto mixture) {
          if (s.prev) return finish(i, c, channels, mixture.with(s.gamma, s.prev + at), sum);
          finish(i, c, channels, mixture, sum);
        };
        const Mixture<T, 0> nothing{};
        if (s.x) {
          continued(nothing.with(row.self, s.x + at).with(row.sum, sum));
        } else {
          continued(nothing);
        }
      }
    }
  }
}

template <typename T, typename I>
void step_rows(const ChebStep<T, I>& s, int64_t begin, int64_t end) {
  rows(s, begin, end, [&](int64_t i, int64_t c, int64_t channels, auto mixture, T*) {
    mixture.write(0, channels, s.out + i * s.channels + c);
  });
}

template <int kTaps, typename T, typename I>
void filter_rows(const ChebAnalysis<T, I>& s, int64_t begin, int64_t end) {
  const ChebStep<T, I>& t = s.step;
  rows(t, begin, end, [&](int64_t i, int64_t c, int64_t channels, auto mixture, T* buffer) {
    const int64_t at = i * t.channels + c;
    mixture.write(0, channels, buffer);
    Mixture<T, kTaps> terms;
    terms.row[0] = buffer;
    if (kTaps > 1) terms.row[1] = t.x + at;
    if (kTaps > 2) terms.row[2] = t.prev + at;
    if (kTaps > 3) terms.row[3] = s.first + at;
    for (int64_t r = 0; r < s.filters; ++r) {
      T* band = s.bands + (i * s.filters + r) * t.channels + c;
      for (int k = 0; k < kTaps; ++k) terms.factor[k] = s.weights[r * s.terms - k];
      if (s.add) {
        terms.with(T(1), band).write(0, channels, band);
      } else {
        terms.write(0, channels, band);
      }
    }
    // Last: it may take the place of prev.
    if (t.out) Mixture<T, 0>{}.with(T(1), buffer).write(0, channels, t.out + at);
  });
}

template <typename T, typename I>
void analysis_rows(const ChebAnalysis<T, I>& s, int64_t begin, int64_t end) {
  if (!s.bands) return step_rows(s.step, begin, end);
  switch (s.taps) {
    case 1:
      return filter_rows<1>(s, begin, end);
    case 2:
      return filter_rows<2>(s, begin, end);
    case 3:
      return filter_rows<3>(s, begin, end);
    default:
      return filter_rows<4>(s, begin, end);
  }
}

// Adds the bands of a row to a mixture, up to four in one pass.
template <typename T, int K>
inline void add_bands(Mixture<T, K> mixture, const T* weight, int64_t terms, const T* band, int64_t stride,
                      int64_t filters, int64_t channels, T* buffer, T* out) {
  const auto one = mixture.with(weight[0], band);
  if (filters == 1) return one.write(0, channels, out);
  const auto two = one.with(weight[terms], band + stride);
  if (filters == 2) return two.write(0, channels, out);
  const auto three = two.with(weight[2 * terms], band + 2 * stride);
  if (filters == 3) return three.write(0, channels, out);
  const auto four = three.with(weight[3 * terms], band + 3 * stride);
  if (filters == 4) return four.write(0, channels, out);
  four.write(0, channels, buffer);
  const auto done = Mixture<T, 0>{}.with(T(1), buffer);
  add_bands(done, weight + 4 * terms, terms, band + 4 * stride, stride, filters - 4, channels, buffer, out);
}

template <typename T, typename I>
void synthesis_rows(const ChebSynthesis<T, I>& s, int64_t begin, int64_t end) {
  const ChebStep<T, I>& t = s.step;
  const int64_t row = s.apart ? t.channels : s.filters * t.channels;
  rows(t, begin, end, [&](int64_t i, int64_t c, int64_t channels, auto mixture, T* buffer) {
    T* out = t.out + i * t.channels + c;
    const T* bands = s.bands + i * row + c;
    if (!s.apart) {
      for (int64_t r = 0; r < s.filters; ++r) fetch(bands + kRowsAhead * row + r * t.channels, channels);
      return add_bands(mixture, s.weights, s.terms, bands, t.channels, s.filters, channels, buffer, out);
    }
    fetch(bands + kRowsAhead * row, channels);
    const int64_t width = t.channels / s.filters;
    for (int64_t k = 0, stop; k < channels; k = stop) {
      const int64_t r = (c + k) / width;
      stop = (r + 1) * width - c < channels ? (r + 1) * width - c : channels;
      mixture.with(s.weights[r * s.terms], bands).write(k, stop, out);
    }
  });
}

}  // namespace

#define PLUFG_DEFINE_CHEB(S, function, rows)                                                      \
  void function(const S<float, int32_t>& s, int64_t begin, int64_t end) { rows(s, begin, end); }  \
  void function(const S<float, int64_t>& s, int64_t begin, int64_t end) { rows(s, begin, end); }  \
  void function(const S<double, int32_t>& s, int64_t begin, int64_t end) { rows(s, begin, end); } \
  void function(const S<double, int64_t>& s, int64_t begin, int64_t end) { rows(s, begin, end); }

PLUFG_DEFINE_CHEB(ChebStep, cheb_step, step_rows)
PLUFG_DEFINE_CHEB(ChebAnalysis, cheb_analysis, analysis_rows)
PLUFG_DEFINE_CHEB(ChebSynthesis, cheb_synthesis, synthesis_rows)

}  // namespace plufg::PLUFG_ISA
