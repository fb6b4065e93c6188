// Registers the CUDA kernels of cheb.
#include "cheb_ops.h"
#include "queue.h"

STABLE_TORCH_LIBRARY_IMPL(plufg, CUDA, m) {
  using Launch = plufg::ChebLaunch<plufg::Queue>;
  m.impl("cheb_step", TORCH_BOX(&plufg::cheb_step<Launch>));
  m.impl("cheb_analysis", TORCH_BOX(&plufg::cheb_analysis<Launch>));
  m.impl("cheb_synthesis", TORCH_BOX(&plufg::cheb_synthesis<Launch>));
}
