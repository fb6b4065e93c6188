// The kernels of csrc/cuda, emulated, behind the very operators they serve on a GPU: torch.ops.plufg_simt is
// torch.ops.plufg for tensors on the CPU that it takes for those of a device.

#define PLUFG_LIBRARY plufg_simt

#include "bind.h"

#include "../../csrc/cuda/cheb_ops.h"
#include "../../csrc/cuda/plap_ops.h"

namespace {

// As on a GPU, but for tests, which have small graphs.
int64_t chunk_edges = plufg::cuda::kChunkEdges;

struct Queue {
  explicit Queue(const plufg::Tensor&) {}
  static std::nullptr_t stream() { return nullptr; }
  static int64_t chunk_edges() { return ::chunk_edges; }
  static void check(const char*) {}
};

using Cheb = plufg::ChebLaunch<Queue>;
using Plap = plufg::PlapLaunch<Queue>;

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(plufg_simt, CPU, m) {
  m.impl("cheb_step", TORCH_BOX(&plufg::cheb_step<Cheb>));
  m.impl("cheb_analysis", TORCH_BOX(&plufg::cheb_analysis<Cheb>));
  m.impl("cheb_synthesis", TORCH_BOX(&plufg::cheb_synthesis<Cheb>));
  m.impl("plap_step", TORCH_BOX(&plufg::plap_step<Plap>));
  m.impl("plap_steps", TORCH_BOX(&plufg::plap_steps<Plap>));
  m.impl("plap_step_backward", TORCH_BOX(&plufg::plap_step_backward<Plap>));
}

PYBIND11_MODULE(kernels, m) {
  simt::bind(m);
  m.def("set_chunk_edges", [](int64_t edges) { chunk_edges = edges; });
}

#include "../../csrc/cpu/scratch.cpp"
#include "../../csrc/ops/allocate.cpp"
#include "../../csrc/ops/arguments.cpp"
#include "../../csrc/ops/cheb.cpp"
#include "../../csrc/ops/plap.cpp"
