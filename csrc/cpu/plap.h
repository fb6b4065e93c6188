#pragma once

#include "../common/plap.h"

// Rows [begin, end) of a step, of the scalars of its derivative, and of the derivative; one set per
// instruction set, all of them from plap.cpp.
#define PLUFG_DECLARE_PLAP_OF(T, I)                                            \
  void plap_step(const PlapStep<T, I>&, int64_t begin, int64_t end);           \
  void plap_backward_scalars(const PlapBackward<T, I>&, int64_t, int64_t end); \
  void plap_backward(const PlapBackward<T, I>&, int64_t begin, int64_t end);
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
