#pragma once

#include "../../csrc/cuda/launch.cuh"

// Kernels with one fault each, which the emulation has to find. All take 64 threads and reverse 64 numbers,
// or sum the 32 of a warp, as far as their fault lets them.
namespace planted {

constexpr unsigned kAll = 0xffffffff;

__global__ void missing_barrier(const float* x, float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  out[threadIdx.x] = tile[63 - threadIdx.x];
}

__global__ void missing_barrier_in_dynamic_memory(const float* x, float* out) {
  PLUFG_DYNAMIC_SHARED(float, tile);
  tile[threadIdx.x] = x[threadIdx.x];
  out[threadIdx.x] = tile[63 - threadIdx.x];
}

// The tile is filled again while others may still read it.
__global__ void missing_second_barrier(const float* x, float* out) {
  __shared__ float tile[64];
  float sum = 0;
  for (int round = 0; round < 4; ++round) {
    tile[threadIdx.x] = x[threadIdx.x] + round;
    __syncthreads();
    sum += tile[63 - threadIdx.x];
  }
  out[threadIdx.x] = sum;
}

// Lanes of a warp do not run in step.
__global__ void missing_warp_barrier(const float* x, float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  out[threadIdx.x] = tile[threadIdx.x ^ 31];
}

__global__ void divergent_barrier(const float* x, float* out) {
  if (threadIdx.x < 40) __syncthreads();
  out[threadIdx.x] = x[threadIdx.x];
}

__global__ void barrier_after_return(const float* x, float* out) {
  if (threadIdx.x == 63) return;
  __syncthreads();
  out[threadIdx.x] = x[threadIdx.x];
}

__global__ void two_barriers_for_one(const float* x, float* out) {
  if (threadIdx.x % 2) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = x[threadIdx.x];
}

__global__ void divergent_shuffle(const float* x, float* out) {
  float sum = x[threadIdx.x];
  if (threadIdx.x % 32 < 20) sum += __shfl_xor_sync(kAll, sum, 16);
  out[threadIdx.x] = sum;
}

__global__ void shuffle_after_return(const float* x, float* out) {
  if (threadIdx.x == 5) return;
  out[threadIdx.x] = __shfl_down_sync(kAll, x[threadIdx.x], 1);
}

__global__ void shuffle_against_barrier(const float* x, float* out) {
  float value = x[threadIdx.x];
  if (threadIdx.x < 32) {
    __syncwarp();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = value;
  if (threadIdx.x < 31) __syncthreads();
}

__global__ void masks_that_differ(const float* x, float* out) {
  const unsigned mask = threadIdx.x % 32 < 16 ? kAll : 0xffff0000u;
  out[threadIdx.x] = __shfl_xor_sync(mask, x[threadIdx.x], 1);
}

__global__ void caller_outside_its_mask(const float* x, float* out) {
  out[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, x[threadIdx.x], 1);
}

__global__ void lane_outside_the_mask(const float* x, float* out) {
  float value = x[threadIdx.x];
  if (threadIdx.x % 32 < 16) value = __shfl_sync(0x0000ffffu, value, 16);
  out[threadIdx.x] = value;
}

__global__ void width_of_twelve(const float* x, float* out) {
  out[threadIdx.x] = __shfl_xor_sync(kAll, x[threadIdx.x], 1, 12);
}

// Right only if all lanes of a warp happen to come together.
__global__ void active_lanes_taken_for_all(const float* x, float* out) {
  const unsigned mask = __activemask();
  out[threadIdx.x] = __shfl_sync(mask, x[threadIdx.x], 0);
}

__global__ void reads_one_too_many(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x + 1]; }

__global__ void reads_one_too_many_of_shared(const float* x, float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  const float* from = tile;
  out[threadIdx.x] = from[threadIdx.x + 1];
}

template <typename T>
__global__ void reads_one_too_many_of_a_template(const T* x, T* out) {
  __shared__ T tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  const T* from = tile;
  out[threadIdx.x] = from[threadIdx.x + 1];
}

__global__ void reads_one_too_many_of_dynamic(const float* x, float* out) {
  PLUFG_DYNAMIC_SHARED(float, tile);
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x + 1];
}

__global__ void load_of_four_that_is_not_aligned(const float* x, float* out) {
  if (threadIdx.x < 15) out[threadIdx.x] = reinterpret_cast<const float4*>(x + 1)[threadIdx.x].x;
}

}  // namespace planted
