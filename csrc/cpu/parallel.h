#pragma once

// Splits rows over torch's threads and calls the chosen instruction set.
#include <torch/csrc/stable/ops.h>

#include <cstdint>

#include "isa.h"

namespace plufg {

// Work below this many multiply-adds is not worth waking a thread for.
inline constexpr int64_t kGrain = 32768;

// A row costs its edges and one more for itself, so the work before row i is rowptr[i] + i. Threads get equal
// shares of work, not of rows; a row belongs to the share its first unit lies in and is never divided.
template <typename I>
int64_t first_row_at(const I* rowptr, int64_t rows, int64_t work) {
  int64_t low = 0;
  int64_t high = rows;
  while (low < high) {
    const int64_t mid = low + (high - low) / 2;
    if (static_cast<int64_t>(rowptr[mid]) + mid < work) {
      low = mid + 1;
    } else {
      high = mid;
    }
  }
  return low;
}

// Picks `function` of the chosen instruction set.
#if defined(__x86_64__)
#define PLUFG_CHOOSE(function, ...)           \
  switch (chosen_isa()) {                     \
    case Isa::avx512:                         \
      return avx512::function(__VA_ARGS__);   \
    case Isa::avx2:                           \
      return avx2::function(__VA_ARGS__);     \
    default:                                  \
      return baseline::function(__VA_ARGS__); \
  }
#else
#define PLUFG_CHOOSE(function, ...) return baseline::function(__VA_ARGS__);
#endif

// All rows, over torch's threads; `width` multiply-adds are done for an edge.
template <typename S, typename Kernel>
void parallel_rows(const S& s, int64_t width, Kernel kernel) {
  chosen_isa();  // an impossible PLUFG_CPU_ISA throws here, not inside a thread
  torch::stable::parallel_for(0, s.edges + s.rows, kGrain / (width + 1) + 1, [&](int64_t begin, int64_t end) {
    kernel(s, first_row_at(s.rowptr, s.rows, begin), first_row_at(s.rowptr, s.rows, end));
  });
}

}  // namespace plufg
