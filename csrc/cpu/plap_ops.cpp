// Registers the CPU kernels of plap.
#include <vector>

#include "../ops/plap.h"
#include "parallel.h"
#include "plap.h"
#include "scratch.h"

namespace plufg {
namespace {

// Runs one stage of the kernels over all rows, each thread in memory of its own.
#define PLUFG_STAGE(stage, s, cost)                                                                   \
  parallel_rows(s, (cost) * (s).bands * (s).channels, [](const auto& t, int64_t begin, int64_t end) { \
    std::vector<T> memory(static_cast<size_t>(plap_workspace(t.width)));                              \
    PLUFG_CHOOSE(stage, t, begin, end, memory.data())                                                 \
  })

struct CpuLaunch {
  static int64_t vector_bytes() { return plufg::vector_bytes(chosen_isa()); }

  template <typename T>
  static Scratch scratch(const Tensor& /*like*/, int64_t numbers) {
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

  // The sums over rows of [rows, bands, 2], in an order that does not depend on threads.
  template <typename T>
  static std::vector<double> totals(const T* change, int64_t rows, int64_t bands) {
    std::vector<double> sums(static_cast<size_t>(2 * bands));
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t b = 0; b < 2 * bands; ++b) sums[static_cast<size_t>(b)] += static_cast<double>(*change++);
    }
    return sums;
  }
};

}  // namespace
}  // namespace plufg

STABLE_TORCH_LIBRARY_IMPL(plufg, CPU, m) {
  m.impl("plap_step", TORCH_BOX(&plufg::plap_step<plufg::CpuLaunch>));
  m.impl("plap_step_backward", TORCH_BOX(&plufg::plap_step_backward<plufg::CpuLaunch>));
  m.impl("plap_steps", TORCH_BOX(&plufg::plap_steps<plufg::CpuLaunch>));
}
