#pragma once

#include "../../csrc/cuda/launch.cuh"

// Kernels without fault, one for each thing that the emulation promises.
namespace sound {

constexpr unsigned kAll = 0xffffffff;

// Sums of blocks of 128 threads: shuffles within warps, shared memory between them.
template <typename T>
__global__ void __launch_bounds__(128) block_sum(const T* __restrict__ x, T* __restrict__ out, int n) {
  __shared__ T partial[4];
  const int thread = static_cast<int>(threadIdx.x);
  T sum = 0;
  for (int i = static_cast<int>(blockIdx.x) * 128 + thread; i < n; i += 128 * static_cast<int>(gridDim.x)) {
    sum += __ldg(x + i);
  }
  for (int step = 16; step; step /= 2) sum += __shfl_down_sync(kAll, sum, step);
  if (thread % 32 == 0) partial[thread / 32] = sum;
  __syncthreads();
  if (thread == 0) out[blockIdx.x] = partial[0] + partial[1] + (partial[2] + partial[3]);
}

__global__ void warp_scan(const int* x, int* out) {
  const unsigned thread = threadIdx.x;
  int sum = x[thread];
  for (unsigned step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(kAll, sum, step);
    if (thread % 32 >= step) sum += before;
  }
  out[thread] = sum;
}

// One shuffle of every kind: out[kind][thread].
template <typename T>
__global__ void shuffles(const T* x, T* out, int by, int width) {
  const unsigned thread = threadIdx.x, count = blockDim.x;
  out[thread] = __shfl_sync(kAll, x[thread], by, width);
  out[count + thread] = __shfl_up_sync(kAll, x[thread], by, width);
  out[2 * count + thread] = __shfl_down_sync(kAll, x[thread], by, width);
  out[3 * count + thread] = __shfl_xor_sync(kAll, x[thread], by, width);
}

// Parts of a warp go their own ways, each with as many shuffles as it likes, and meet again.
__global__ void parts(const float* x, float* out) {
  const unsigned lane = threadIdx.x % 32;
  float sum = x[threadIdx.x];
  if (lane < 8) {
    for (int step = 4; step; step /= 2) sum += __shfl_xor_sync(0x000000ffu, sum, step);
  } else if (lane < 24) {
    for (int step = 8; step; step /= 2) sum += __shfl_xor_sync(0x00ffff00u, sum, step ^ (step == 8 ? 16 : 0));
  } else {
    __syncwarp(0xff000000u);
  }
  out[threadIdx.x] = sum + __shfl_sync(kAll, sum, 31);
}

__global__ void reverse(const float* x, float* out, int rounds) {
  PLUFG_DYNAMIC_SHARED(float, tile);
  const unsigned last = blockDim.x - 1;
  float value = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (int round = 0; round < rounds; ++round) {
    tile[threadIdx.x] = value;
    __syncthreads();
    value = tile[last - threadIdx.x];
    __syncthreads();
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

__global__ void votes(const int* x, int* out) {
  const int vote = x[threadIdx.x];
  int* const own = out + 6 * threadIdx.x;
  own[0] = static_cast<int>(__ballot_sync(kAll, vote));
  own[1] = __any_sync(kAll, vote);
  own[2] = __all_sync(kAll, vote);
  own[3] = __syncthreads_count(vote);
  own[4] = __syncthreads_or(vote);
  own[5] = __syncthreads_and(vote);
}

// Whatever lanes come together sum up together.
__global__ void active_sum(const int* x, int* out, int* masks) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const unsigned mask = __activemask();
  int sum = 0;
  for (int from = 0; from < 32; ++from) {
    if (mask >> from & 1) sum += __shfl_sync(mask, x[threadIdx.x], from);
  }
  if (lane == __ffs(static_cast<int>(mask)) - 1) atomicAdd(out, sum);
  masks[threadIdx.x] = static_cast<int>(mask);
}

template <typename T>
__global__ void tickets(T* counter, int* out) {
  const T ticket = atomicAdd(counter, 1);
  atomicAdd(out + ticket, 1);
}

// Where each thread believes to be.
__global__ void places(int* out) {
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * threads + thread] += static_cast<int>(thread + 1);
}

// What shared memory holds before anybody wrote: static and dynamic, two numbers each.
template <typename T>
__global__ void unwritten(T* out) {
  __shared__ T fixed[2];
  PLUFG_DYNAMIC_SHARED(T, dynamic);
  if (threadIdx.x < 2) {
    out[blockIdx.x * 4 + threadIdx.x] = fixed[threadIdx.x];
    out[blockIdx.x * 4 + 2 + threadIdx.x] = dynamic[threadIdx.x];
  }
  __syncthreads();
  fixed[threadIdx.x % 2] = 1;
  dynamic[threadIdx.x % 2] = 1;
}

}  // namespace sound
