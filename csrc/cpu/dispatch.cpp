// Registers the CPU kernels: splits the rows over torch's threads and calls the chosen instruction set.
#include "../ops.h"
#include "cheb.h"
#include "isa.h"

namespace plufg {
namespace {

// Work below this many multiply-adds is not worth waking a thread for.
constexpr int64_t kGrain = 32768;

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

template <typename T, typename I>
using ChebKernel = void (*)(const ChebStep<T, I>&, int64_t, int64_t);

template <typename T, typename I>
ChebKernel<T, I> cheb_kernel() {
  switch (chosen_isa()) {
#if defined(__x86_64__)
    case Isa::avx512:
      return &avx512::cheb_step;
    case Isa::avx2:
      return &avx2::cheb_step;
#endif
    default:
      return &baseline::cheb_step;
  }
}

struct CpuLaunch {
  template <typename T, typename I>
  static void run(const ChebStep<T, I>& s, int32_t /*device*/) {
    const ChebKernel<T, I> kernel = cheb_kernel<T, I>();
    const int64_t grain = kGrain / s.channels + 1;
    torch::stable::parallel_for(0, s.edges + s.rows, grain, [&](int64_t begin, int64_t end) {
      kernel(s, first_row_at(s.rowptr, s.rows, begin), first_row_at(s.rowptr, s.rows, end));
    });
  }
};

}  // namespace
}  // namespace plufg

STABLE_TORCH_LIBRARY_IMPL(plufg, CPU, m) {
  m.impl("cheb_step", TORCH_BOX(&plufg::cheb_step<plufg::CpuLaunch>));
}
