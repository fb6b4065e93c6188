"""The undecimated framelet convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import zeros

from ... import checks
from ...framelets import Framelet
from ...graph import Degree, Flow
from ...ops.backend import Backend
from .base import RECTIFIERS, BandFilter, GraphLayer, Theta


class UFGConv(GraphLayer):
    r"""The undecimated framelet convolution of `"How Framelets Enhance Graph Neural Networks"
    <https://arxiv.org/abs/2102.06986>`_, :math:`\mathcal{W}^\top \theta \mathcal{W} X \Theta`, with ReLU on the
    result or shrinkage of the high-pass coefficients.

    Args:
        in_channels: size of each input sample, or -1 to take it from the first input.
        out_channels: size of each output sample.
        framelet: name of a filter bank, filter functions, or a `Framelet`, as for `PLUFGConv`.
        activation: ``"relu"``: :math:`\max(\cdot, 0)` of the output; ``"leaky_relu"``: with a slope of 0.01 below 0,
            for outputs that are classes, of which ReLU may let one die; ``"soft"``, ``"hard"``: the filtered
            coefficients of all bands but the low-pass one are shrunk by ``threshold``.
        threshold: threshold of the shrinkage.
        levels: number of framelet levels.
        degree: degree of the Chebyshev approximation.
        dilation: dilation base of the framelets.
        scale: scaling of the Laplacian, see `Framelet`.
        theta: filter per ``"node"`` (transductive), ``"channel"`` or ``"band"`` (inductive).
        num_nodes: number of nodes for ``theta="node"``; by default taken from the first input.
        cached: keep the graph of the last call; another graph is noticed and replaces it.
        bias: learn an additive bias, before a ReLU.
        flow: see `Graph`.
        laplacian_degree: see `Graph`.
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
        framelet: str | Sequence[Any] | Framelet = "haar",
        activation: Literal["relu", "leaky_relu", "soft", "hard"] = "relu",
        threshold: float = 1e-4,
        levels: int = 1,
        degree: int = 3,
        dilation: float = 2.0,
        scale: Literal["fit", "none", "dyadic"] = "fit",
        theta: Theta = "node",
        num_nodes: int | None = None,
        cached: bool = True,
        bias: bool = True,
        flow: Flow | None = None,
        laplacian_degree: Degree | None = None,
        backend: Backend = "auto",
    ) -> None:
        super().__init__(cached, backend, flow=flow, laplacian_degree=laplacian_degree)
        checks.one_of("UFGConv", "activation", activation, (*RECTIFIERS, "soft", "hard"))
        checks.number("UFGConv", "threshold", threshold, least=0.0)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.activation, self.threshold = activation, threshold
        self.framelet = (
            framelet
            if isinstance(framelet, Framelet)
            else Framelet(framelet, levels, degree, dilation, scale, backend=backend)
        )
        self.lin = Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")
        self.filter = BandFilter("UFGConv", theta, self.framelet.num_bands, out_channels, num_nodes)
        self.bias = Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew and forget the cached graph."""
        super().reset_parameters()
        self.framelet.forget()
        self.lin.reset_parameters()
        self.filter.reset_parameters()
        zeros(self.bias)

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """``[N, in_channels] -> [N, out_channels]``."""
        g = self.graph(x, edge_index, edge_weight)
        z = self.filter(self.framelet.analysis(self.lin(x), g))  # [N, B, C]
        rectify = RECTIFIERS.get(self.activation)
        if rectify is None:
            shrink = torch.nn.functional.softshrink if self.activation == "soft" else torch.nn.functional.hardshrink
            z = torch.cat((z[:, :1], shrink(z[:, 1:], self.threshold)), dim=1)
        out = self.framelet.synthesis(z, g)
        if self.bias is not None:
            out = out + self.bias
        return out if rectify is None else rectify(out)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, framelet={self.framelet.name!r}, "
            f"activation={self.activation!r}, levels={self.framelet.levels}, degree={self.framelet.degree})"
        )
