#pragma once

// What CUDA's own headers give to kernels besides threads: vector types, 16-bit floats, a little arithmetic.
// Only what is exact: an approximate intrinsic would have results here that no GPU has.

#include <bit>
#include <cmath>
#include <cstdint>

// Aligned as on the device, where an address that is not makes a load fail; here UBSan tells.
#define SIMT_VECTOR2(type, name, bytes) \
  struct alignas(bytes) name {          \
    type x, y;                          \
  };                                    \
  inline name make_##name(type x, type y) { return {x, y}; }
#define SIMT_VECTOR4(type, name) \
  struct alignas(16) name {      \
    type x, y, z, w;             \
  };                             \
  inline name make_##name(type x, type y, type z, type w) { return {x, y, z, w}; }
SIMT_VECTOR2(float, float2, 8)
SIMT_VECTOR2(double, double2, 16)
SIMT_VECTOR2(int, int2, 8)
SIMT_VECTOR2(unsigned, uint2, 8)
SIMT_VECTOR2(long long, longlong2, 16)
SIMT_VECTOR4(float, float4)
SIMT_VECTOR4(int, int4)
SIMT_VECTOR4(unsigned, uint4)
#undef SIMT_VECTOR2
#undef SIMT_VECTOR4

struct uint3 {
  unsigned x, y, z;
};
struct dim3 : uint3 {
  constexpr dim3(unsigned nx = 1, unsigned ny = 1, unsigned nz = 1) : uint3{nx, ny, nz} {}
};

// Storage only: no arithmetic and no silent conversion, as sums belong into wider numbers.
struct __half {
  uint16_t bits;
  __half() = default;
  explicit __half(float value) : bits(round(value)) {}
  explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
    // Scaled as a float, which is exact: the exponent's bias is 112 larger there.
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
    const uint32_t wide = magnitude < 0x7c00 ? std::bit_cast<uint32_t>(scaled) : magnitude << 13 | 0x7f800000;
    return std::bit_cast<float>(sign | wide);
  }

 private:
  static uint16_t round(float value) {
    const auto wide = std::bit_cast<uint32_t>(value);
    const uint32_t sign = wide >> 16 & 0x8000, magnitude = wide & 0x7fffffff;
    uint32_t narrow;
    if (magnitude > 0x7f800000) {
      return 0x7fff;  // NaN, as the device writes it
    } else if (magnitude >= 0x477ff000) {
      narrow = 0x7c00;  // 65520 and more round to infinity
    } else if (magnitude < 0x38800000) {
      // Subnormal: adding 0.5 leaves multiples of 2^-24 in the last bits, rounded to nearest even.
      narrow = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
    } else {
      narrow = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
    }
    return static_cast<uint16_t>(sign | narrow);
  }
};

struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float value) : bits(round(value)) {}
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

 private:
  static uint16_t round(float value) {
    const auto wide = std::bit_cast<uint32_t>(value);
    if ((wide & 0x7fffffff) > 0x7f800000) return 0x7fff;  // NaN, as the device writes it
    return static_cast<uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
  }
};

struct alignas(4) __half2 {
  __half x, y;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline float __half2float(__half value) { return static_cast<float>(value); }
inline float __bfloat162float(__nv_bfloat16 value) { return static_cast<float>(value); }
inline __half __float2half(float value) { return __half(value); }
inline __half __float2half_rn(float value) { return __half(value); }
inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return __nv_bfloat16(value); }
inline float2 __half22float2(__half2 value) { return {__half2float(value.x), __half2float(value.y)}; }
inline float2 __bfloat1622float2(__nv_bfloat162 value) {
  return {__bfloat162float(value.x), __bfloat162float(value.y)};
}
inline __half2 __float22half2_rn(float2 value) { return {__half(value.x), __half(value.y)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 value) {
  return {__nv_bfloat16(value.x), __nv_bfloat16(value.y)};
}

template <typename T>
T __ldg(const T* from) {
  return *from;
}

inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline float __fdiv_rn(float x, float y) { return x / y; }

template <typename T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
T max(T a, T b) {
  return a < b ? b : a;
}
// Of a number and NaN the number, unlike the comparison above.
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __clz(int bits) { return std::countl_zero(static_cast<unsigned>(bits)); }
inline int __ffs(int bits) { return bits ? std::countr_zero(static_cast<unsigned>(bits)) + 1 : 0; }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
