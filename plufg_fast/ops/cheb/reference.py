"""Polynomials of the Laplacian in plain torch: the definition that every kernel is tested against.

A recurrence ``T_0 = I, T_{k+1} = (a_k Lhat + b_k) T_k + c_k T_{k-1}`` makes the basis; analysis applies filters
``sum_k w_{r,k} T_k`` to a signal, synthesis applies their transposes and sums. Nothing here is specific to
Chebyshev polynomials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from torch import Tensor

from ...graph import expand_rows

# T_{k+1} = (a_k Lhat + b_k) T_k + c_k T_{k-1}, a triple (a_k, b_k, c_k) for k = 0, 1, ...; c_0 is not used.
Recurrence: TypeAlias = Sequence[tuple[float, float, float]]
# One application of an operator step: (x, prev, alpha, beta, gamma) -> alpha L x + beta x + gamma prev
Step: TypeAlias = Callable[[Tensor, Tensor | None, float, float, float], Tensor]


class Laplacian(NamedTuple):
    """``(L x)_i = diag_i x_i - left_i sum_{j != i} w_ij right_j x_j`` as plain arrays, with its transpose."""

    rowptr: Tensor
    col: Tensor
    weight: Tensor | None
    rowptr_t: Tensor
    col_t: Tensor
    weight_t: Tensor | None
    left: Tensor | None  # None stands for ones, here and below
    right: Tensor | None
    diag: Tensor | None

    def transpose(self) -> Laplacian:
        """The transposed operator."""
        return Laplacian(
            self.rowptr_t,
            self.col_t,
            self.weight_t,
            self.rowptr,
            self.col,
            self.weight,
            self.right,
            self.left,
            self.diag,
        )


def step(x: Tensor, prev: Tensor | None, lap: Laplacian, alpha: float, beta: float, gamma: float) -> Tensor:
    """``alpha L x + beta x + gamma prev`` for ``[N, C]`` signals."""
    row = expand_rows(lap.rowptr, lap.col)
    sent = x if lap.right is None else lap.right.view(-1, 1) * x
    message = sent.index_select(0, lap.col)
    if lap.weight is not None:
        message = lap.weight.view(-1, 1) * message
    message = message.masked_fill((row == lap.col).view(-1, 1), 0)
    received = x.new_zeros(x.shape).index_add(0, row, message)
    if lap.left is not None:
        received = lap.left.view(-1, 1) * received
    kept = x if lap.diag is None else lap.diag.view(-1, 1) * x
    out = alpha * (kept - received) + beta * x
    return out if prev is None else out + gamma * prev


def basis(x: Tensor, apply: Step, recurrence: Recurrence) -> Iterator[Tensor]:
    """``T_0 x, T_1 x, ...``, one sparse product each."""
    term, before = x, None
    yield term
    for a, b, c in recurrence:
        term, before = apply(term, before, a, b, c), term
        yield term


def clenshaw(source: Callable[[int], Tensor], apply: Step, recurrence: Recurrence) -> Tensor:
    """``sum_k T_k source(k)``, from the highest degree down, with one sparse product each."""
    degree = len(recurrence)
    current, after = source(degree), None
    for k in range(degree - 1, -1, -1):
        # B_k = source_k + (a_k Lhat + b_k) B_{k+1} + c_{k+1} B_{k+2}
        a, b, _ = recurrence[k]
        c = recurrence[k + 1][2] if k + 1 < degree else 0.0
        current, after = source(k) + apply(current, after, a, b, c), current
    return current


def analysis(x: Tensor, apply: Step, weights: Tensor, recurrence: Recurrence) -> Tensor:
    """``Z_r = sum_k w_{r,k} T_k x``: ``[N, C]`` and ``[R, n + 1]`` to ``[N, R, C]``, one recurrence for all r."""
    terms = enumerate(basis(x, apply, recurrence))
    _, first = next(terms)
    z = weights[:, 0, None] * first.unsqueeze(1)
    for k, term in terms:
        z = z + weights[:, k, None] * term.unsqueeze(1)
    return z


def synthesis(z: Tensor, apply: Step, weights: Tensor, recurrence: Recurrence, sum_bands: bool) -> Tensor:
    """``sum_r (sum_k w_{r,k} T_k) z_r``: ``[N, R, C]`` to ``[N, C]``, or each r for itself without the sum.

    `apply` is the transposed operator when the adjoint of `analysis` is wanted.
    """

    def source(k: int) -> Tensor:
        weighted = weights[:, k, None] * z
        return weighted.sum(1) if sum_bands else weighted.flatten(1)

    out = clenshaw(source, apply, recurrence)
    return out if sum_bands else out.view_as(z)
