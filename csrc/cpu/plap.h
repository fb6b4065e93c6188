#pragma once

#include "../common/plap.h"

namespace plufg {

// A thread works out the norms of at most this many edges at a time, in memory of so many numbers.
inline constexpr int64_t kPieceEdges = 64;
constexpr int64_t plap_workspace(int64_t width) {
  constexpr int64_t kMostLanes = 16;
  return kPieceEdges * (3 * kMostLanes + 7) + 2 * width;
}

}  // namespace plufg

// Rows [begin, end) of each stage, in the memory of one thread; one set per instruction set, all of them from
// plap_step.cpp and plap_backward.cpp.
#define PLUFG_DECLARE_PLAP_OF(T, I)                                                           \
  void plap_scale(const PlapScale<T, I>&, int64_t begin, int64_t end, T* memory);             \
  void plap_norms(const PlapStep<T, I>&, int64_t begin, int64_t end, T* memory);              \
  void plap_step(const PlapStep<T, I>&, int64_t begin, int64_t end, T* memory);               \
  void plap_backward_scale(const PlapBackward<T, I>&, int64_t begin, int64_t end, T* memory); \
  void plap_backward_nodes(const PlapBackward<T, I>&, int64_t begin, int64_t end, T* memory); \
  void plap_backward(const PlapBackward<T, I>&, int64_t begin, int64_t end, T* memory);
#define PLUFG_DECLARE_PLAP(isa)          \
  namespace plufg::isa {                 \
  PLUFG_DECLARE_PLAP_OF(float, int32_t)  \
  PLUFG_DECLARE_PLAP_OF(float, int64_t)  \
  PLUFG_DECLARE_PLAP_OF(double, int32_t) \
  PLUFG_DECLARE_PLAP_OF(double, int64_t) \
  }

PLUFG_DECLARE_PLAP(baseline)
#if defined(__x86_64__)
PLUFG_DECLARE_PLAP(avx2)
PLUFG_DECLARE_PLAP(avx512)
#endif
