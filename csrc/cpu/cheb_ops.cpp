// Registers the CPU kernels of cheb.
#include "../ops/cheb.h"
#include "cheb.h"
#include "parallel.h"

namespace plufg {
namespace {

struct CpuLaunch {
  explicit CpuLaunch(const Tensor&) {}

  template <typename T, typename I>
  void run(const ChebStep<T, I>& s) const {
    parallel_rows(s, s.channels,
                  [](const auto& t, int64_t begin, int64_t end) { PLUFG_CHOOSE(cheb_step, t, begin, end) });
  }

  template <typename T, typename I>
  void run(const ChebAnalysis<T, I>& s) const {
    parallel_rows(s.step, s.step.channels, [&](const auto&, int64_t begin, int64_t end) {
      PLUFG_CHOOSE(cheb_analysis, s, begin, end)
    });
  }

  template <typename T, typename I>
  void run(const ChebSynthesis<T, I>& s) const {
    parallel_rows(s.step, s.step.channels, [&](const auto&, int64_t begin, int64_t end) {
      PLUFG_CHOOSE(cheb_synthesis, s, begin, end)
    });
  }

  template <typename T, typename I>
  void send(const ChebStep<T, I>& s, T* to) const {
    torch::stable::parallel_for(0, s.edges, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) to[e] = cheb_edge(s, e, static_cast<int64_t>(s.col[e]));
    });
  }
};

}  // namespace
}  // namespace plufg

STABLE_TORCH_LIBRARY_IMPL(plufg, CPU, m) {
  m.impl("cheb_step", TORCH_BOX(&plufg::cheb_step<plufg::CpuLaunch>));
  m.impl("cheb_analysis", TORCH_BOX(&plufg::cheb_analysis<plufg::CpuLaunch>));
  m.impl("cheb_synthesis", TORCH_BOX(&plufg::cheb_synthesis<plufg::CpuLaunch>));
}
