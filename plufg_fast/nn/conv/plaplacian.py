"""The p-Laplacian convolution."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import zeros

from ... import checks, ops
from ...graph import Degree, Flow
from ...ops.backend import Backend
from ...ops.plap import Gradient, Mode, Solver, check_solver
from ...penalties import Penalty
from .base import Exponent, GraphLayer


class PLaplacianConv(GraphLayer):
    r"""The p-Laplacian message passing of `"p-Laplacian Based Graph Neural Networks"
    <https://arxiv.org/abs/2111.07337>`_: :math:`Y = X \Theta`, then K steps of
    :math:`F \leftarrow \alpha D^{-1/2} M D^{-1/2} F + \beta Y` from :math:`F = Y`.

    Args:
        in_channels: size of each input sample, or -1 to take it from the first input.
        out_channels: size of each output sample.
        K: number of steps, all with gradient.
        p: exponent, at least 1.
        mu: weight of the source term, above 0.
        penalty: as for `PLUFGConv`.
        learn_p: make p a parameter.
        cached: keep the graph of the last call; another graph is noticed and replaces it.
        bias: learn an additive bias.
        tol: see `ops.plap_solve`.
        solver: see `ops.plap_solve`.
        grad: see `ops.plap_solve`.
        mode: ``"paper"`` takes :math:`\alpha` at the receiving node, as the theorem has it; ``"pgnn"`` at the
            sending node, which gives the numbers of the released pGNN code.
        eps: smoothing of the edge norms.
        flow: see `Graph`.
        node_degree: ``degree`` of the `Graph`.
        backend: ``"auto"``, ``"reference"``, ``"cpp"`` or ``"triton"``.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})`, a `Graph` or edge indices
          :math:`(2, |\mathcal{E}|)`, edge weights :math:`(|\mathcal{E}|)` *(optional)*
        - **output:** node features :math:`(|\mathcal{V}|, F_{out})`
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        K: int,
        p: float,
        mu: float,
        penalty: str | Penalty = "power",
        learn_p: bool = False,
        cached: bool = True,
        bias: bool = True,
        tol: float | None = None,
        solver: Solver = "jacobi",
        grad: Gradient = "unroll",
        mode: Mode = "paper",
        eps: float = 0.0,
        flow: Flow | None = None,
        node_degree: Degree | None = None,
        backend: Backend = "auto",
    ) -> None:
        super().__init__(cached, backend, flow=flow, degree=node_degree)
        checks.count("PLaplacianConv", "K", K, least=1)
        checks.number("PLaplacianConv", "mu", mu, above=0.0)
        check_solver("PLaplacianConv", penalty, 0, K, tol, solver, grad, mode)
        self.in_channels, self.out_channels, self.K = in_channels, out_channels, K
        self.mu, self.penalty, self.tol = mu, penalty, tol
        self.solver, self.grad, self.mode, self.eps = solver, grad, mode, eps
        self.p = Exponent("PLaplacianConv", p, learn_p, eps)
        if len(self.p.start) != 1:
            raise ValueError(f"PLaplacianConv: p must be one value, got {len(self.p.start)}")
        self.lin = Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")
        self.bias = Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew and forget the cached graph."""
        super().reset_parameters()
        self.lin.reset_parameters()
        self.p.reset_parameters()
        zeros(self.bias)

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """``[N, in_channels] -> [N, out_channels]``."""
        g = self.graph(x, edge_index, edge_weight)
        out: Tensor = ops.plap_solve(
            self.lin(x),
            g,
            self.p(),
            self.mu,
            self.penalty,
            0,
            self.K,
            self.tol,
            self.solver,
            self.grad,
            self.mode,
            eps=self.eps,
            backend=self.backend,
        )
        return out if self.bias is None else out + self.bias

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, K={self.K}, p={self.p!r}, mu={self.mu:g})"
        )
