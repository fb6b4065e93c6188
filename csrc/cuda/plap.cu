// Registers the CUDA kernels of plap.
#include "plap_ops.h"
#include "queue.h"

STABLE_TORCH_LIBRARY_IMPL(plufg, CUDA, m) {
  using Launch = plufg::PlapLaunch<plufg::Queue>;
  m.impl("plap_step", TORCH_BOX(&plufg::plap_step<Launch>));
  m.impl("plap_steps", TORCH_BOX(&plufg::plap_steps<Launch>));
}
