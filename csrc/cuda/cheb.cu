#include "cheb.cuh"

#include <cuda_runtime.h>
#include <torch/csrc/stable/accelerator.h>

#include "../ops/cheb.h"

namespace plufg {
namespace {

struct CudaLaunch {
  template <typename T, typename I>
  static void run(const ChebStep<T, I>& s, int32_t device) {
    const torch::stable::accelerator::DeviceGuard guard(device);
    const auto stream = torch::stable::accelerator::getCurrentStream(device);
    cuda::cheb_step(s, static_cast<cudaStream_t>(stream.nativeHandle()));
    const cudaError_t error = cudaGetLastError();
    STD_TORCH_CHECK(error == cudaSuccess,
                    "plufg::cheb_step: the CUDA kernel did not start: ", cudaGetErrorString(error));
  }
};

}  // namespace
}  // namespace plufg

STABLE_TORCH_LIBRARY_IMPL(plufg, CUDA, m) {
  m.impl("cheb_step", TORCH_BOX(&plufg::cheb_step<plufg::CudaLaunch>));
}
