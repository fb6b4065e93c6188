#pragma once

#include "../common/cheb.h"

// Rows [begin, end) of one step; one set of overloads per instruction set, all of them from cheb.cpp.
#define PLUFG_DECLARE_CHEB(isa)                                                 \
  namespace plufg::isa {                                                        \
  void cheb_step(const ChebStep<float, int32_t>&, int64_t begin, int64_t end);  \
  void cheb_step(const ChebStep<float, int64_t>&, int64_t begin, int64_t end);  \
  void cheb_step(const ChebStep<double, int32_t>&, int64_t begin, int64_t end); \
  void cheb_step(const ChebStep<double, int64_t>&, int64_t begin, int64_t end); \
  }

PLUFG_DECLARE_CHEB(baseline)
#if defined(__x86_64__)
PLUFG_DECLARE_CHEB(avx2)
PLUFG_DECLARE_CHEB(avx512)
#endif
