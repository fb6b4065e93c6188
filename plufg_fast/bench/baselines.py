"""What the kernels are measured against: the products of torch and PyG, and the layer as its released code has it.

Our own reference is a baseline, too; it lives with the operators (``backend="reference"``).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from scipy import sparse
from torch import Tensor
from torch_geometric.nn import SimpleConv
from torch_geometric.utils import scatter

from .. import ops
from ..framelets import Framelet
from ..graph import Graph, expand_rows
from ..nn import PLUFGConv


def gather_sum(x: Tensor, g: Graph) -> Tensor:
    """``sum_j x_j`` over neighbours by our kernel: nothing that reads the rows of x once per edge can be faster."""
    t = g.transpose()
    nothing = None  # neither weights nor factors: alpha L x + beta x is then the bare sum for alpha = -1, beta = 1
    out: Tensor = torch.ops.plufg.cheb_step(
        x, None, g.rowptr, g.col, nothing, t.rowptr, t.col, nothing, nothing, nothing, nothing, -1.0, 1.0, 0.0
    )
    return out


def step_in_cache(g: Graph, p: float, mu: float) -> Callable[[Tensor, Tensor], Tensor]:
    """The p-step of f and y along as many edges as g has, whose neighbours are 64 rows that stay in the first cache.

    It costs what the arithmetic costs: the same instructions along the edges of g cannot be faster.
    """
    edges = g.rowptr, g.col % min(64, g.num_nodes), None
    scale, exponent, source = g.values(torch.float32)[1], torch.tensor([p]), torch.tensor([mu])

    def step(f: Tensor, y: Tensor) -> Tensor:
        signals = f.unsqueeze(1), y.unsqueeze(1)
        out: Tensor = torch.ops.plufg.plap_step(*signals, *edges, *edges, scale, exponent, source, 0.0, 0, 0.0)[0]
        return out.squeeze(1)

    return step


def adjacency_values(g: Graph, dtype: torch.dtype) -> Tensor:
    """The stored entries of ``D^-1/2 W D^-1/2``, 0 for self-loops."""
    weight, _, dinv = g.values(dtype)
    row = expand_rows(g.rowptr, g.col)
    values = dinv[row] * dinv[g.col] * (row != g.col)
    return values if weight is None else weight * values


def csr(rowptr: Tensor, col: Tensor, values: Tensor, num_nodes: int) -> Tensor:
    """A square matrix whose product with a dense one torch hands to MKL, where it has MKL."""
    with warnings.catch_warnings():
        # That the layout is in beta is known.
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(rowptr, col, values, (num_nodes, num_nodes))


def adjacency(g: Graph, dtype: torch.dtype = torch.float32) -> Tensor:
    """``D^-1/2 W D^-1/2`` as torch's own CSR matrix."""
    return csr(g.rowptr, g.col, adjacency_values(g, dtype), g.num_nodes)


def message_passing(g: Graph, dtype: torch.dtype = torch.float32) -> Callable[[Tensor], Tensor]:
    """The product with ``D^-1/2 W D^-1/2`` as PyG's layers take it: gather, scale, scatter, in arrays over edges."""
    layer, edges, weight = SimpleConv(aggr="sum"), g.edge_index, adjacency_values(g, dtype)
    return lambda x: layer(x, edges, weight)


class TracedConv(PLUFGConv):
    """The layer on the reference path with all its steps in the open, so that `torch.compile` compiles them all.

    The package's own warm-up is one opaque operator, which would be left as it is.
    """

    def __init__(self, in_channels: int, out_channels: int, **options: Any) -> None:
        super().__init__(in_channels, out_channels, backend="reference", **options)

    def _smooth(self, y: Tensor, g: Graph) -> Tensor:
        f = y.detach()
        with torch.no_grad():
            for _ in range(self.warmup):
                f = ops.plap_step(f, y, g, self.p(), self.mu, backend="reference")
        for _ in range(self.steps):
            f = ops.plap_step(f, y, g, self.p(), self.mu, backend="reference")
        return f


