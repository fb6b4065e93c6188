"""What the layers share: finding their graph, the learnable filter of the bands, and a fixed or learnable p."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.parameter import UninitializedParameter

from ... import checks
from ...graph import Degree, Flow, Graph, GraphCache

Theta: TypeAlias = Literal["node", "channel", "band"]


class GraphLayer(torch.nn.Module):
    """A layer on a graph, called with a prepared `Graph` or with whatever `Graph` can be made from.

    Args:
        cached: keep the graph made from the last call's edges. Another graph is noticed and replaces it.
        flow: as for `Graph`.
        degree: as for `Graph`.
        laplacian_degree: as for `Graph`.
    """

    def __init__(
        self,
        cached: bool = True,
        flow: Flow = "source_to_target",
        degree: Degree = "in",
        laplacian_degree: Degree | None = None,
    ) -> None:
        super().__init__()
        self.cached = cached
        self.flow, self.degree, self.laplacian_degree = flow, degree, laplacian_degree
        self._cache = GraphCache()

    def reset_parameters(self) -> None:
        """Draw all parameters anew and forget the cached graph."""
        self._cache.clear()

    def graph(self, x: Tensor, edges: Any, edge_weight: Tensor | None) -> Graph:
        """The graph of a call."""
        where = type(self).__name__
        checks.floating_tensor(where, "x", x)
        if isinstance(edges, Graph):
            if edge_weight is not None:
                raise checks.wrong_value(where, "edge_weight", "None beside a Graph, which holds its own", edge_weight)
            graph = edges
        else:
            options = {"flow": self.flow, "degree": self.degree, "laplacian_degree": self.laplacian_degree}
            if not self.cached:
                graph = Graph(edges, x.size(0), edge_weight, **options)  # type: ignore[arg-type]
            else:
                graph = self._cache.get(edges, x.size(0), edge_weight, **options)
        if x.dim() != 2 or x.size(0) != graph.num_nodes:
            raise checks.wrong_value(where, "x", f"of shape [{graph.num_nodes}, C]", x)
        return graph


class BandFilter(torch.nn.Module):
    """The learnable filter theta: a factor per band and node, per band and channel, or per band.

    Args:
        kind: ``"node"`` (transductive: the layer then fits one graph size), ``"channel"`` or ``"band"``.
        num_bands: number of bands B.
        channels: number of channels C.
        num_nodes: number of nodes for ``"node"``; by default taken from the first input.
    """

    theta: Parameter | UninitializedParameter

    def __init__(self, kind: Theta, num_bands: int, channels: int, num_nodes: int | None) -> None:
        super().__init__()
        checks.one_of("PLUFGConv", "theta", kind, ("node", "channel", "band"))
        self.kind, self.num_bands, self.channels = kind, num_bands, channels
        if kind == "node" and num_nodes is None:
            self.theta = UninitializedParameter()
        else:
            self.theta = Parameter(torch.empty(self._shape(num_nodes or 0)))
        self.reset_parameters()

    def _shape(self, num_nodes: int) -> tuple[int, int, int]:
        return {
            "node": (num_nodes, self.num_bands, 1),
            "channel": (1, self.num_bands, self.channels),
            "band": (1, self.num_bands, 1),
        }[self.kind]

    def reset_parameters(self) -> None:
        """Draw theta from U(0.9, 1.1)."""
        if not isinstance(self.theta, UninitializedParameter):
            torch.nn.init.uniform_(self.theta, 0.9, 1.1)

    def forward(self, z: Tensor) -> Tensor:
        """Filter bands ``[N, B, C]``."""
        if isinstance(self.theta, UninitializedParameter):
            self.theta.materialize(self._shape(z.size(0)), device=z.device, dtype=z.dtype)
            self.reset_parameters()
        elif self.kind == "node" and self.theta.size(0) != z.size(0):
            raise ValueError(
                f"theta='node' holds one filter per node of one graph: expected {self.theta.size(0)} nodes, "
                f"got {z.size(0)}; use theta='channel' or 'band' for graphs of any size"
            )
        return self.theta * z

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        stored = state_dict.get(prefix + "theta")
        if isinstance(self.theta, UninitializedParameter) and isinstance(stored, Tensor):
            self.theta.materialize(stored.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)


class Exponent(torch.nn.Module):
    """The exponent p of a layer: given or learnable, one value or one per band.

    A learnable p is ``1 + softplus(raw)``, so that no step of an optimiser leaves the convex range; a start at
    p = 1 is moved up by 0.001, where the parametrisation has a gradient.
    """

    raw: Parameter | None
    values: Tensor | None

    def __init__(self, where: str, p: float | Sequence[float], learn: bool) -> None:
        super().__init__()
        self.start = [float(p)] if isinstance(p, int | float) else [float(v) for v in p]
        for value in self.start:
            checks.number(where, "p", value, above=0.0)
            if learn and value < 1:
                raise checks.wrong_value(where, "p", "at least 1 to be learnable", value)
        self.learn = learn
        self.raw = Parameter(torch.empty(len(self.start))) if learn else None
        single = len(self.start) == 1
        self.register_buffer("values", None if learn or single else torch.tensor(self.start), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Return to the value given."""
        if self.raw is not None:
            with torch.no_grad():
                self.raw.copy_(torch.tensor([math.log(math.expm1(max(v - 1, 1e-3))) for v in self.start]))

    def forward(self) -> float | Tensor:
        """The value for the operators: a number, or one value per band."""
        if self.raw is not None:
            return 1 + torch.nn.functional.softplus(self.raw)
        return self.start[0] if self.values is None else self.values

    def __repr__(self) -> str:
        shown = self.forward()
        text = f"{shown:g}" if isinstance(shown, float) else "/".join(f"{v:.3g}" for v in shown.tolist())
        return text + (" (learnable)" if self.learn else "")
