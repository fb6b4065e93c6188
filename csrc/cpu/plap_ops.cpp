// Registers the CPU kernels of plap.
#include "../ops/plap.h"
#include "parallel.h"
#include "plap.h"

namespace plufg {
namespace {

struct CpuLaunch {
  template <typename T, typename I>
  static void run(const PlapStep<T, I>& s) {
    parallel_rows(s, 2 * s.bands * s.channels,
                  [](const auto& t, int64_t begin, int64_t end) { PLUFG_CHOOSE(plap_step, t, begin, end) });
  }

  template <typename T, typename I>
  static void run(const PlapBackward<T, I>& s) {
    parallel_rows(s, s.bands * s.channels, [](const auto& t, int64_t begin, int64_t end) {
      PLUFG_CHOOSE(plap_backward_scalars, t, begin, end)
    });
    parallel_rows(s, 5 * s.bands * s.channels, [](const auto& t, int64_t begin, int64_t end) {
      PLUFG_CHOOSE(plap_backward, t, begin, end)
    });
  }
};

}  // namespace
}  // namespace plufg

STABLE_TORCH_LIBRARY_IMPL(plufg, CPU, m) {
  m.impl("plap_step", TORCH_BOX(&plufg::plap_step<plufg::CpuLaunch>));
  m.impl("plap_step_backward", TORCH_BOX(&plufg::plap_step_backward<plufg::CpuLaunch>));
}