class _SymmetricProduct(torch.autograd.Function):
    """The product with a symmetric sparse matrix, whose gradient is a product with the same matrix."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, x: Tensor) -> Tensor:
        ctx.matrix = matrix
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, ctx.matrix @ grads[0]


class ExplicitFramelet(Framelet):
    """A framelet transform of one level by explicit matrices: every filter a polynomial of L, multiplied out once.

    The matrices fill up with the degree: those of degree 3 hold most pairs of nodes of a dense graph. They are kept
    as CSR, which torch multiplies ten times as fast as the COO of the released code.

    Args:
        g: an undirected graph, the only one it serves.
        degree: degree of the polynomials.
    """

    #: Left to itself, torch builds the transpose anew for every gradient, as it does for the released code. The
    #: matrices are symmetric: they can serve instead.
    own_gradient = False

    def __init__(self, g: Graph, degree: int = 3) -> None:
        super().__init__("linear", levels=1, degree=degree)
        self.operators = [
            csr(torch.from_numpy(w.indptr), torch.from_numpy(w.indices), torch.from_numpy(w.data), g.num_nodes)
            for w in self._polynomials(g)
        ]

    def with_own_gradient(self) -> ExplicitFramelet:
        """The same transform, on the same matrices, which are used for the gradient, too."""
        other = copy.copy(self)
        other.own_gradient = True
        return other

    def _apply(self, operator: Tensor, x: Tensor) -> Tensor:
        if not self.own_gradient:
            return operator @ x
        out: Tensor = _SymmetricProduct.apply(operator, x)  # type: ignore[no-untyped-call]
        return out

    def _polynomials(self, g: Graph) -> list[Any]:
        values = adjacency_values(g, torch.float32)
        shape = (g.num_nodes, g.num_nodes)
        across = sparse.csr_matrix((values.numpy(), g.col.numpy(), g.rowptr.numpy()), shape)
        identity = sparse.identity(g.num_nodes, "float32", "csr")
        # Lhat = 2/pi scale L - I
        factor = 2 / torch.pi * self._scales(g)[0]
        shifted = (factor - 1) * identity - factor * across
        coeffs = self.coeffs.float().numpy()
        before, term = identity, shifted
        filters = [c[0] / 2 * before + c[1] * term for c in coeffs]
        for k in range(2, self.degree + 1):
            before, term = term, 2 * shifted @ term - before
            filters = [w + c[k] * term for w, c in zip(filters, coeffs, strict=True)]
        for w in filters:
            w.sort_indices()
        return filters

    def analysis(self, x: Tensor, g: Graph) -> Tensor:
        """``[N, C] -> [N, B, C]``."""
        return torch.stack([self._apply(operator, x) for operator in self.operators], dim=1)

    def synthesis(self, z: Tensor, g: Graph, sum_bands: bool = True) -> Tensor:
        """``[N, B, C] -> [N, C]``, by the same matrices."""
        parts = [self._apply(operator, z[:, band]) for band, operator in enumerate(self.operators)]
        return torch.stack(parts, dim=1).sum(1) if sum_bands else torch.stack(parts, dim=1)


def released_step(f: Tensor, y: Tensor, edge_index: Tensor, dinv: Tensor, p: float, mu: float) -> Tensor:
    """The p-step of the released code on ``[N, C]`` signals, in arrays over edges and channels.

    As there, its derivative is NaN where an edge gradient is zero.
    """
    sender, receiver = edge_index
    h = dinv.view(-1, 1) * f
    norm = (h[sender] - h[receiver]).norm(dim=1)  # of [E, C]
    m = norm ** (p - 2)
    m = torch.where(m.isinf(), 0, m)
    a = 1 / (dinv**2 * scatter(m, receiver, 0, f.size(0)) + 2 * mu / p)
    factor = m * dinv[receiver] * (a * dinv)[sender]  # a of the sending node
    pulled = scatter(factor.view(-1, 1) * f[sender], receiver, 0, f.size(0))
    out: Tensor = pulled + (4 * mu / p * a).view(-1, 1) * y
    return out


class ReleasedConv(PLUFGConv):
    """pL-UFG2 as its released code computes it: explicit framelet matrices, a p-step over arrays of edges.

    Its parameters are those of `PLUFGConv`, its numbers those of ``mode="released"``.
    """

    def __init__(
        self, in_channels: int, out_channels: int, g: Graph, framelet: ExplicitFramelet, **options: Any
    ) -> None:
        super().__init__(in_channels, out_channels, "pl-ufg2", framelet=framelet, mode="released", **options)
        self.edge_index, self.dinv = g.edge_index, g.values(torch.float32)[1]

    def _smooth(self, y: Tensor, g: Graph) -> Tensor:
        (p,) = self.p.start
        f = y.detach()
        with torch.no_grad():
            for _ in range(self.warmup):
                f = released_step(f, y, self.edge_index, self.dinv, p, self.mu)
        for _ in range(self.steps):
            f = released_step(f, y, self.edge_index, self.dinv, p, self.mu)
        return f
