"""The p-Laplacian step and its derivative in Triton, as the operators ``plufg_triton::plap_*``.

They take and return what the compiled ``plufg::plap_*`` do and compute what csrc/common/plap.h writes out, from the
signal as it is stored: no scaled copy is made. A program takes a row and a band, a block of edges and a tile of
channels at a time (`..triton_rows`). Where one tile holds all channels, a neighbour is read once: its norm is reduced
in registers, and it is still there to be added. Wider signals take one sweep for the norms, kept as a number per edge
and band, and another for the sums, where every tile has a program of its own. What is done per node is left to torch,
and penalties to the table that all backends share.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...penalties import FORMULAS
from ..triton_rows import Rows, add_windows, row_kernel, span, tile_of
from . import register
from .solvers import relative_change


@triton.jit
def _own(x, node, scale, channel, channels):
    """``[BLOCK_C]`` a tile of a node's row, scaled, in the precision that is computed in."""
    value = tl.load(x + node * channels + channel, mask=channel < channels, other=0)
    return scale * value.to(scale.dtype)


@triton.jit
def _gathered(x, node, scale, channel, channels, live):
    """``[BLOCK_E, BLOCK_C]`` the same for many nodes; zeros where not `live`."""
    at = node[:, None] * channels + channel[None, :]
    value = tl.load(x + at, mask=live[:, None] & (channel < channels)[None, :], other=0)
    return scale[:, None] * value.to(scale.dtype)


@triton.jit
def _edges(col, weight, dinv, first, stop, BLOCK_E: tl.constexpr):
    """A block of edges, which of them exist, and the node j, its dinv and the weight of each: 0 if it does not."""
    edge = first + tl.arange(0, BLOCK_E)
    live = edge < stop
    j = tl.load(col + edge, mask=live, other=0).to(tl.int64)
    scale = tl.load(dinv + j, mask=live, other=0)
    w = live.to(scale.dtype) if weight is None else tl.load(weight + edge, mask=live, other=0)
    return edge, live, j, scale, w


@triton.jit
def _power(square, p):
    """``q = n^(p-2)`` of squared norms; 1 instead of those that count as zero; and which ones do."""
    tiny: tl.constexpr = 2.0**-1022 if square.dtype == tl.float64 else 2.0**-126
    zero = square < tiny
    square = tl.where(zero, 1.0, square)
    q = tl.where(zero, 0.0, tl.exp2((0.5 * p - 1.0) * tl.log2(square)))
    return tl.where(p == 2.0, 1.0, q), square, zero


@triton.jit
def _mean_z(z, zi, other, live):
    """``(z_i + z_j) / 2``; for the power penalty, which has no `z`, that is p."""
    return zi if z is None else 0.5 * (zi + tl.load(z + other, mask=live, other=0))


