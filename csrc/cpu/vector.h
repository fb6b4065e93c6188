#pragma once

// Vectors of one instruction set. Included only by files that are compiled once per instruction set, inside
// the namespace of theirs: with external linkage the linker would keep one copy for all.
#if !defined(PLUFG_ISA)
#error "PLUFG_ISA must name the instruction set this file is compiled for"
#endif

#include <cstddef>
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

// A vector anywhere in memory. Not a copy of bytes, which to the compiler could change any pointer it holds.
template <typename T>
struct UnalignedOf {
  typedef T type __attribute__((vector_size(kVectorBytes), aligned(sizeof(T))));
};

template <typename T>
inline Vector<T> load(const T* from) {
  return *reinterpret_cast<const typename UnalignedOf<T>::type*>(from);
}

// The first `count` lanes, zeros behind.
template <typename T>
inline Vector<T> load(const T* from, int64_t count) {
  if (count >= kLanes<T>) return load(from);
  Vector<T> v = {};
  if (count > 0) __builtin_memcpy(&v, from, static_cast<size_t>(count) * sizeof(T));
  return v;
}

template <typename T>
inline void store(T* to, Vector<T> v) {
  *reinterpret_cast<typename UnalignedOf<T>::type*>(to) = v;
}

template <typename T>
inline void store(T* to, Vector<T> v, int64_t count) {
  if (count >= kLanes<T>) return store(to, v);
  if (count > 0) __builtin_memcpy(to, &v, static_cast<size_t>(count) * sizeof(T));
}

#if defined(__clang__) || __GNUC__ >= 12
#define PLUFG_SHUFFLE __builtin_shufflevector
#else  // GCC 11 takes the lanes as a vector of integers, which is what a comparison gives.
#define PLUFG_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, decltype(a < b){__VA_ARGS__})
#endif

// fold(a, b) adds neighbouring lanes of a and of b, within blocks of 16 bytes; merge(a, b) adds neighbouring
// blocks. Folded and merged until one vector is left, kLanes vectors become the vector of their sums. Every
// sum is formed in the same order, whichever vector it comes from.
inline auto fold(VectorOf<float, 4>::type a, VectorOf<float, 4>::type b) {
  return PLUFG_SHUFFLE(a, b, 0, 2, 4, 6) + PLUFG_SHUFFLE(a, b, 1, 3, 5, 7);
}
inline auto fold(VectorOf<double, 2>::type a, VectorOf<double, 2>::type b) {
  return PLUFG_SHUFFLE(a, b, 0, 2) + PLUFG_SHUFFLE(a, b, 1, 3);
}
#if defined(__AVX2__)
inline auto fold(VectorOf<float, 8>::type a, VectorOf<float, 8>::type b) {
  return PLUFG_SHUFFLE(a, b, 0, 2, 8, 10, 4, 6, 12, 14) + PLUFG_SHUFFLE(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
}
inline auto fold(VectorOf<double, 4>::type a, VectorOf<double, 4>::type b) {
  return PLUFG_SHUFFLE(a, b, 0, 4, 2, 6) + PLUFG_SHUFFLE(a, b, 1, 5, 3, 7);
}
inline auto merge(VectorOf<float, 8>::type a, VectorOf<float, 8>::type b) {
  return PLUFG_SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + PLUFG_SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
}
inline auto merge(VectorOf<double, 4>::type a, VectorOf<double, 4>::type b) {
  return PLUFG_SHUFFLE(a, b, 0, 1, 4, 5) + PLUFG_SHUFFLE(a, b, 2, 3, 6, 7);
}
#endif
#if defined(__AVX512F__)
inline auto fold(VectorOf<float, 16>::type a, VectorOf<float, 16>::type b) {
  return PLUFG_SHUFFLE(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +
         PLUFG_SHUFFLE(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
}
inline auto fold(VectorOf<double, 8>::type a, VectorOf<double, 8>::type b) {
  return PLUFG_SHUFFLE(a, b, 0, 8, 2, 10, 4, 12, 6, 14) + PLUFG_SHUFFLE(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
}
inline auto merge(VectorOf<float, 16>::type a, VectorOf<float, 16>::type b) {
  return PLUFG_SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
         PLUFG_SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}
inline auto merge(VectorOf<double, 8>::type a, VectorOf<double, 8>::type b) {
  return PLUFG_SHUFFLE(a, b, 0, 1, 4, 5, 8, 9, 12, 13) + PLUFG_SHUFFLE(a, b, 2, 3, 6, 7, 10, 11, 14, 15);
}
#endif
#undef PLUFG_SHUFFLE

// The sums of N vectors that lie behind each other, N = kLanes at the outermost.
template <typename T, int N = kLanes<T>>
inline Vector<T> sums(const T* vectors) {
  if constexpr (N == 1) {
    return load(vectors);
  } else {
    const Vector<T> low = sums<T, N / 2>(vectors);
    const Vector<T> high = sums<T, N / 2>(vectors + N / 2 * kLanes<T>);
    if constexpr (N <= 16 / static_cast<int>(sizeof(T))) {
      return fold(low, high);
    } else {
      return merge(low, high);
    }
  }
}

// The sum of all lanes.
template <typename T>
inline T sum(Vector<T> v) {
  T total = v[0];
  for (int k = 1; k < kLanes<T>; ++k) total += v[k];
  return total;
}

}  // namespace
}  // namespace plufg::PLUFG_ISA
