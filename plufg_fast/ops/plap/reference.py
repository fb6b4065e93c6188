"""The p-Laplacian step in plain torch: the definition that every kernel is tested against.

It follows README.md of this folder line by line, with an ``[E, B, C]`` array of edge gradients and no concern
for speed. Signals are ``[N, B, C]``; ``p`` and ``mu`` are ``[B]``. Autograd differentiates the step;
`step_backward` is the same derivative written out, for solvers that need it without a recorded graph and as
the formula which compiled kernels implement.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import torch
from torch import Tensor

from ...graph import expand_rows
from ...penalties import FORMULAS, Penalty

_PIECE: Final = 2**17
"""Numbers over edges and channels that the energy holds at a time."""


class Edges(NamedTuple):
    """A graph as plain arrays: edge e runs from node ``col[e]`` to the receiving node ``row[e]``."""

    row: Tensor  # [E]
    col: Tensor  # [E]
    weight: Tensor | None  # [E]
    dinv: Tensor  # [N] degree to the power -1/2

    @classmethod
    def from_csr(cls, rowptr: Tensor, col: Tensor, weight: Tensor | None, dinv: Tensor) -> Edges:
        """The edges of a CSR."""
        return cls(expand_rows(rowptr, col), col, weight, dinv)

    def sum_at_receivers(self, values: Tensor) -> Tensor:
        """``[E, ...] -> [N, ...]``."""
        return values.new_zeros(self.dinv.numel(), *values.shape[1:]).index_add(0, self.row, values)

    def sum_at_senders(self, values: Tensor) -> Tensor:
        """``[E, ...] -> [N, ...]``."""
        return values.new_zeros(self.dinv.numel(), *values.shape[1:]).index_add(0, self.col, values)

    def pieces(self, size: int) -> Iterator[Edges]:
        """The edges, `size` at a time; one piece of none where there are none."""
        for start in range(0, max(1, self.col.numel()), max(1, size)):
            part = slice(start, start + size)
            weight = None if self.weight is None else self.weight[part]
            yield Edges(self.row[part], self.col[part], weight, self.dinv)

    def half_weight(self) -> Tensor | float:
        """``w/2`` as ``[E, 1]``."""
        return 0.5 if self.weight is None else 0.5 * self.weight.view(-1, 1)

    def root_weight(self, dims: int) -> Tensor | float:
        """Square roots of the weights, shaped to scale an array of `dims` dimensions over edges."""
        return 1.0 if self.weight is None else self.weight.sqrt().view(-1, *[1] * (dims - 1))


def edge_gradient(f: Tensor, edges: Edges) -> Tensor:
    """``g_ij = sqrt(w_ij) (dinv_j f_j - dinv_i f_i)``, ``[N, ...] -> [E, ...]``."""
    return _differences(_scaled(f, edges), edges)


def _scaled(f: Tensor, edges: Edges) -> Tensor:
    return edges.dinv.view(-1, *[1] * (f.dim() - 1)) * f


def _differences(h: Tensor, edges: Edges) -> Tensor:
    return edges.root_weight(h.dim()) * (h.index_select(0, edges.col) - h.index_select(0, edges.row))


def divergence(u: Tensor, edges: Edges) -> Tensor:
    """The negative adjoint of `edge_gradient`, ``[E, ...] -> [N, ...]``."""
    u = edges.root_weight(u.dim()) * u
    dinv = edges.dinv.view(-1, *[1] * (u.dim() - 1))
    return dinv * (edges.sum_at_receivers(u) - edges.sum_at_senders(u))


def _norms(gradient: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Edge norms ``[E, B]`` and where they are zero; there 1 stands in, which keeps every derivative finite.

    A norm whose square underflows is zero: its bits are lost, and ``n^(p-3)`` would overflow.
    """
    square = (gradient * gradient).sum(-1) + eps * eps
    zero = square < torch.finfo(square.dtype).tiny
    if eps > 0:
        return torch.where(zero, 1, square).sqrt(), zero
    # The derivative of vector_norm is the unit vector itself; that of the square root of the sum of squares
    # divides by n and multiplies by g, which overflows for small n.
    unit = torch.zeros_like(gradient)
    unit[..., :1] = 1
    return torch.linalg.vector_norm(torch.where(zero.unsqueeze(-1), unit, gradient), dim=-1), zero