@row_kernel
def norms(
    rowptr, col, weight, owner, partial, square, sums, f, dinv, p, bands, channels, eps: tl.float64,
    LIMIT: tl.constexpr, WINDOW: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """The first of two passes: ``n_ij^2`` of every edge, and ``sum_j n_ij^p``; each where there is a place for it."""
    i, start, stop, begin, end = span(rowptr, owner, LIMIT, WINDOW)
    band = tl.program_id(1)
    pb = tl.load(p + band)
    di = tl.load(dinv + i)
    smooth = tl.full((), eps, pb.dtype)
    acc = tl.zeros((BLOCK_E,), pb.dtype)
    for first in range(start, stop, BLOCK_E):
        edge, live, j, dj, w = _edges(col, weight, dinv, first, stop, BLOCK_E)
        n2 = tl.zeros((BLOCK_E,), pb.dtype)
        for c in range(0, channels, BLOCK_C):
            channel = c + tl.arange(0, BLOCK_C)
            hi = _own(f, i * bands + band, di, channel, channels)
            d = _gathered(f, j * bands + band, dj, channel, channels, live) - hi[None, :]
            n2 += tl.sum(d * d, 1)
        n2 = w * n2 + smooth * smooth
        if square is not None:
            tl.store(square + edge * bands + band, n2, mask=live)
        if sums is not None:
            q, n2, zero = _power(n2, pb)
            acc += tl.where(live & ~zero, n2 * q, 0.0)
    if sums is not None:
        result = tl.sum(acc, 0)
        if WINDOW:
            tl.store(partial + begin * bands + band, result)
        else:
            tl.store(sums + i * bands + band, add_windows(result, partial, band, True, begin, end, bands))


@row_kernel
def step(
    rowptr, col, weight, owner, partial, partial_m, out, a, f, y, square, z, dinv, p, mu,
    bands, channels, eps: tl.float64,
    LIMIT: tl.constexpr, WINDOW: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """``a_i`` and a tile of the new row; norms are read from `square`, or made of the tile where that is None."""
    i, start, stop, begin, end = span(rowptr, owner, LIMIT, WINDOW)
    band = tl.program_id(1)
    channel = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
    node = i * bands + band
    pb = tl.load(p + band)
    di = tl.load(dinv + i)
    zi = pb if z is None else tl.load(z + node)
    smooth = tl.full((), eps, pb.dtype)
    hi = _own(f, node, di, channel, channels)
    sum_m = tl.zeros((BLOCK_E,), pb.dtype)
    acc = tl.zeros((BLOCK_E, BLOCK_C), pb.dtype)
    for first in range(start, stop, BLOCK_E):
        edge, live, j, dj, w = _edges(col, weight, dinv, first, stop, BLOCK_E)
        other = j * bands + band
        hj = _gathered(f, other, dj, channel, channels, live)
        if square is None:
            d = hj - hi[None, :]
            n2 = w * tl.sum(d * d, 1) + smooth * smooth
        else:
            n2 = tl.load(square + edge * bands + band, mask=live, other=0)
        q, _, _ = _power(n2, pb)
        m = w * q * _mean_z(z, zi, other, live)
        sum_m += m
        acc += m[:, None] * hj
    total = tl.sum(sum_m, 0)
    pulled = tl.sum(acc, 0)
    inside = channel < channels
    if WINDOW:
        tl.store(partial_m + begin * bands + band, total)
        tl.store(partial + (begin * bands + band) * channels + channel, pulled, mask=inside)
    else:
        total = add_windows(total, partial_m, band, True, begin, end, bands)
        pulled = add_windows(pulled, partial, band * channels + channel, inside, begin, end, bands * channels)
        twice_mu = 2.0 * tl.load(mu + band)
        scale = 1.0 / (di * di * total + twice_mu)
        value = scale * di * pulled + _own(y, node, scale * twice_mu, channel, channels)
        tl.store(out + node * channels + channel, value, mask=inside)
        tl.store(a + node, scale, mask=tl.program_id(2) == 0)


@triton.jit
def _products(hi, ui, f, grad, a, j, dj, live, channel, channels, SEND: tl.constexpr):
    """What the derivative needs of a tile: ``h_i - h_j`` and u_j, and over channels ``|h_i - h_j|^2``, ``<u_i, h_j>``
    and ``<u_j, h_i>``. Without SEND there is no need for u_j, and h_j takes its place.
    """
    hj = _gathered(f, j, dj, channel, channels, live)
    uj = _gathered(grad, j, dj * tl.load(a + j, mask=live, other=0), channel, channels, live) if SEND else hj
    d = hi[None, :] - hj
    return d, uj, tl.sum(d * d, 1), tl.sum(ui[None, :] * hj, 1), tl.sum(uj * hi[None, :], 1)


@row_kernel
def dots(
    rowptr, col, weight, owner, partial, square, mbar, sums, f, grad, s, a, z, dinv, p,
    bands, channels, eps: tl.float64, RECEIVE: tl.constexpr, SEND: tl.constexpr,
    LIMIT: tl.constexpr, WINDOW: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """The first of two passes of the derivative: ``n_ij^2`` and ``mbar_ij`` of every edge where there is a place for
    them, and over a row the three sums ``mbar w/2 q``, ``mbar dM/dp`` at fixed z, and ``n^p ln n``.
    """
    i, start, stop, begin, end = span(rowptr, owner, LIMIT, WINDOW)
    band = tl.program_id(1)
    node = i * bands + band
    pb = tl.load(p + band)
    di = tl.load(dinv + i)
    ai = di * tl.load(a + node)
    si = tl.load(s + node)
    zi = pb if z is None else tl.load(z + node)
    smooth = tl.full((), eps, pb.dtype)
    by_z = tl.zeros((BLOCK_E,), pb.dtype)
    by_p = tl.zeros((BLOCK_E,), pb.dtype)
    logs = tl.zeros((BLOCK_E,), pb.dtype)
    for first in range(start, stop, BLOCK_E):
        edge, live, j, dj, w = _edges(col, weight, dinv, first, stop, BLOCK_E)
        other = j * bands + band
        n2 = tl.zeros((BLOCK_E,), pb.dtype)
        received = tl.zeros((BLOCK_E,), pb.dtype)
        sent = tl.zeros((BLOCK_E,), pb.dtype)
        for c in range(0, channels, BLOCK_C):
            channel = c + tl.arange(0, BLOCK_C)
            hi = _own(f, node, di, channel, channels)
            ui = _own(grad, node, ai, channel, channels)
            _, _, distance, mine, theirs = _products(hi, ui, f, grad, a, other, dj, live, channel, channels, SEND)
            n2 += distance
            received += mine
            sent += theirs
        n2 = w * n2 + smooth * smooth
        received -= si
        sent -= tl.load(s + other, mask=live, other=0)
        both = _add(received, sent, RECEIVE, SEND)
        if square is not None:
            tl.store(square + edge * bands + band, n2, mask=live)
            tl.store(mbar + edge * bands + band, both, mask=live)
        q, n2, zero = _power(n2, pb)
        by_z += 0.5 * w * q * both
        if RECEIVE:
            by_p += received * _dm_dp(w * q * _mean_z(z, zi, other, live), n2, pb, z)
            logs += tl.where(live & ~zero, n2 * q * 0.5 * tl.log(n2), 0.0)
    at = 3 * band
    if WINDOW:
        place = partial + begin * 3 * bands + at
        tl.store(place, tl.sum(by_z, 0))
        tl.store(place + 1, tl.sum(by_p, 0))
        tl.store(place + 2, tl.sum(logs, 0))
    else:
        place = sums + 3 * node
        tl.store(place, add_windows(tl.sum(by_z, 0), partial, at, True, begin, end, 3 * bands))
        tl.store(place + 1, add_windows(tl.sum(by_p, 0), partial, at + 1, True, begin, end, 3 * bands))
        tl.store(place + 2, add_windows(tl.sum(logs, 0), partial, at + 2, True, begin, end, 3 * bands))


@triton.jit
def _add(received, sent, RECEIVE: tl.constexpr, SEND: tl.constexpr):
    """The parts that the row speaks for: the edges it receives over, those it sends over, or both at once."""
    return received + sent if RECEIVE and SEND else (received if RECEIVE else sent)


@triton.jit
def _dm_dp(m, square, p, z):
    """``dM/dp`` at fixed z, where that is not p itself."""
    log = 0.5 * tl.log(square)
    return m * log if z is not None else m * (log + 1.0 / p)


@row_kernel
def gradient(
    rowptr, col, weight, owner, partial, partial_p, df, dp, before, square, mbar, f, grad, s, a, z, t, dinv, p,
    bands, channels, eps: tl.float64, RECEIVE: tl.constexpr, SEND: tl.constexpr,
    LIMIT: tl.constexpr, WINDOW: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """A tile of ``df_i``: what comes over the edges that a row receives over, sends over, or both, on top of `before`.

    Norms and mbar are read, or where they were not kept made of the tile, then with ``dp_i`` if that is wanted.
    """
    i, start, stop, begin, end = span(rowptr, owner, LIMIT, WINDOW)
    band = tl.program_id(1)
    channel = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
    node = i * bands + band
    pb = tl.load(p + band)
    di = tl.load(dinv + i)
    si = tl.load(s + node)
    zi = pb if z is None else tl.load(z + node)
    ti = pb if t is None else tl.load(t + node)
    hi = _own(f, node, di, channel, channels)
    ui = _own(grad, node, di * tl.load(a + node), channel, channels)
    smooth = tl.full((), eps, pb.dtype)
    by_p = tl.zeros((BLOCK_E,), pb.dtype)
    acc = tl.zeros((BLOCK_E, BLOCK_C), pb.dtype)
    for first in range(start, stop, BLOCK_E):
        edge, live, j, dj, w = _edges(col, weight, dinv, first, stop, BLOCK_E)
        other = j * bands + band
        d, uj, n2, received, sent = _products(hi, ui, f, grad, a, other, dj, live, channel, channels, SEND)
        if square is None:
            n2 = w * n2 + smooth * smooth
            received -= si
            sent -= tl.load(s + other, mask=live, other=0)
            both = _add(received, sent, RECEIVE, SEND)
        else:
            n2 = tl.load(square + edge * bands + band, mask=live, other=0)
            both = tl.load(mbar + edge * bands + band, mask=live, other=0)
        q, n2, zero = _power(n2, pb)
        m = w * q * _mean_z(z, zi, other, live)
        # The product with M first: a small norm makes M large and mbar small.
        c = both * m * ((pb - 2.0) * w) / n2
        if t is not None:
            tj = tl.load(t + other, mask=live, other=0)
            c += w * q * _add(ti, tj, RECEIVE, SEND)
        # The difference first, too: neighbours may be close and c large.
        acc += tl.where(zero, 0.0, c)[:, None] * d
        if SEND:
            acc += m[:, None] * uj
        if dp is not None:
            by_p += received * _dm_dp(m, n2, pb, z)
    result = tl.sum(acc, 0)
    inside = channel < channels
    if WINDOW:
        tl.store(partial + (begin * bands + band) * channels + channel, result, mask=inside)
        if dp is not None:
            tl.store(partial_p + begin * bands + band, tl.sum(by_p, 0))
    else:
        result = di * add_windows(result, partial, band * channels + channel, inside, begin, end, bands * channels)
        if before is not None:
            result += tl.load(before + node * channels + channel, mask=inside, other=0)
        tl.store(df + node * channels + channel, result, mask=inside)
        if dp is not None:
            tl.store(dp + node, add_windows(tl.sum(by_p, 0), partial_p, band, True, begin, end, bands))


def _scaled_slope(norm: Tensor, p: Tensor, penalty: int, parameter: float) -> tuple[Tensor, Tensor]:
    """z of node norms and its derivative."""
    curve, x = list(FORMULAS.values())[penalty], torch.where(norm > 0, norm, 1)
    z = torch.where(norm > 0, curve.z(x, p, parameter), curve.z_at_zero(p, parameter))
    return z, torch.where(norm > 0, curve.dz_dx(x, p, parameter), 0)


def _advance(
    out: Tensor, f: Tensor, y: Tensor, rows: Rows, dinv: Tensor, p: Tensor, mu: Tensor,
    eps: float, penalty: int, parameter: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Write a step from f to `out`; returns a and the node norms, which only a penalty other than power has."""
    nodes, bands, channels = f.shape
    block = tile_of(channels)
    windows, tiles = rows.owner.numel(), triton.cdiv(channels, block)
    square = p.new_empty(rows.col.numel(), bands) if tiles > 1 else None
    norm, z = p.new_empty(0, bands), None
    if penalty or tiles > 1:
        sums = p.new_empty(nodes, bands) if penalty else None
        first = (square, sums, f, dinv, p, bands, channels, eps)
        rows.launch(norms, (bands,), [p.new_empty(windows, bands)], *first, BLOCK_C=block)
        if sums is not None:
            norm = sums ** (1 / p)
            z, _ = _scaled_slope(norm, p, penalty, parameter)
    a = p.new_empty(nodes, bands)
    partial = [p.new_empty(windows, bands, channels), p.new_empty(windows, bands)]
    second = (out, a, f, y, square, z, dinv, p, mu, bands, channels, eps)
    rows.launch(step, (bands, tiles), partial, *second, BLOCK_C=block)
    return a, norm


@torch.library.custom_op("plufg_triton::plap_step", mutates_args=())
def plap_step(
    f: Tensor, y: Tensor, rowptr: Tensor, col: Tensor, weight: Tensor | None, rowptr_t: Tensor, col_t: Tensor,
    weight_t: Tensor | None, dinv: Tensor, p: Tensor, mu: Tensor, eps: float, penalty: int, parameter: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """One step, a and the node norms, as ``plufg::plap_step``."""
    out = torch.empty_like(f)
    if f.numel() == 0:
        return out, p.new_zeros(f.shape[:2]), p.new_zeros(f.size(0) if penalty else 0, f.size(1))
    a, norm = _advance(out, f, y, Rows.of(rowptr, col, weight), dinv, p, mu, eps, penalty, parameter)
    return out, a, norm


@torch.library.custom_op("plufg_triton::plap_steps", mutates_args=())
def plap_steps(
    y: Tensor, rowptr: Tensor, col: Tensor, weight: Tensor | None, rowptr_t: Tensor, col_t: Tensor,
    weight_t: Tensor | None, dinv: Tensor, p: Tensor, mu: Tensor, eps: float, penalty: int, parameter: float,
    steps: int, tol: float | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Up to `steps` steps from y, ended by a relative change below `tol`, and how many; as ``plufg::plap_steps``.

    Between steps the signal stays in the precision that is computed in. Only with a tolerance does it wait for them.
    """
    if y.numel() == 0:
        return torch.empty_like(y), torch.tensor(steps if tol is None else 1, device=y.device)
    rows = Rows.of(rowptr, col, weight)
    f, taken, settled = y, 0, False
    while taken < steps and not settled:
        new = p.new_empty(y.shape)
        _advance(new, f, y, rows, dinv, p, mu, eps, penalty, parameter)
        settled = tol is not None and bool(relative_change(new, f) < tol)
        f, taken = new, taken + 1
    return f.to(y.dtype), torch.tensor(taken, device=y.device)


@torch.library.custom_op("plufg_triton::plap_step_backward", mutates_args=())
def plap_step_backward(
    grad: Tensor, f: Tensor, out: Tensor, a: Tensor, norm: Tensor, rowptr: Tensor, col: Tensor,
    weight: Tensor | None, rowptr_t: Tensor, col_t: Tensor, weight_t: Tensor | None, dinv: Tensor, p: Tensor,
    eps: float, penalty: int, parameter: float, need_p: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """df and, if it is wanted, dp of every node; as ``plufg::plap_step_backward``."""
    nodes, bands, channels = f.shape
    dp = p.new_zeros(nodes if need_p else 0, bands)
    if f.numel() == 0:
        return torch.empty_like(f), dp
    rows = Rows.of(rowptr, col, weight)
    if rowptr.data_ptr() == rowptr_t.data_ptr() and col.data_ptr() == col_t.data_ptr():
        passes = [(rows, {"RECEIVE": True, "SEND": True})]
    else:
        back = Rows.of(rowptr_t, col_t, weight_t)
        passes = [(rows, {"RECEIVE": True, "SEND": False}), (back, {"RECEIVE": False, "SEND": True})]
    block = tile_of(channels)
    tiles = triton.cdiv(channels, block)
    sizes = (bands, channels, eps)
    s = a * dinv.unsqueeze(-1) ** 2 * (grad.to(p.dtype) * out).sum(-1)
    z, dz_dx = _scaled_slope(norm, p, penalty, parameter) if penalty else (None, None)
    t = None

    kept = [[p.new_empty(rows.col.numel(), bands) if tiles > 1 else None for _ in range(2)] for rows, _ in passes]
    if penalty or tiles > 1:
        sums = p.new_zeros(nodes, bands, 3)
        for (rows, role), place in zip(passes, kept, strict=True):
            part = torch.empty_like(sums)
            partial = [p.new_empty(rows.owner.numel(), bands, 3)]
            arguments = (*place, part, f, grad, s, a, z, dinv, p, *sizes)
            rows.launch(dots, (bands,), partial, *arguments, **role, BLOCK_C=block)
            sums += part
        zbar, by_p, logs = sums.unbind(-1)
        if need_p:
            dp = by_p.contiguous()
        if z is not None and dz_dx is not None:
            x = torch.where(norm > 0, norm, 1)
            t = zbar * dz_dx * x ** (1 - p)
            if need_p:
                # p enters N_i, and z at a fixed N_i.
                dp = dp + zbar * (dz_dx * x * (logs / x**p - x.log()) / p - x.log() * z)

    before = None
    for (rows, role), place in zip(passes, kept, strict=True):
        df = torch.empty_like(f, dtype=f.dtype if role["SEND"] else p.dtype)
        partial = [p.new_empty(rows.owner.numel(), bands, channels), p.new_empty(rows.owner.numel(), bands)]
        here = dp if need_p and role["RECEIVE"] and not penalty and tiles == 1 else None
        arguments = (df, here, before, *place, f, grad, s, a, z, t, dinv, p, *sizes)
        rows.launch(gradient, (bands, tiles), partial, *arguments, **role, BLOCK_C=block)
        before = df
    return df, dp


register.attach("plufg_triton")
