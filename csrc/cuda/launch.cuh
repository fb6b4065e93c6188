#pragma once

// Every kernel starts through this one macro, so that a host-side emulation of the GPU can take its place.
// The kernel is put in parentheses by the caller where its template arguments contain commas.
#if !defined(PLUFG_LAUNCH)
#define PLUFG_LAUNCH(kernel, blocks, threads, stream, ...) \
  kernel<<<(blocks), (threads), 0, (stream)>>>(__VA_ARGS__)
#endif
