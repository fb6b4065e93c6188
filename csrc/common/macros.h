#pragma once

// Functions marked so are shared by the CPU and the CUDA kernels.
#if defined(__CUDACC__)
#define PLUFG_HD __host__ __device__
#else
#define PLUFG_HD
#endif
