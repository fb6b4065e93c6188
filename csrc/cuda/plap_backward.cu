// Registers the CUDA kernels of plap's backward; a file of its own, as it takes as long to compile as the
// rest.
#include "plap_ops.h"
#include "queue.h"

STABLE_TORCH_LIBRARY_IMPL(plufg, CUDA, m) {
  m.impl("plap_step_backward", TORCH_BOX(&plufg::plap_step_backward<plufg::PlapLaunch<plufg::Queue>>));
}
