#pragma once

// Vectors of one instruction set. Included only by files that are compiled once per instruction set, inside
// the namespace of theirs: with external linkage the linker would keep one copy for all.
#if !defined(PLUFG_ISA)
#error "PLUFG_ISA must name the instruction set this file is compiled for"
#endif

#include <cstdint>

namespace plufg::PLUFG_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
constexpr int kCacheLine = 64;

template <typename T, int W>
struct VectorOf {
  typedef T type __attribute__((vector_size(W * sizeof(T))));
};

template <typename T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <typename T>
using Vector = typename VectorOf<T, kLanes<T>>::type;

// A plain array to the memory: no alignment is assumed.
template <typename T>
inline Vector<T> load(const T* from) {
  Vector<T> v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}

template <typename T>
inline void store(T* to, Vector<T> v) {
  __builtin_memcpy(to, &v, sizeof(v));
}

// A value that stays rounded: the compiler may fuse a product into the sum it goes into, and then a p - b q
// is not zero where a p and b q are the same number.
template <typename V>
inline V rounded(V v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__x86_64__)
  asm("" : "+x"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#else
  asm("" : "+m"(v));
#endif
  return v;
}

// The sum of all lanes, halves onto halves.
inline float sum(VectorOf<float, 4>::type v) {
  auto two = v + __builtin_shufflevector(v, v, 2, 3, 0, 1);
  return two[0] + two[1];
}
inline double sum(VectorOf<double, 2>::type v) { return v[0] + v[1]; }
#if defined(__AVX2__)
inline float sum(VectorOf<float, 8>::type v) {
  return sum(__builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7));
}
inline double sum(VectorOf<double, 4>::type v) {
  return sum(__builtin_shufflevector(v, v, 0, 1) + __builtin_shufflevector(v, v, 2, 3));
}
#endif
#if defined(__AVX512F__)
inline float sum(VectorOf<float, 16>::type v) {
  return sum(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
             __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
}
inline double sum(VectorOf<double, 8>::type v) {
  return sum(__builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7));
}
#endif

}  // namespace
}  // namespace plufg::PLUFG_ISA
