"""What results have to be: the reference in float64, and how far from it a contestant may be.

The reference makes arrays over edges and channels. Rows do not depend on each other, so it is run a block of rows
at a time, and on large graphs on the first rows only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from ..graph import Graph, expand_rows
from ..ops import chebyshev_recurrence
from ..ops.cheb import reference as cheb
from ..ops.plap import reference as plap
from ..ops.plap.reference import Edges
from ..penalties import Penalty

# Relative to the largest entry, for float32. Beside each, the worst error met on half a million edges; sums over the
# ten times larger hubs of the largest graph lose a digit more.
TOLERANCE: Final = {
    "product": 1e-4,  # 2.3e-6
    "step": 1e-4,  # 3.3e-7
    "gradient": 1e-4,  # 1.8e-6
    "framelet": 1e-4,  # 3.3e-7
    "epoch": 1e-3,  # 1.0e-6 on Cora
}

_POWER: Final = Penalty("power", None)
_CHECKED_EDGES: Final = 2_000_000
_BLOCK_EDGES: Final = 500_000


class ParityError(Exception):
    """A result is not what it has to be."""


def check(result: Any, expected: Sequence[Tensor], tolerance: float) -> float:
    """The error of a result, refused if it is above the tolerance."""
    found = error([result] if isinstance(result, Tensor) else list(result), expected)
    if not found <= tolerance:
        raise ParityError(f"differs from the reference by {found:.1e}, more than {tolerance:.0e}")
    return found


def error(result: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference relative to the largest expected entry, of the worst tensor; NaN is infinite.

    Where fewer rows are expected than there are, the first ones are compared.
    """
    worst = 0.0
    for got, wanted in zip(result, expected, strict=True):
        difference = (got.detach()[: wanted.size(0)].double() - wanted).abs().max() / wanted.abs().max()
        worst = max(worst, float(difference.nan_to_num(nan=torch.inf)))
    return worst


def checked_rows(g: Graph) -> int:
    """How many rows are compared: all, or the first that have two million edges."""
    return max(1, int(torch.searchsorted(g.rowptr, _CHECKED_EDGES, right=True)) - 1)


def _blocks(g: Graph) -> Iterator[tuple[slice, Edges]]:
    """The checked rows, a block at a time, with the edges these receive over."""
    weight, dinv, _ = g.values(torch.float64)
    rowptr, rows = g.rowptr.long(), checked_rows(g)
    first = 0
    while first < rows:
        end = int(torch.searchsorted(rowptr, int(rowptr[first]) + _BLOCK_EDGES, right=True)) - 1
        last = min(max(end, first + 1), rows)
        part = slice(int(rowptr[first]), int(rowptr[last]))
        col = g.col[part].long()
        row = first + expand_rows(rowptr[first : last + 1], col)
        yield slice(first, last), Edges(row, col, None if weight is None else weight[part], dinv)
        first = last


def _banded(signal: Tensor) -> Tensor:
    signal = signal.detach().double()
    return signal if signal.dim() == 3 else signal.unsqueeze(1)


def expected_step(f: Tensor, y: Tensor, g: Graph, p: float, mu: float) -> Tensor:
    """`ops.plap_step`, the checked rows."""
    p_, mu_ = (torch.full((_banded(f).size(1),), value, dtype=torch.float64) for value in (p, mu))
    rows = [plap.step(_banded(f), _banded(y), edges, p_, mu_, _POWER, 0.0)[rows] for rows, edges in _blocks(g)]
    return torch.cat(rows).reshape(-1, *f.shape[1:])


def only_checked(grad: Tensor, g: Graph) -> Tensor:
    """A gradient that comes from the checked rows alone."""
    grad = grad.clone()
    grad[checked_rows(g) :] = 0
    return grad


def expected_gradients(grad: Tensor, f: Tensor, y: Tensor, g: Graph, p: float, mu: float) -> tuple[Tensor, Tensor]:
    """The gradients of `ops.plap_step` with respect to f and y, of a gradient that is `only_checked`."""
    p_, mu_ = (torch.full((_banded(f).size(1),), value, dtype=torch.float64) for value in (p, mu))
    df, dy = torch.zeros_like(_banded(f)), torch.zeros_like(_banded(y))
    for rows, edges in _blocks(g):
        part = torch.zeros_like(df)
        part[rows] = _banded(grad)[rows]
        df_part, dy_part, _, _ = plap.step_backward(part, _banded(f), _banded(y), edges, p_, mu_, _POWER, 0.0)
        df += df_part
        dy += dy_part
    return df.view(f.shape), dy.view(y.shape)


def expected_sum(x: Tensor, g: Graph, normalised: bool) -> Tensor:
    """``sum_j x_j`` over neighbours, or ``D^-1/2 W D^-1/2 x``, the checked rows; self-loops left out as L does."""
    x = x.detach().double()
    dinv = g.values(torch.float64)[2]
    rows = []
    for where, edges in _blocks(g):
        values = (edges.row != edges.col).double()
        if normalised:
            values = values * dinv[edges.row] * dinv[edges.col] * (1 if edges.weight is None else edges.weight)
        rows.append(edges.sum_at_receivers(values.view(-1, 1) * x[edges.col])[where])
    return torch.cat(rows)


def expected_roundtrip(x: Tensor, adjacency: Tensor, coeffs: Tensor, scale: float) -> Tensor:
    """`ops.cheb_synthesis` after `ops.cheb_analysis`, on the float64 product of torch with ``D^-1/2 W D^-1/2``.

    It takes all rows: those of a third product depend on most of the graph.
    """
    weights = torch.cat((coeffs[:, :1] / 2, coeffs[:, 1:]), dim=1).double()
    factor = 2 / torch.pi * scale
    recurrence = [(factor * a, b - a, c) for a, b, c in chebyshev_recurrence(coeffs.size(1) - 1)]

    def apply(x: Tensor, prev: Tensor | None, alpha: float, beta: float, gamma: float) -> Tensor:
        out = (alpha + beta) * x - alpha * (adjacency @ x)
        return out if prev is None else out + gamma * prev

    bands = cheb.analysis(x.detach().double(), apply, weights, recurrence)
    return cheb.synthesis(bands, apply, weights, recurrence, sum_bands=True)
