#pragma once

// Powers and logarithms of vectors of normal, positive numbers.
#include "vector.h"

namespace plufg::PLUFG_ISA {
namespace {

template <typename T>
struct Format;
template <>
struct Format<float> {
  using Bits = uint32_t;
  static constexpr int kMantissa = 23;
  static constexpr Bits kBias = 127;
  static constexpr Bits kRootHalf = 0x3f3504f3;  // sqrt(1/2)
  static constexpr float kRound = 0x1.8p23f;     // added, it leaves the nearest integer in the low bits
  static constexpr float kLeast = __FLT_MIN__;
  static constexpr int kLogTerms = 5;
  static constexpr int kExpTerms = 7;
};
template <>
struct Format<double> {
  using Bits = uint64_t;
  static constexpr int kMantissa = 52;
  static constexpr Bits kBias = 1023;
  static constexpr Bits kRootHalf = 0x3fe6a09e667f3bcd;
  static constexpr double kRound = 0x1.8p52;
  static constexpr double kLeast = __DBL_MIN__;
  static constexpr int kLogTerms = 11;
  static constexpr int kExpTerms = 14;
};

template <typename T>
using Bits = typename VectorOf<typename Format<T>::Bits, kLanes<T>>::type;

// log2(x) as exponent + rest. The mantissa lies within [sqrt(1/2), sqrt(2)], where the series of
// 2/ln(2) artanh((m - 1) / (m + 1)) is cut below the precision of T.
template <typename T>
struct Log2 {
  Vector<T> exponent;
  Vector<T> rest;

  explicit Log2(Vector<T> x) {
    using F = Format<T>;
    const auto bits = reinterpret_cast<Bits<T>>(x);
    // Biased, the exponent is positive and needs no shift that keeps a sign.
    const Bits<T> biased = (bits - F::kRootHalf + (F::kBias << F::kMantissa)) >> F::kMantissa;
    const auto m = reinterpret_cast<Vector<T>>(bits - ((biased - F::kBias) << F::kMantissa));
    const auto magic = reinterpret_cast<Bits<T>>(Vector<T>{} + F::kRound);
    exponent = reinterpret_cast<Vector<T>>(biased - F::kBias + magic) - F::kRound;
    const Vector<T> r = (m - T(1)) / (m + T(1));
    const Vector<T> r2 = r * r;
    Vector<T> series = {};
    for (int k = F::kLogTerms - 1; k >= 0; --k) {
      series = series * r2 + T(2.8853900817779268147) / T(2 * k + 1);
    }
    rest = r * series;
  }
};

template <typename T>
inline Vector<T> natural_log(Vector<T> x) {
  const Log2<T> log(x);
  return T(0.69314718055994530942) * (log.exponent + log.rest);
}

// x^e as 2^(e log2 x). Relative error at most 3e-7 (float) or 3e-16 (double) for results near 1, growing by
// 1e-7 or 2e-16 for every power of two away from it: the error of the product e log2 x.
template <typename T>
inline Vector<T> power(Vector<T> x, T e) {
  using F = Format<T>;
  const Log2<T> log(x);
  Vector<T> t = e * log.exponent + e * log.rest;
  // Results are cut off at the ends of T's range: the bounds keep the exponent below within its own.
  const T low = T(1) - T(F::kBias);
  const T high = T(F::kBias);
  t = t < low ? Vector<T>{} + low : t;
  t = t > high ? Vector<T>{} + high : t;
  const Vector<T> shifted = t + F::kRound;
  const Vector<T> r = (t - (shifted - F::kRound)) * T(0.69314718055994530942);
  Vector<T> series = {};
  T factorial = T(1);
  for (int k = 2; k < F::kExpTerms; ++k) factorial *= T(k);
  for (int k = F::kExpTerms - 1; k >= 0; --k) {
    series = series * r + T(1) / factorial;
    factorial /= k ? T(k) : T(1);
  }
  const auto magic = reinterpret_cast<Bits<T>>(Vector<T>{} + F::kRound);
  const auto whole =
      reinterpret_cast<Vector<T>>((reinterpret_cast<Bits<T>>(shifted) - magic + F::kBias) << F::kMantissa);
  // What is infinite or not a number has an exponent like any other to the above; here it shows again.
  return series * whole + (x - x);
}

// 1 / sqrt(x): for float the hardware's estimate of 12 bits and one Newton step, relative error 3e-7.
inline Vector<float> inverse_root(Vector<float> x) {
#if defined(__AVX512F__)
  const auto y =
      reinterpret_cast<Vector<float>>(__builtin_ia32_rsqrt14ps512_mask(x, Vector<float>{}, 0xffff));
#elif defined(__AVX2__)
  const Vector<float> y = __builtin_ia32_rsqrtps256(x);
#elif defined(__x86_64__)
  const Vector<float> y = __builtin_ia32_rsqrtps(x);
#else
  Vector<float> y;
  for (int k = 0; k < kLanes<float>; ++k) y[k] = 1.0f / __builtin_sqrtf(x[k]);
#endif
  return y * (1.5f - 0.5f * x * y * y);
}

inline Vector<double> inverse_root(Vector<double> x) {
  for (int k = 0; k < kLanes<double>; ++k) x[k] = __builtin_sqrt(x[k]);
  return 1.0 / x;
}

}  // namespace
}  // namespace plufg::PLUFG_ISA
