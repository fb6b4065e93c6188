"""Runs a planted kernel; a program of its own as well, as sanitizers have to be there from the start of one."""

import ctypes
import sys


def run(library: str, name: str, seed: int = 0, blocks: int = 1, threads: int = 64) -> list[float] | str:
    """The kernel's 64 numbers made of 0, 1, ..., 63, or what the emulation has to say."""
    planted_run = ctypes.CDLL(library).planted_run
    planted_run.restype = ctypes.c_char_p
    x, out = (ctypes.c_float * 64)(*range(64)), (ctypes.c_float * 64)()
    refusal = planted_run(name.encode(), ctypes.c_uint64(seed), blocks, threads, x, out)
    return refusal.decode() if refusal else list(out)


if __name__ == "__main__":
    print(run(*sys.argv[1:]))
