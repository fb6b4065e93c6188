#pragma once

// Every kernel starts through one of these macros, so that the emulation of a GPU in tests/simt can take its
// place. The kernel is put in parentheses by the caller where its template arguments contain commas.
#if !defined(PLUFG_LAUNCH)
#define PLUFG_LAUNCH(kernel, blocks, threads, stream, ...) \
  PLUFG_LAUNCH_SHARED(kernel, blocks, threads, 0, stream, __VA_ARGS__)
// The same with shared memory of a size known only now, and the name by which a kernel gets at it.
#define PLUFG_LAUNCH_SHARED(kernel, blocks, threads, bytes, stream, ...) \
  kernel<<<(blocks), (threads), (bytes), (stream)>>>(__VA_ARGS__)
#define PLUFG_DYNAMIC_SHARED(type, name)                                \
  extern __shared__ __align__(16) unsigned char plufg_dynamic_shared[]; \
  type* const name = reinterpret_cast<type*>(plufg_dynamic_shared)
#endif
