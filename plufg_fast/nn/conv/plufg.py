"""The p-Laplacian regularised framelet convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import zeros

from ... import checks, ops
from ...framelets import Framelet
from ...graph import Degree, Flow, Graph
from ...ops.backend import Backend
from ...ops.plap import Gradient, Mode, Solver, check_solver
from ...penalties import Penalty
from .base import BandFilter, Exponent, GraphLayer, Theta

Variant: TypeAlias = Literal["pl-ufg1", "pl-ufg2", "pl-fufg"]
Output: TypeAlias = Literal["reconstruct", "sum"]
Cover: TypeAlias = Literal["none", "sum", "cat"]


class PLUFGConv(GraphLayer):
    r"""The p-Laplacian regularised framelet convolution of `"Generalized Laplacian Regularized Framelet Graph
    Neural Networks" <https://arxiv.org/abs/2210.15092>`_.

    With :math:`\mathcal{W}` the framelet transform, :math:`\theta` its learnable filter and
    :math:`\mathrm{plap}(Y) = \arg\min_F \frac12 \sum_i \phi(\|\nabla F(v_i)\|_p) + \mu \|F - Y\|^2`:

    ============  ==========================================================================================
    variant       output
    ============  ==========================================================================================
    ``pl-ufg1``   :math:`\sum_b \mathrm{plap}(\mathcal{W}_b^\top \theta_b \mathcal{W}_b X \Theta)`
    ``pl-ufg2``   :math:`\mathrm{plap}(\sum_b \mathcal{W}_b^\top \theta_b \mathcal{W}_b X \Theta)`
    ``pl-fufg``   :math:`\sum_b \mathcal{W}_b^\top \mathrm{plap}(\theta_b \mathcal{W}_b X \Theta)`, or the sum
                  without :math:`\mathcal{W}_b^\top` for ``output="sum"``
    ============  ==========================================================================================

    Args:
        in_channels: size of each input sample, or -1 to take it from the first input.
        out_channels: size of each output sample.
        variant: see above.
        p: exponent, at least 1: one value, or one per band for ``pl-ufg1`` and ``pl-fufg``.
        mu: weight of the source term, above 0.
        penalty: ``"power"``, ``"tikhonov"``, ``"tv"``, ``"rtv"``, ``"nldiff"`` or a `Penalty`.
        warmup: steps of the iteration without gradient, as in the paper: the gradient is that of the last ``steps``,
            which for a small ``mu`` is not that of all. ``warmup=0`` or ``grad="implicit"`` give the whole one.
        steps: steps with gradient.
        framelet: name of a filter bank, filter functions, or a `Framelet`, which then overrides ``levels``,
            ``degree``, ``dilation``, ``scale`` and ``backend`` of the transform.
        levels: number of framelet levels.
        degree: degree of the Chebyshev approximation.
        dilation: dilation base of the framelets.
        scale: scaling of the Laplacian, see `Framelet`.
        theta: filter per ``"node"`` (the paper's; transductive), ``"channel"`` or ``"band"`` (inductive).
        num_nodes: number of nodes for ``theta="node"``; by default taken from the first input (as with
            ``in_channels=-1``, call the layer once before handing its parameters to an optimiser or compiling it).
        learn_p: make p a parameter (as many values as given).
        output: of ``pl-fufg``: ``"reconstruct"`` or ``"sum"``.
        cached: keep the graph of the last call; another graph is noticed and replaces it.
        bias: learn an additive bias.
        tol: see `ops.plap_solve`.
        solver: see `ops.plap_solve`.
        grad: see `ops.plap_solve`.
        mode: see `ops.plap_solve`; ``"released"`` also normalises the Laplacian by out-degree and takes
            unweighted graphs only, as the released code does.
        eps: smoothing of the edge norms.
        flow: see `Graph`.
        node_degree: ``degree`` of the `Graph`.
        laplacian_degree: see `Graph`.
        cover: for directed graphs: work on `Graph.cover`, where every node has a copy that receives and one that
            sends, each with weights and a filter of its own, and then add the two (``"sum"``) or put them side by side
            (``"cat"``: half of ``out_channels`` each, the receiving copies first); ``"none"`` takes the graph as it is.
            Which degree counts, ``node_degree`` and ``laplacian_degree``, makes no difference on a cover.
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
        variant: Variant = "pl-ufg2",
        p: float | Sequence[float] = 1.5,
        mu: float = 1.0,
        penalty: str | Penalty = "power",
        warmup: int = 10,
        steps: int = 4,
        framelet: str | Sequence[Any] | Framelet = "linear",
        levels: int = 1,
        degree: int = 3,
        theta: Theta = "node",
        num_nodes: int | None = None,
        learn_p: bool = False,
        output: Output = "reconstruct",
        cached: bool = True,
        bias: bool = True,
        dilation: float = 2.0,
        scale: Literal["fit", "none", "dyadic"] = "fit",
        tol: float | None = None,
        solver: Solver = "jacobi",
        grad: Gradient = "unroll",
        mode: Mode = "paper",
        eps: float = 0.0,
        flow: Flow | None = None,
        node_degree: Degree | None = None,
        laplacian_degree: Degree | None = None,
        cover: Cover = "none",
        backend: Backend = "auto",
    ) -> None:
        if mode == "released" and laplacian_degree is None:
            laplacian_degree = "out"
        super().__init__(cached, backend, flow=flow, degree=node_degree, laplacian_degree=laplacian_degree)
        checks.one_of("PLUFGConv", "variant", variant, ("pl-ufg1", "pl-ufg2", "pl-fufg"))
        checks.one_of("PLUFGConv", "output", output, ("reconstruct", "sum"))
        checks.one_of("PLUFGConv", "cover", cover, ("none", "sum", "cat"))
        if cover == "cat" and out_channels % 2:
            raise checks.wrong_value(
                "PLUFGConv", "out_channels", "even for cover='cat', a half for each copy", out_channels
            )
        checks.number("PLUFGConv", "mu", mu, above=0.0)
        check_solver("PLUFGConv", penalty, warmup, steps, tol, solver, grad, mode)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.variant, self.output, self.cover, self.mu, self.penalty = variant, output, cover, mu, penalty
        self.warmup, self.steps, self.tol = warmup, steps, tol
        self.solver, self.grad, self.mode, self.eps = solver, grad, mode, eps
        self.framelet = (
            framelet
            if isinstance(framelet, Framelet)
            else Framelet(framelet, levels, degree, dilation, scale, backend=backend)
        )
        bands = 1 if variant == "pl-ufg2" else self.framelet.num_bands
        self.p = Exponent("PLUFGConv", p, learn_p, eps)
        if len(self.p.start) not in (1, bands):
            more = f" or {bands}, for the bands that it smooths" if bands > 1 else ""
            raise ValueError(f"PLUFGConv: p must be one value for {variant}{more}, got {len(self.p.start)} values")
        copies, width = (1 if cover == "none" else 2), (out_channels // 2 if cover == "cat" else out_channels)
        self.lin = Linear(in_channels, copies * width, bias=False, weight_initializer="glorot")
        self.filter = BandFilter("PLUFGConv", theta, self.framelet.num_bands, width, num_nodes, copies)
        self.bias = Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew and forget the cached graph."""
        super().reset_parameters()
        self.framelet.forget()
        self.lin.reset_parameters()
        self.filter.reset_parameters()
        self.p.reset_parameters()
        zeros(self.bias)

    def graph(self, x: Tensor, edges: Any, edge_weight: Tensor | None) -> Graph:
        """The graph that the layer works on."""
        g = super().graph(x, edges, edge_weight)
        return g if self.cover == "none" else g.cover()

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """``[N, in_channels] -> [N, out_channels]``."""
        g = self.graph(x, edge_index, edge_weight)
        if self.mode == "released" and g.weight is not None:
            raise ValueError(f"PLUFGConv: mode 'released' must be used with an unweighted graph, got {g}")
        f = self._smooth(self.source(x, g), g)
        if self.variant == "pl-fufg" and self.output == "reconstruct":
            out = self.framelet.synthesis(f, g)
        else:
            out = f if f.dim() == 2 else f.sum(1)
        if self.cover != "none":
            received, sent = out.tensor_split(2)
            out = received + sent if self.cover == "sum" else torch.cat((received, sent), dim=1)
        return out if self.bias is None else out + self.bias

    def source(self, x: Tensor, g: Graph) -> Tensor:
        """What is smoothed on the layer's graph: filtered bands ``[N, B, C]``, of ``pl-ufg2`` their sum ``[N, C]``.

        On a cover N counts all copies.
        """
        h = self.lin(x)
        if self.cover != "none":
            h = torch.cat(h.tensor_split(2, dim=1))
        z = self.filter(self.framelet.analysis(h, g))  # [N, B, C]
        return z if self.variant == "pl-fufg" else self.framelet.synthesis(z, g, sum_bands=self.variant == "pl-ufg2")

    def _smooth(self, y: Tensor, g: Any) -> Tensor:
        smooth: Tensor = ops.plap_solve(
            y,
            g,
            self.p(),
            self.mu,
            self.penalty,
            self.warmup,
            self.steps,
            self.tol,
            self.solver,
            self.grad,
            self.mode,
            eps=self.eps,
            backend=self.backend,
        )
        return smooth

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, variant={self.variant!r}, "
            f"p={self.p!r}, mu={self.mu:g}, framelet={self.framelet.name!r}, levels={self.framelet.levels}, "
            f"degree={self.framelet.degree}{'' if self.cover == 'none' else f', cover={self.cover!r}'})"
        )
