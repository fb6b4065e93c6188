"""The Chebyshev convolution."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import zeros

from ... import checks
from ...graph import Flow, Graph
from ...ops.backend import Backend
from ...ops.cheb import chebyshev_recurrence, laplacian, reference, stepper
from ...ops.cheb.reference import Laplacian
from ...ops.sums import working_type
from .base import GraphLayer


class ChebConv(GraphLayer):
    r"""The Chebyshev convolution of `"Convolutional Neural Networks on Graphs with Fast Localized Spectral
    Filtering" <https://arxiv.org/abs/1606.09375>`_: :math:`\sum_{k<K} T_k(2L/\lambda_{max} - I) X \Theta_k`.

    A replacement for :class:`torch_geometric.nn.ChebConv`: the same arguments (of those of ``MessagePassing`` only
    ``flow``), parameters (state_dicts load either way) and numbers, without an array over edges and channels. Edge
    weights and eigenvalues get no gradient and are refused where they require one; so are negative weights.

    Args:
        in_channels: size of each input sample, or -1 to take it from the first input.
        out_channels: size of each output sample.
        K: number of polynomials (degree K - 1).
        normalization: ``"sym"``: :math:`L = I - D^{-1/2} A D^{-1/2}`, ``"rw"``: :math:`L = I - D^{-1} A`, ``None``:
            :math:`L = D - A`; D sums over the edges that leave a node.
        bias: learn an additive bias.
        cached: keep the graph of the last call; another graph is noticed and replaces it.
        flow: see `Graph`.
        backend: ``"auto"``, ``"reference"``, ``"cpp"`` or ``"triton"``.

    Shapes:
        - **input:** node features :math:`(*, |\mathcal{V}|, F_{in})`, a `Graph` or edge indices
          :math:`(2, |\mathcal{E}|)`, edge weights :math:`(|\mathcal{E}|)` *(optional)*, batch vector
          :math:`(|\mathcal{V}|)` *(optional)*, largest eigenvalue, one or one per graph *(optional)*
        - **output:** node features :math:`(*, |\mathcal{V}|, F_{out})`
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        K: int,
        normalization: Literal["sym", "rw"] | None = "sym",
        bias: bool = True,
        cached: bool = True,
        flow: Flow = "source_to_target",
        backend: Backend = "auto",
    ) -> None:
        # PyG sums degrees over row 0 of edge_index, whichever way messages flow.
        laplacian_degree = "out" if flow == "source_to_target" else "in"
        super().__init__(cached, backend, flow=flow, laplacian_degree=laplacian_degree)
        checks.count("ChebConv", "K", K, least=1)
        if normalization is not None:
            checks.one_of("ChebConv", "normalization", normalization, ("sym", "rw"))
        self.in_channels, self.out_channels, self.K = in_channels, out_channels, K
        self.normalization = normalization
        self.lins = torch.nn.ModuleList(
            Linear(in_channels, out_channels, bias=False, weight_initializer="glorot") for _ in range(K)
        )
        self.bias = Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew and forget the cached graph."""
        super().reset_parameters()
        for lin in self.lins:
            lin.reset_parameters()  # type: ignore[operator]
        zeros(self.bias)

    def forward(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        lambda_max: float | Tensor | None = None,
    ) -> Tensor:
        """``[..., N, in_channels] -> [..., N, out_channels]``."""
        if x.dim() < 2:
            raise checks.wrong_value("ChebConv", "x", "of shape [..., N, C]", x)
        # Nodes first: signals of several samples on one graph are further channels to the recurrence.
        x = x.movedim(-2, 0) if x.dim() > 2 else x  # [N, ..., C]
        g = self.graph(x.flatten(1), edge_index, edge_weight)
        work = working_type(x)
        # The recurrence runs in L' = 2 L / lambda_max, so that per-graph eigenvalues need nothing special.
        apply = stepper("ChebConv", self._laplacian(g, work, batch, lambda_max), self.backend)
        recurrence = [(a, b - a, c) for a, b, c in chebyshev_recurrence(self.K - 1)]
        out: Tensor
        if x.size(-1) <= self.out_channels:
            terms = reference.basis(x.to(work), apply, recurrence)
            out = sum(lin(term.to(x.dtype)) for lin, term in zip(self.lins, terms, strict=True))
        else:
            # The sweep from the highest degree down works on the narrower output side.
            out = reference.clenshaw(lambda k: self.lins[k](x).to(work), apply, recurrence)
        out = out.to(x.dtype)
        out = out.movedim(0, -2) if out.dim() > 2 else out
        return out if self.bias is None else out + self.bias

    def _laplacian(
        self, g: Graph, dtype: torch.dtype, batch: Tensor | None, lambda_max: float | Tensor | None
    ) -> Laplacian:
        """``2 L / lambda_max`` in the chosen normalisation."""
        lap = laplacian(g, dtype)
        # A node that is isolated in this precision is so here.
        dinv = torch.where(g.values(dtype)[2] > 0, g.values(torch.float64)[2], 0)
        left: Tensor = dinv
        right: Tensor = dinv
        diag: Tensor = torch.ones_like(dinv)
        if self.normalization == "rw":
            # PyG scales a message by the degree of row 0 of edge_index. The flow is the layer's: an undirected Graph
            # may have been built with either.
            ones = torch.ones_like(dinv)
            along = self.graph_options["flow"] == "source_to_target"
            left, right = (ones, dinv**2) if along else (dinv**2, ones)
        elif self.normalization is None:
            left = right = torch.ones_like(dinv)
            diag = torch.where(dinv > 0, dinv**-2, 0)
        if lambda_max is None:
            factor = 1 / diag.amax() if self.normalization is None and g.num_edges else diag.new_ones(())
        else:
            if isinstance(lambda_max, Tensor):
                checks.constant("ChebConv", "lambda_max", lambda_max)
            top = torch.as_tensor(lambda_max, dtype=torch.float64, device=g.device)
            checks.all_true("ChebConv", "lambda_max", "finite and above 0", (top > 0) & top.isfinite(), top)
            if top.numel() > 1:
                if batch is None or batch.shape != dinv.shape:
                    shape = f"given with one lambda_max per graph, of shape [{g.num_nodes}]"
                    raise checks.wrong_value("ChebConv", "batch", shape, batch)
                top = top[batch]
            factor = 2 / top
        return lap._replace(left=(factor * left).to(dtype), right=right.to(dtype), diag=(factor * diag).to(dtype))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, K={self.K}, "
            f"normalization={self.normalization})"
        )
