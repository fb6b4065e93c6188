"""How the Triton kernels walk the rows of a CSR, and how they are launched.

A program takes one row, a block of its edges at a time. A row of more than `LIMIT` edges would keep one program
busy while the others are done, so the edges are cut into windows ``[k LIMIT, (k + 1) LIMIT)``: what a long row has
in windows that it does not begin in is summed first, by a program for each, and the row's own program adds these
sums in order. A window serves one row at most, hence no counting, no atomics, and the same bits on every run.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from typing import Any, Final, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

INTERPRETED: Final[bool] = triton.knobs.runtime.interpret
# Channels of a tile; wider signals take several.
TILE: Final = 128
# Small in the interpreter, so that small graphs have long rows.
LIMIT: Final = 8 if INTERPRETED else 1024


class Rows(NamedTuple):
    """A CSR as a kernel reads it."""

    rowptr: Tensor  # [N + 1]
    col: Tensor  # [E]
    weight: Tensor | None  # [E], None: ones
    owner: Tensor  # [windows] of every window but the first, the row that its first edge belongs to

    @classmethod
    def of(cls, rowptr: Tensor, col: Tensor, weight: Tensor | None) -> "Rows":
        """The rows of a CSR, cut into windows; reads no value, so nothing waits for the device."""
        edges = torch.arange(LIMIT, max(col.numel(), LIMIT), LIMIT, dtype=rowptr.dtype, device=col.device)
        return cls(rowptr, col, weight, torch.searchsorted(rowptr, edges, right=True) - 1)

    def launch(
        self, kernel: Any, grid: tuple[int, ...], partial: list[Tensor], *arguments: Any, **options: Any
    ) -> None:
        """Run a kernel for all windows, which fills `partial`, and then for all rows, which reads it."""
        graph = (self.rowptr, self.col, self.weight, self.owner, *partial)
        rows = self.rowptr.numel() - 1
        options |= configuration(options["BLOCK_C"], self.col.numel() // rows, partial[0].element_size())
        with torch.cuda.device_of(self.rowptr):
            if self.owner.numel():
                kernel[(self.owner.numel(), *grid)](*graph, *arguments, WINDOW=True, **options)
            kernel[(rows, *grid)](*graph, *arguments, WINDOW=False, **options)


def tile_of(channels: int) -> int:
    """The channels that a program takes at a time."""
    return min(int(triton.next_power_of_2(channels)), TILE)


def configuration(width: int, degree: int, size: int) -> dict[str, int | bool]:
    """How a kernel is compiled and launched, for tiles of `width` numbers of `size` bytes and rows of a mean degree.

    A rule and not a measurement: sums are formed in an order that depends on blocks and warps, and a choice that
    timing makes would change bits from one process to the next. A block has no more edges than most rows and, if two
    fit, than one warp holds with 16 bytes a thread, which is one load: sums over channels stay within a warp.

    Products are not fused into sums. ``d_j f_j - h_i`` fused would leave the rounding of ``h_i`` where the two are
    equal, and the norm of a self-loop has to be 0.
    """
    fixed = {"LIMIT": LIMIT, "enable_fp_fusion": False}
    if INTERPRETED:
        return {"BLOCK_E": 4, "num_warps": 1, **fixed}
    edges = min(triton.next_power_of_2(degree + 1) // 2 if degree > 4 else 4, 16)
    while edges > 2 and edges * width * size > 16 * 32:
        edges //= 2
    warps = min(max(edges * width * size // (16 * 32), 1), 4)
    return {"BLOCK_E": edges, "num_warps": warps, **fixed}


def row_kernel(function: Any) -> Any:
    """A kernel that `Rows.launch` launches."""
    return triton.jit(function, do_not_specialize=["k"])


@triton.jit
def span(rowptr, owner, LIMIT: tl.constexpr, WINDOW: tl.constexpr):
    """The row of this program, its first edge and the one behind its last, and the windows of other programs that
    belong to the row, likewise. In a program of a window these are none, but say which one it is.
    """
    at = tl.program_id(0).to(tl.int64)
    row = tl.load(owner + at) if WINDOW else at
    first = tl.load(rowptr + row).to(tl.int64)
    last = tl.load(rowptr + row + 1).to(tl.int64)
    long = last - first > LIMIT
    if WINDOW:
        # Short rows take all their edges themselves, long ones those of the window that they begin in.
        start = (at + 1) * LIMIT
        stop = tl.where(long & (first < start), tl.minimum(start + LIMIT, last), start)
        begin = at
        end = at
    else:
        start = first
        begin = first // LIMIT
        end = tl.where(long, (last - 1) // LIMIT, begin)
        stop = tl.where(long, (begin + 1) * LIMIT, last)
    return row, start, stop, begin, end


@triton.jit
def add_windows(sum, partial, at, mask, begin, end, stride):
    """`sum` and those of windows, in order; `at` are offsets within ``partial[k]``."""
    for k in range(begin, end):
        sum += tl.load(partial + k * stride + at, mask=mask, other=0)
    return sum
