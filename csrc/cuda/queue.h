#pragma once

#include <cuda_runtime.h>
#include <torch/csrc/stable/accelerator.h>

#include "../ops/arguments.h"
#include "rows.cuh"

namespace plufg {

// The current stream of a tensor's device, which is the current one as long as this lives. Kernels that are
// put there run some time later, one after the other; nothing waits for them.
class Queue {
 public:
  explicit Queue(const Tensor& on)
      : guard_(on.get_device_index()),
        stream_(static_cast<cudaStream_t>(
            torch::stable::accelerator::getCurrentStream(on.get_device_index()).nativeHandle())) {}

  cudaStream_t stream() const { return stream_; }
  static int64_t chunk_edges() { return cuda::kChunkEdges; }

  static void check(const char* what) {
    const cudaError_t error = cudaGetLastError();
    STD_TORCH_CHECK(error == cudaSuccess, what, ": a CUDA kernel did not start: ", cudaGetErrorString(error));
  }

 private:
  torch::stable::accelerator::DeviceGuard guard_;
  cudaStream_t stream_;
};

}  // namespace plufg
