// Registers the CPU kernels of cheb.
#include "../ops/cheb.h"
#include "cheb.h"
#include "parallel.h"

namespace plufg {
namespace {

struct CpuLaunch {
  template <typename T, typename I>
  static void run(const ChebStep<T, I>& s, int32_t /*device*/) {
    parallel_rows(s, s.channels,
                  [](const auto& t, int64_t begin, int64_t end) { PLUFG_CHOOSE(cheb_step, t, begin, end) });
  }
};

}  // namespace
}  // namespace plufg

STABLE_TORCH_LIBRARY_IMPL(plufg, CPU, m) {
  m.impl("cheb_step", TORCH_BOX(&plufg::cheb_step<plufg::CpuLaunch>));
}
