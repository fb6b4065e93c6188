// Registers the CPU kernels of plap.
#include <cmath>
#include <vector>

#include "../ops/plap.h"
#include "parallel.h"
#include "plap.h"
#include "scratch.h"

namespace plufg {
namespace {

// Runs one stage of the kernels over all rows, each thread in memory of its own.
#define PLUFG_STAGE(stage, s, cost)                                                       \
  parallel_rows(s, (cost) * (s).channels, [](const auto& t, int64_t begin, int64_t end) { \
    std::vector<T> memory(static_cast<size_t>(plap_workspace(t.width)));                  \
    PLUFG_CHOOSE(stage, t, begin, end, memory.data())                                     \
  })

struct CpuLaunch {
  static constexpr bool kWaits = true;
  static constexpr bool kFloat16 = false;
  // Gathered rows of one band stay in the cache where those of all would not.
  static constexpr bool kBandsApart = true;

  explicit CpuLaunch(const Tensor&) {}

  static int64_t vector_bytes() { return plufg::vector_bytes(chosen_isa()); }

  template <typename T>
  static Scratch scratch(int64_t numbers) {
    return Scratch(static_cast<size_t>(numbers) * sizeof(T));
  }

  template <typename T, typename I>
  static void scale(const PlapScale<T, I>& s) {
    PLUFG_STAGE(plap_scale, s, 1);
  }

  template <typename T, typename I>
  static void step(const PlapStep<T, I>& s) {
    if (s.norm) PLUFG_STAGE(plap_norms, s, 1);
    PLUFG_STAGE(plap_step, s, 2);
  }

  template <typename T, typename I>
  static void backward(const PlapBackward<T, I>& s) {
    PLUFG_STAGE(plap_backward_scale, s, 1);
    if (s.norm) PLUFG_STAGE(plap_backward_nodes, s, 3);
    PLUFG_STAGE(plap_backward, s, 5);
  }

  // Every band by itself: one that is not a number has not settled, nor has one that leaves zero. The sums
  // over rows are in an order that does not depend on threads.
  template <typename T, typename I>
  static bool settled(const PlapStep<T, I>& s, double tol, const Tensor& /*taken*/) {
    std::vector<double> sums(static_cast<size_t>(2 * s.bands));
    const T* change = s.change;
    for (int64_t i = 0; i < s.rows; ++i) {
      for (double& sum : sums) sum += static_cast<double>(*change++);
    }
    for (size_t b = 0; b < sums.size(); b += 2) {
      if (!(sums[b] == 0.0 || std::sqrt(sums[b] / sums[b + 1]) < tol)) return false;
    }
    return true;
  }
};

}  // namespace
}  // namespace plufg

STABLE_TORCH_LIBRARY_IMPL(plufg, CPU, m) {
  m.impl("plap_step", TORCH_BOX(&plufg::plap_step<plufg::CpuLaunch>));
  m.impl("plap_step_backward", TORCH_BOX(&plufg::plap_step_backward<plufg::CpuLaunch>));
  m.impl("plap_steps", TORCH_BOX(&plufg::plap_steps<plufg::CpuLaunch>));
}
