#pragma once

#include "macros.h"

namespace plufg {

// The penalties phi, numbered as plufg_fast/penalties.py lists them.
enum class Penalty : int { power, tikhonov, tv, rtv, nldiff };
inline constexpr int kPenalties = 5;

// A penalty as a node's norm x > 0 meets it: z = phi'(x) / x^(p-1) and its derivative by x. Not for
// Penalty::power, whose z is p whatever x is.
template <typename T>
struct Curve {
  T z;
  T dz_dx;
};

static inline PLUFG_HD float raised(float x, float e) { return __builtin_powf(x, e); }
static inline PLUFG_HD double raised(double x, double e) { return __builtin_pow(x, e); }
static inline PLUFG_HD float root(float x) { return __builtin_sqrtf(x); }
static inline PLUFG_HD double root(double x) { return __builtin_sqrt(x); }
static inline PLUFG_HD float logarithm(float x) { return __builtin_logf(x); }
static inline PLUFG_HD double logarithm(double x) { return __builtin_log(x); }

// The functions are `static`: with external linkage the linker would keep one copy for all instruction sets.
template <typename T>
static inline PLUFG_HD Curve<T> curve(Penalty penalty, T parameter, T x, T p) {
  const T slope = raised(x, T(1) - p);  // x^(1-p)
  const T square = parameter * parameter;
  switch (penalty) {
    case Penalty::tikhonov:
      return {T(2) * x * slope, T(2) * (T(2) - p) * slope};
    case Penalty::tv:
      return {slope, (T(1) - p) * slope / x};
    case Penalty::rtv: {
      const T smooth = root(x * x + square);
      return {x * slope / smooth, ((T(2) - p) - x * x / (smooth * smooth)) * slope / smooth};
    }
    case Penalty::nldiff: {
      const T damped = T(2) * slope / (T(1) + x * x / square);
      return {x * damped, damped * ((T(2) - p) - T(2) * x * x / (square + x * x))};
    }
    default:
      return {p, T(0)};
  }
}

// z at a node's norm x, 0 included. There all its edges are zero and have weight at p = 2 only, where q is 1:
// z is then its limit, if there is one, and else 0.
template <typename T>
static inline PLUFG_HD T z_at(Penalty penalty, T parameter, T x, T p) {
  if (x > T(0)) return curve(penalty, parameter, x, p).z;
  if (p != T(2) || penalty == Penalty::tv) return T(0);
  return penalty == Penalty::rtv ? T(1) / parameter : T(2);
}

}  // namespace plufg
