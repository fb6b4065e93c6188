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
        options |= {"degree": triton.next_power_of_2(max(self.col.numel() // rows, 1)), "LIMIT": LIMIT}
        with torch.cuda.device_of(self.rowptr):
            if self.owner.numel():
                kernel[(self.owner.numel(), *grid)](*graph, *arguments, WINDOW=True, **options)
            kernel[(rows, *grid)](*graph, *arguments, WINDOW=False, **options)


def tile_of(channels: int) -> int:
    """The channels that a program takes at a time."""
    return min(int(triton.next_power_of_2(channels)), TILE)


# Nothing is measured in the interpreter: one choice.
CONFIGS: Final = (
    [triton.Config({"BLOCK_E": 4}, num_warps=1)]
    if INTERPRETED
    else [triton.Config({"BLOCK_E": edges}, num_warps=warps) for edges in (2, 4, 8, 16) for warps in (1, 2, 4)]
)


def suitable(width: int, degree: int, size: int) -> list[triton.Config]:
    """The configurations to choose from, for tiles of `width` numbers of `size` bytes and rows of a mean degree.

    A block has no more edges than most rows, and a thread 8 or 16 bytes of a tile, which is one load: the derivative
    has four tiles at hand, and their addresses.
    """

    def fits(config: triton.Config) -> bool:
        edges, threads = int(config.kwargs["BLOCK_E"]), 32 * int(config.num_warps)
        share = edges * width * size / threads
        return edges <= max(degree, 4) and (share >= 8 or threads == 32) and share <= 16

    return [config for config in CONFIGS if fits(config)]


def _prune(configs: list[triton.Config], named: dict[str, Any], **rest: Any) -> list[triton.Config]:
    arguments = named | rest
    return suitable(arguments["BLOCK_C"], arguments["degree"], arguments["partial"].element_size())


def row_kernel(function: Any) -> Any:
    """A kernel that is measured, once for every width, mean degree and type, and then takes its best configuration."""
    return triton.autotune(
        CONFIGS, key=["BLOCK_C", "degree", "WINDOW"], prune_configs_by={"early_config_prune": _prune}
    )(triton.jit(function, do_not_specialize=["degree", "k"]))


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