def _powers(n: Tensor, zero: Tensor, p: Tensor) -> Tensor:
    """``q = n^(p-2)``; at n = 0 it is 1 for p = 2, else 0."""
    return torch.where(zero, (p == 2).to(n.dtype), n ** (p - 2))


def _node_norms(n: Tensor, zero: Tensor, p: Tensor, edges: Edges) -> tuple[Tensor, Tensor]:
    """``N_i = (sum_j n_ij^p)^(1/p)`` as ``[N, B]``, again with 1 standing in for zero."""
    total = edges.sum_at_receivers(torch.where(zero, 0, n**p))
    flat = total == 0
    return torch.where(flat, 1, total) ** (1 / p), flat


class _Weighing(NamedTuple):
    """How a signal weighs the edges: everything between the signal and M."""

    gradient: Tensor  # [E, B, C]
    n: Tensor  # [E, B] edge norms, 1 where they are zero
    zero: Tensor  # [E, B] where they are zero
    q: Tensor  # [E, B]
    node: Tensor  # [N, B] node norms, 1 where they are zero
    flat: Tensor  # [N, B] where they are zero
    z: Tensor  # [N, B]
    m: Tensor  # [E, B] the M_ij


def _weigh(f: Tensor, edges: Edges, p: Tensor, penalty: Penalty, eps: float) -> _Weighing:
    gradient = edge_gradient(f, edges)
    n, zero = _norms(gradient, eps)
    q = _powers(n, zero, p)
    if penalty.name == "power":
        # z is the constant p, at N_i = 0 too: the node norms cancel and are not needed.
        z = p.expand(f.size(0), -1)
        node, flat = torch.ones_like(z), torch.zeros_like(z, dtype=torch.bool)
    else:
        node, flat = _node_norms(n, zero, p, edges)
        formulas, parameter = FORMULAS[penalty.name], penalty.parameter or 0.0
        z = torch.where(flat, formulas.z_at_zero(p, parameter), formulas.z(node, p, parameter))
    m = edges.half_weight() * q * (z.index_select(0, edges.row) + z.index_select(0, edges.col))
    return _Weighing(gradient, n, zero, q, node, flat, z, m)


def _combine(f: Tensor, y: Tensor, m: Tensor, edges: Edges, mu: Tensor) -> tuple[Tensor, Tensor]:
    """``a_i`` as ``[N, B]`` and ``F'``."""
    dinv = edges.dinv.view(-1, 1)
    a = 1 / (dinv**2 * edges.sum_at_receivers(m) + 2 * mu)
    h = dinv.unsqueeze(-1) * f
    pulled = dinv.unsqueeze(-1) * edges.sum_at_receivers(m.unsqueeze(-1) * h.index_select(0, edges.col))
    return a, a.unsqueeze(-1) * (pulled + 2 * mu.view(-1, 1) * y)


def edge_coefficients(f: Tensor, edges: Edges, p: Tensor, penalty: Penalty, eps: float) -> Tensor:
    """``M_ij = w_ij/2 q_ij (z_i + z_j)`` as ``[E, B]``."""
    return _weigh(f, edges, p, penalty, eps).m


def factors_and_step(
    f: Tensor, y: Tensor, edges: Edges, p: Tensor, mu: Tensor, penalty: Penalty, eps: float
) -> tuple[Tensor, Tensor]:
    """``a_i`` as ``[N, B]``, and the step."""
    return _combine(f, y, edge_coefficients(f, edges, p, penalty, eps), edges, mu)


def step(f: Tensor, y: Tensor, edges: Edges, p: Tensor, mu: Tensor, penalty: Penalty, eps: float) -> Tensor:
    """One step ``F' = a D^-1/2 M D^-1/2 F + b Y``, with a and b of the receiving node."""
    return factors_and_step(f, y, edges, p, mu, penalty, eps)[1]


