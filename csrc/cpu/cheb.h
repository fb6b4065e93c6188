#pragma once

#include "../common/cheb.h"

// Rows [begin, end) of one step of type S; one set of overloads per instruction set, all of them from
// cheb.cpp.
#define PLUFG_DECLARE_CHEB_OF(S, function)                              \
  void function(const S<float, int32_t>&, int64_t begin, int64_t end);  \
  void function(const S<float, int64_t>&, int64_t begin, int64_t end);  \
  void function(const S<double, int32_t>&, int64_t begin, int64_t end); \
  void function(const S<double, int64_t>&, int64_t begin, int64_t end);
#define PLUFG_DECLARE_CHEB(isa)                        \
  namespace plufg::isa {                               \
  PLUFG_DECLARE_CHEB_OF(ChebStep, cheb_step)           \
  PLUFG_DECLARE_CHEB_OF(ChebAnalysis, cheb_analysis)   \
  PLUFG_DECLARE_CHEB_OF(ChebSynthesis, cheb_synthesis) \
  }

PLUFG_DECLARE_CHEB(baseline)
#if defined(__x86_64__)
PLUFG_DECLARE_CHEB(avx2)
PLUFG_DECLARE_CHEB(avx512)
#endif
