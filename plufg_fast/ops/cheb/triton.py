"""Polynomials of the Laplacian in Triton, as the operators ``plufg_triton::cheb_*``.

They take and return what the compiled ``plufg::cheb_*`` do. Every step of a recurrence is one launch of one kernel, in
which a program takes a row and a tile of channels: it gathers the neighbours and, while the row's terms are in
registers, adds them to all bands of an analysis, or the bands of a synthesis to the row.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..triton_rows import Rows, add_windows, row_kernel, span, tile_of
from . import register
from .reference import Recurrence


@triton.jit
def _tile(x, at, inside, work: tl.constexpr):
    return tl.load(x + at, mask=inside, other=0).to(work)


@row_kernel
def recur(
    rowptr, col, weight, owner, partial, out, bands, before, x, prev, first, z, weights, k, left, right, diag,
    groups, channels, filters, terms, alpha: tl.float64, beta: tl.float64, gamma: tl.float64, degree,
    LIMIT: tl.constexpr, WINDOW: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """A tile of ``alpha L x + beta x + gamma prev``, and what is wanted beside it.

    z: a synthesis; the bands of a row, weighted by column k, are added, all of them or where x has groups that of the
    group. bands: an analysis; the new term times column k of the weights, x times column k - 1, where there is a prev
    that times column k - 2 and where there is a first that times column k - 3, go on top of `before`.
    """
    i, start, stop, begin, end = span(rowptr, owner, LIMIT, WINDOW)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = channel < channels
    group = tl.program_id(2)
    work: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    acc = tl.zeros((BLOCK_E, BLOCK_C), work)
    for edges in range(start, stop, BLOCK_E):
        edge = edges + tl.arange(0, BLOCK_E)
        j = tl.load(col + edge, mask=edge < stop, other=0).to(tl.int64)
        # A self-loop is not an edge of the Laplacian.
        live = (edge < stop) & (j != i)
        w = live.to(work) if weight is None else tl.load(weight + edge, mask=live, other=0)
        if right is not None:
            w *= tl.load(right + j, mask=live, other=0)
        at = (j * groups + group)[:, None] * channels + channel[None, :]
        acc += w[:, None] * _tile(x, at, live[:, None] & inside[None, :], work)
    gathered = tl.sum(acc, 0)
    if WINDOW:
        tl.store(partial + (begin * groups + group) * channels + channel, gathered, mask=inside)
    else:
        gathered = add_windows(gathered, partial, group * channels + channel, inside, begin, end, groups * channels)
        scale = tl.full((), alpha, work)
        own = scale + tl.full((), beta, work) if diag is None else scale * tl.load(diag + i) + tl.full((), beta, work)
        if left is not None:
            scale *= tl.load(left + i)
        at = (i * groups + group) * channels + channel
        xi = _tile(x, at, inside, work)
        value = own * xi - scale * gathered
        if prev is not None:
            earlier = _tile(prev, at, inside, work)
            value += tl.full((), gamma, work) * earlier
        if z is not None:
            for r in range(group, tl.where(groups == 1, filters, group + 1)):
                band = _tile(z, (i * filters + r) * channels + channel, inside, work)
                value += tl.load(weights + r * terms + k) * band
        if out is not None:
            tl.store(out + at, value, mask=inside)
        if bands is not None:
            for r in range(filters):
                tap = weights + r * terms + k
                band = tl.load(tap) * value + tl.load(tap - 1) * xi
                if prev is not None:
                    band += tl.load(tap - 2) * earlier
                if first is not None:
                    band += tl.load(tap - 3) * _tile(first, at, inside, work)
                place = (i * filters + r) * channels + channel
                if before is not None:
                    band += tl.load(before + place, mask=inside, other=0)
                tl.store(bands + place, band, mask=inside)


class _Operator:
    """The Laplacian of a call, ready to be applied to ``[N, groups, channels]`` signals."""

    def __init__(self, rowptr: Tensor, col: Tensor, weight: Tensor | None, *scales: Tensor | None) -> None:
        self.rows, self.scales = Rows.of(rowptr, col, weight), scales

    def apply(
        self,
        x: Tensor,
        prev: Tensor | None,
        step: tuple[float, ...],
        out: Tensor | None,
        bands: Tensor | None = None,
        before: Tensor | None = None,
        first: Tensor | None = None,
        z: Tensor | None = None,
        weights: Tensor | None = None,
        k: int = 0,
    ) -> None:
        """One launch of the kernel."""
        _, groups, channels = x.shape
        block, (filters, terms) = tile_of(channels), (0, 0) if weights is None else weights.shape
        partial = _working(x).new_empty(self.rows.owner.numel(), groups, channels)
        signals = (out, bands, before, x, prev, first, z, weights, k)
        sizes = (groups, channels, filters, terms)
        grid = (triton.cdiv(channels, block), groups)
        self.rows.launch(recur, grid, [partial], *signals, *self.scales, *sizes, *step, BLOCK_C=block)


def _working(x: Tensor) -> Tensor:
    """An empty tensor of the precision to compute in, to make others from."""
    return x.new_empty(0, dtype=torch.promote_types(x.dtype, torch.float32))


def _triples(recurrence: list[float]) -> Recurrence:
    return list(zip(recurrence[::3], recurrence[1::3], recurrence[2::3], strict=True))


@torch.library.custom_op("plufg_triton::cheb_step", mutates_args=())
def cheb_step(
    x: Tensor, prev: Tensor | None, rowptr: Tensor, col: Tensor, weight: Tensor | None, rowptr_t: Tensor,
    col_t: Tensor, weight_t: Tensor | None, left: Tensor | None, right: Tensor | None, diag: Tensor | None,
    alpha: float, beta: float, gamma: float,
) -> Tensor:  # fmt: skip
    """``alpha L x + beta x + gamma prev``, as ``plufg::cheb_step``."""
    out = torch.empty_like(x)
    if x.numel():
        operator = _Operator(rowptr, col, weight, left, right, diag)
        operator.apply(x.unsqueeze(1), prev, (alpha, beta, gamma), out)
    return out


@torch.library.custom_op("plufg_triton::cheb_analysis", mutates_args=())
def cheb_analysis(
    x: Tensor, rowptr: Tensor, col: Tensor, weight: Tensor | None, rowptr_t: Tensor, col_t: Tensor,
    weight_t: Tensor | None, left: Tensor | None, right: Tensor | None, diag: Tensor | None, weights: Tensor,
    recurrence: list[float],
) -> Tensor:  # fmt: skip
    """``Z_r = sum_k w_{r,k} T_k x``, as ``plufg::cheb_analysis``.

    A program has three terms of its row at hand, so bands are written at the last step and at every third before it.
    """
    filters, degree = weights.size(0), weights.size(1) - 1
    if x.numel() == 0 or degree == 0:
        return (weights[:, :1] * x.unsqueeze(1)).to(x.dtype)
    operator, like = _Operator(rowptr, col, weight, left, right, diag), _working(x)
    term = x.unsqueeze(1)
    prev: Tensor | None = None
    bands: Tensor | None = None
    for k, step in enumerate(_triples(recurrence), 1):
        last = k == degree
        new = None if last else like.new_empty(term.shape)
        if (degree - k) % 3:
            operator.apply(term, prev, step, new)
        else:
            before = bands
            bands = x.new_empty(x.size(0), filters, x.size(1), dtype=x.dtype if last else like.dtype)
            # The term that no other step adds: T_0, where the first of them to write bands is the third.
            first = x if k == 3 else None
            operator.apply(term, prev, step, new, bands, before, first, None, weights, k)
        if new is not None:
            term, prev = new, term
    assert bands is not None
    return bands


@torch.library.custom_op("plufg_triton::cheb_synthesis", mutates_args=())
def cheb_synthesis(
    z: Tensor, rowptr: Tensor, col: Tensor, weight: Tensor | None, rowptr_t: Tensor, col_t: Tensor,
    weight_t: Tensor | None, left: Tensor | None, right: Tensor | None, diag: Tensor | None, weights: Tensor,
    recurrence: list[float], sum_bands: bool,
) -> Tensor:  # fmt: skip
    """``sum_r (sum_k w_{r,k} T_k) z_r``, or each r for itself, by Clenshaw's sweep; as ``plufg::cheb_synthesis``."""
    steps = _triples(recurrence)
    # B_n; further down B_k = source_k + (a_k L + b_k) B_{k+1} + c_{k+1} B_{k+2}
    current: Tensor = weights[:, -1:] * z
    after: Tensor | None = None
    if sum_bands:
        current = current.sum(1, keepdim=True)
    if z.numel():
        operator = _Operator(rowptr, col, weight, left, right, diag)
        for k in range(len(steps) - 1, -1, -1):
            gamma = steps[k + 1][2] if k + 1 < len(steps) else 0.0
            new = torch.empty_like(current, dtype=current.dtype if k else z.dtype)
            operator.apply(current, after, (*steps[k][:2], gamma), new, z=z, weights=weights, k=k)
            current, after = new, current
    current = current.to(z.dtype)
    return current.squeeze(1) if sum_bands else current


kernels = register.Kernels("plufg_triton")
kernels.attach()
