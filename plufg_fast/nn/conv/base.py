"""What the layers share: finding their graph, the learnable filter of the bands, and a fixed or learnable p."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.parameter import UninitializedParameter

from ... import checks
from ...graph import Graph, GraphCache, check_options
from ...ops.backend import Backend, check_name
from ...ops.sums import working_type

Theta: TypeAlias = Literal["node", "channel", "band"]
RECTIFIERS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "relu": torch.relu,
    "leaky_relu": torch.nn.functional.leaky_relu,
}
"""What an output may go through."""


class GraphLayer(torch.nn.Module):
    """A layer on a graph, called with a prepared `Graph` or with whatever `Graph` can be made from.

    Args:
        cached: keep the graph made from the last call's edges. Another graph is noticed and replaces it.
        backend: which backend serves the layer's operators.
        options: what the layer asks of its `Graph`; None leaves it to the graph.
    """

    def __init__(self, cached: bool, backend: Backend, **options: str | None) -> None:
        super().__init__()
        self.graph_options = {name: value for name, value in options.items() if value is not None}
        check_options(type(self).__name__, **self.graph_options)
        check_name(type(self).__name__, backend)
        self.cached, self.backend = cached, backend
        self._cache = GraphCache()

    def reset_parameters(self) -> None:
        """Draw all parameters anew and forget the cached graph."""
        self._cache.clear()

    def __prepare_scriptable__(self) -> GraphLayer:
        # TorchScript would end in an error about annotations that tells nobody what to do.
        raise TypeError(f"{type(self).__name__}: TorchScript is not served; use torch.compile or torch.export")

    def graph(self, x: Tensor, edges: Any, edge_weight: Tensor | None) -> Graph:
        """The graph of a call."""
        where = type(self).__name__
        checks.floating_tensor(where, "x", x)
        if x.dim() != 2:
            raise checks.wrong_value(where, "x", "of shape [N, C]", x)
        if isinstance(edges, Graph):
            if edge_weight is not None:
                raise checks.wrong_value(where, "edge_weight", "None beside a Graph, which holds its own", edge_weight)
            self._check_options(where, edges)
            graph = edges
        else:
            make: Any = self._cache.get if self.cached else Graph
            graph = make(edges, x.size(0), edge_weight, **self.graph_options)
        if x.size(0) != graph.num_nodes:
            raise checks.wrong_value(where, "x", f"of shape [{graph.num_nodes}, C]", x)
        return graph

    def _check_options(self, where: str, graph: Graph) -> None:
        """A directed graph prepared otherwise than the layer asks would silently give other numbers."""
        for name, wanted in self.graph_options.items():
            if not graph.is_undirected and getattr(graph, name) != wanted:
                raise ValueError(
                    f"{where}: a directed Graph must be built with {name}={wanted!r} for this layer, "
                    f"got {getattr(graph, name)!r}"
                )


class BandFilter(torch.nn.Module):
    """The learnable filter theta: a factor per band and node, per band and channel, or per band.

    Args:
        where: the layer, for its error messages.
        kind: ``"node"`` (transductive: the layer then fits one graph size), ``"channel"`` or ``"band"``.
        num_bands: number of bands B.
        channels: number of channels C.
        num_nodes: number of nodes for ``"node"``; by default taken from the first input.
        copies: how many copies of every node the signal has, one after the other, each with a filter of its own.
    """

    theta: Parameter | UninitializedParameter

    def __init__(
        self, where: str, kind: Theta, num_bands: int, channels: int, num_nodes: int | None, copies: int = 1
    ) -> None:
        super().__init__()
        checks.one_of(where, "theta", kind, ("node", "channel", "band"))
        if num_nodes is not None:
            checks.count(where, "num_nodes", num_nodes)
        self.kind, self.num_bands, self.channels, self.copies = kind, num_bands, channels, copies
        if kind == "node" and num_nodes is None:
            self.theta = UninitializedParameter()
        else:
            self.theta = Parameter(torch.empty(self._shape(copies * (num_nodes or 0))))
        self.reset_parameters()

    def _shape(self, rows: int) -> tuple[int, int, int]:
        return {
            "node": (rows, self.num_bands, 1),
            "channel": (self.copies, self.num_bands, self.channels),
            "band": (self.copies, self.num_bands, 1),
        }[self.kind]

    def reset_parameters(self) -> None:
        """Draw theta from U(0.9, 1.1)."""
        if not isinstance(self.theta, UninitializedParameter):
            torch.nn.init.uniform_(self.theta, 0.9, 1.1)

    def forward(self, z: Tensor) -> Tensor:
        """Filter bands ``[copies * N, B, C]``."""
        if isinstance(self.theta, UninitializedParameter):
            if torch.compiler.is_compiling():
                raise RuntimeError("theta='node': give num_nodes or call the layer once before it is compiled")
            with torch.inference_mode(False):
                self.theta.materialize(self._shape(z.size(0)))
                self.reset_parameters()
        elif self.kind == "node" and self.theta.size(0) != z.size(0):
            raise ValueError(
                f"theta='node' holds one filter per node of one graph: expected {self.theta.size(0) // self.copies} "
                f"nodes, got {z.size(0) // self.copies}; use theta='channel' or 'band' for graphs of any size"
            )
        if self.copies == 1 or self.kind == "node":
            return self.theta * z
        per_copy = z.reshape(self.copies, z.size(0) // self.copies, self.num_bands, self.channels)
        return (self.theta.unsqueeze(1) * per_copy).flatten(0, 1)

    # A filter whose size is not known yet is no part of a state: there is nothing to store.

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        if not isinstance(self.theta, UninitializedParameter):
            super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        stored = state_dict.get(prefix + "theta")
        if stored is None and isinstance(self.theta, UninitializedParameter):
            return
        if isinstance(stored, Tensor) and isinstance(self.theta, UninitializedParameter):
            # A misfit in bands or channels is then reported as for every parameter.
            self.theta.materialize(self._shape(stored.size(0)))
        super()._load_from_state_dict(state_dict, prefix, *args)


class Exponent(torch.nn.Module):
    """The exponent p of a layer: given or learnable, one value or one per band.

    A learnable p is ``1 + softplus(raw)``, so that no step of an optimiser leaves the convex range; a start at
    p = 1 is moved up by 0.001, where the parametrisation has a gradient.
    """

    raw: Parameter | None
    values: Tensor | None

    def __init__(self, where: str, p: float | Sequence[float] | Tensor, learn: bool, eps: float) -> None:
        super().__init__()
        if isinstance(p, Tensor) and p.requires_grad:
            constant = "a constant (learn_p=True makes it a parameter)"
            raise checks.wrong_value(where, "p", constant, checks.Shown("a tensor that requires grad"))
        values: Any = p.tolist() if isinstance(p, Tensor) else p
        several = isinstance(values, Iterable) and not isinstance(values, str)
        given: list[Any] = list(values) if several else [values]
        checks.number(where, "eps", eps, least=0.0)
        for value in given:
            bound = {"least": 1.0} if eps == 0 or learn else {"above": 0.0}
            checks.number(where, "p", value, **bound)
        self.start = [float(value) for value in given]
        self.learn = learn
        self.raw = Parameter(torch.empty(len(self.start))) if learn else None
        single = len(self.start) == 1
        self.register_buffer("values", None if learn or single else self._exact(None), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Return to the value given."""
        if self.raw is not None:
            with torch.no_grad():
                self.raw.copy_(torch.tensor([math.log(math.expm1(max(v - 1, 1e-3))) for v in self.start]))

    def _exact(self, device: torch.device | None) -> Tensor:
        return torch.tensor(self.start, dtype=torch.float64, device=device)

    def _apply(self, *args: Any, **kwargs: Any) -> Exponent:
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        if self.values is not None:
            # Where the layer goes, the values go too; its precision is that of its weights.
            self.values = self._exact(self.values.device)
        return self

    def forward(self) -> float | Tensor:
        """The value for the operators: a number, or one value per band."""
        if self.raw is not None:
            # Half precision would not tell p = 1.003 from 1.
            return 1 + torch.nn.functional.softplus(self.raw.to(working_type(self.raw)))
        return self.start[0] if self.values is None else self.values

    def __repr__(self) -> str:
        shown = self.start[0] if len(self.start) == 1 and not self.learn else self.forward()
        if isinstance(shown, Tensor) and shown.is_meta:
            shown = torch.tensor(self.start)
        text = f"{shown:g}" if isinstance(shown, float) else "/".join(f"{v:.3g}" for v in shown.tolist())
        return text + (" (learnable)" if self.learn else "")