def step_backward(
    grad: Tensor, f: Tensor, y: Tensor, edges: Edges, p: Tensor, mu: Tensor, penalty: Penalty, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The derivatives of ``<grad, step(f, y, ..., p, mu)>`` with respect to f, y, p and mu."""
    row, col = edges.row, edges.col
    gradient, n, zero, q, node, flat, z, m = _weigh(f, edges, p, penalty, eps)
    a, out = _combine(f, y, m, edges, mu)

    # dLoss/dM_ij through the sum and through a_i
    dinv = edges.dinv.view(-1, 1)
    ag = (a * dinv).unsqueeze(-1) * grad  # [N, B, C]
    h = dinv.unsqueeze(-1) * f
    through_sum = (ag.index_select(0, row) * h.index_select(0, col)).sum(-1)
    through_a = (dinv * (ag * out).sum(-1)).index_select(0, row)
    mbar = edges.half_weight() * (through_sum - through_a)  # [E, B], with the w/2 of M

    # M = w/2 q (z_i + z_j): into q, and into the z of both ends
    qbar = mbar * (z.index_select(0, row) + z.index_select(0, col))
    zbar = edges.sum_at_receivers(mbar * q) + edges.sum_at_senders(mbar * q)  # [N, B]
    formulas, parameter = FORMULAS[penalty.name], penalty.parameter or 0.0
    node_bar = torch.where(flat, 0, zbar * formulas.dz_dx(node, p, parameter))  # dLoss/dN_i

    # n enters q = n^(p-2) and, through N_i = (sum n^p)^(1/p), the z of the receiver
    share = (n / node.index_select(0, row)) ** (p - 1)  # dN_i/dn_ij
    nbar = qbar * (p - 2) * n ** (p - 3) + node_bar.index_select(0, row) * share
    along = torch.where(zero, 0, nbar).unsqueeze(-1) * (gradient / n.unsqueeze(-1))
    df = dinv.unsqueeze(-1) * edges.sum_at_senders(m.unsqueeze(-1) * ag.index_select(0, row))
    df = df - divergence(along, edges)

    # p enters q, z at a fixed N_i, and N_i
    log_n = torch.where(zero, 0, n.log())
    dz_dp = torch.ones_like(z) if formulas.depends_on_p else -node.log() * z
    mean_log = edges.sum_at_receivers(torch.where(zero, 0, n**p) * log_n) / node**p
    dnode_dp = node * (mean_log - node.log()) / p
    dp = (qbar * q * log_n).sum(0) + (zbar * dz_dp + node_bar * dnode_dp).sum(0)

    dy = (2 * mu * a).unsqueeze(-1) * grad
    dmu = 2 * (a * (grad * (y - out)).sum(-1)).sum(0)
    return df, dy, dp, dmu


def step_as_released(f: Tensor, y: Tensor, edges: Edges, p: Tensor, mu: Tensor, eps: float, pull: float) -> Tensor:
    """The step of the released code: a of the *sending* node, and ``b = pull * mu/p * a``."""
    n, zero = _norms(edge_gradient(f, edges), eps)
    m = _powers(n, zero, p)
    if edges.weight is not None:
        m = edges.weight.view(-1, 1) * m
    dinv = edges.dinv.view(-1, 1)
    a = 1 / (dinv**2 * edges.sum_at_receivers(m) + 2 * mu / p)
    h = (a * dinv).unsqueeze(-1) * f
    pulled = dinv.unsqueeze(-1) * edges.sum_at_receivers(m.unsqueeze(-1) * h.index_select(0, edges.col))
    return pulled + (pull * mu / p * a).unsqueeze(-1) * y


def energy(f: Tensor, y: Tensor, edges: Edges, p: Tensor, mu: Tensor, penalty: Penalty, eps: float) -> Tensor:
    """``1/2 sum_i phi(N_i) + mu ||F - Y||^2``, summed over bands."""
    h = _scaled(f, edges)
    # In pieces that fit into a cache: an array over edges and channels takes longer to get than to fill.
    size = edges.col.numel() if torch.compiler.is_compiling() else max(1, _PIECE // max(1, h[:1].numel()))
    pieces = [_norms(_differences(h, piece), eps) for piece in edges.pieces(size)]
    n, zero = (torch.cat(parts) for parts in zip(*pieces, strict=True))
    if penalty.name == "power":
        smooth = torch.where(zero, 0, n**p).sum()
    else:
        node, flat = _node_norms(n, zero, p, edges)
        smooth = torch.where(flat, 0, FORMULAS[penalty.name].phi(node, p, penalty.parameter or 0.0)).sum()
    return 0.5 * smooth + (mu * ((f - y) ** 2).sum((0, 2))).sum()
