#pragma once

#include "../common/cheb.h"
#include "launch.cuh"

namespace plufg::cuda {

// `lanes` threads (a power of two, at most a warp) share a row; each holds K channels, `lanes` apart, so that
// neighbouring threads read neighbouring channels. Edges are summed in order by one thread per channel: no
// atomics, bitwise repeatable.
template <typename T, typename I, int K>
__global__ void cheb_step_kernel(ChebStep<T, I> s, int lanes) {
  const int rows_per_block = static_cast<int>(blockDim.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * rows_per_block;
  const int64_t first =
      static_cast<int64_t>(blockIdx.x) * rows_per_block + static_cast<int>(threadIdx.x) / lanes;
  for (int64_t i = first; i < s.rows; i += stride) {
    const ChebRow<T> row = cheb_row(s, i);
    const int64_t start = s.rowptr[i];
    const int64_t stop = s.rowptr[i + 1];
    for (int64_t c = lane; c < s.channels; c += static_cast<int64_t>(K) * lanes) {
      T sum[K] = {};
      for (int64_t e = start; e < stop; ++e) {
        const int64_t j = s.col[e];
        if (j == i) continue;
        const T a = cheb_edge(s, e, j);
        const T* xj = s.x + j * s.channels;
#pragma unroll
        for (int k = 0; k < K; ++k) {
          const int64_t ck = c + static_cast<int64_t>(k) * lanes;
          if (ck < s.channels) sum[k] += a * xj[ck];
        }
      }
#pragma unroll
      for (int k = 0; k < K; ++k) {
        const int64_t ck = c + static_cast<int64_t>(k) * lanes;
        if (ck >= s.channels) continue;
        const int64_t at = i * s.channels + ck;
        T value = row.self * s.x[at] + row.sum * sum[k];
        if (s.prev) value += s.gamma * s.prev[at];
        s.out[at] = value;
      }
    }
  }
}

template <typename T, typename I, typename Stream>
void cheb_step(const ChebStep<T, I>& s, Stream stream) {
  constexpr int kThreads = 256;
  constexpr int64_t kMaxBlocks = 2147483647;
  int lanes = 1;
  while (lanes < 32 && lanes < s.channels) lanes *= 2;
  const int64_t rows_per_block = kThreads / lanes;
  const int64_t wanted = (s.rows + rows_per_block - 1) / rows_per_block;
  const auto blocks = static_cast<unsigned>(wanted < kMaxBlocks ? wanted : kMaxBlocks);
  if (s.channels <= 32) {
    PLUFG_LAUNCH((cheb_step_kernel<T, I, 1>), blocks, kThreads, stream, s, lanes);
  } else if (s.channels <= 64) {
    PLUFG_LAUNCH((cheb_step_kernel<T, I, 2>), blocks, kThreads, stream, s, lanes);
  } else {
    PLUFG_LAUNCH((cheb_step_kernel<T, I, 4>), blocks, kThreads, stream, s, lanes);
  }
}

}  // namespace plufg::cuda
