"""The networks of the paper's tables: node classifiers of one signature.

Every network is ``Model(in_channels, hidden_channels, out_channels, *, dropout, ...)``, and its
``forward(x, edge_index, edge_weight=None)`` returns log-probabilities ``[N, out_channels]``; a `Graph` may take the
place of ``edge_index``. All of them take a sparse CSR matrix as ``x`` (:mod:`plufg_fast.nn.sparse`): the first thing
each does with it is a linear map.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, JumpingKnowledge

from .. import checks
from ..graph import Graph, expand_rows, may_keep
from ..ops.cheb import laplacian, stepper
from ..ops.cheb.reference import Laplacian, Step
from ..ops.sums import working_type
from .conv import PLaplacianConv, PLUFGConv, UFGConv
from .conv.base import RECTIFIERS, GraphLayer
from .sparse import InputLinear, dropout

EdgesOrGraph: TypeAlias = Tensor | Graph


class _Network(nn.Module, ABC):
    """What all networks share: their sizes, dropout, resetting, and log-softmax at the end."""

    takes_sparse_features: ClassVar[bool] = True

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, dropout: float) -> None:
        super().__init__()
        self._check_share("dropout", dropout)
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.dropout = dropout

    def _check_share(self, name: str, value: float) -> None:
        where = type(self).__name__
        checks.number(where, name, value)
        if not 0.0 <= value < 1.0:
            raise checks.wrong_value(where, name, "at least 0 and below 1", value)

    @abstractmethod
    def _logits(self, x: Tensor, graph: EdgesOrGraph, edge_weight: Tensor | None) -> Tensor:
        """``[N, out_channels]`` before the log-softmax."""

    def forward(self, x: Tensor, edge_index: EdgesOrGraph, edge_weight: Tensor | None = None) -> Tensor:
        """Log-probabilities ``[N, out_channels]`` of nodes with features ``x`` ``[N, in_channels]``."""
        return F.log_softmax(self._logits(x, edge_index, edge_weight), dim=-1)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        for child in self.children():
            modules: Iterable[Any] = child if isinstance(child, nn.ModuleList) else (child,)
            for module in modules:
                module.reset_parameters()

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.training)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.hidden_channels}, {self.out_channels},"
            f" dropout={self.dropout}{''.join(f', {key}={value}' for key, value in self._traits().items())})"
        )

    def _traits(self) -> dict[str, Any]:
        """What to show of this network besides its sizes."""
        return {}


class _Smoothing(GraphLayer):
    r"""Products with :math:`A = \tilde D^{-1/2} (W + I) \tilde D^{-1/2}`, GCN's matrix.

    As in PyG's ``gcn_norm``, :math:`\tilde D` holds in-degrees, and a node that has a self-loop gets no other (the
    weights of several are summed). The matrix is not made: to this package's kernels it is a Laplacian with another
    diagonal.
    """

    def __init__(self) -> None:
        super().__init__(True, "auto", flow="source_to_target", laplacian_degree="in")
        self._last: tuple[Graph, torch.dtype, Laplacian] | None = None

    def reset_parameters(self) -> None:
        """Forget the cached graph."""
        super().reset_parameters()
        self._last = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}

    def forward(self, x: Tensor, edges: EdgesOrGraph, edge_weight: Tensor | None) -> Step:
        """The function ``(x, other, a, b, c) -> a A x + b x + c other`` of signals like ``x``."""
        g, work = self.graph(x, edges, edge_weight), working_type(x)
        last = self._last
        if last is None or last[0] is not g or last[1] != work:
            # Training may follow a first call in inference mode.
            with torch.inference_mode(False):
                last = g, work, self._matrix(g, work)
            if may_keep():
                self._last = last
        step = stepper("smoothing", last[2], self.backend)

        def smooth(x: Tensor, other: Tensor | None, a: float, b: float, c: float) -> Tensor:
            out: Tensor = step(x.to(work), None if other is None else other.to(work), a, b, c)
            return out.to(x.dtype)

        return smooth

    def _matrix(self, g: Graph, dtype: torch.dtype) -> Laplacian:
        scale = g.values(torch.float64)[2]
        loops = torch.ones_like(scale)
        if g.has_self_loops:
            at = expand_rows(g.rowptr, g.col) == g.col
            loops[g.col[at].long()] = 1.0 if g.weight is None else g.weight[at].double()
        # Degrees without self-loops; they are 0 where their inverse root is.
        degree = torch.where(scale > 0, scale**-2, 0) + loops
        scale = torch.where(degree > 0, degree**-0.5, 0)
        # The kernels subtract the edges to other nodes from the diagonal.
        left, right, diag = (t.to(dtype) for t in (-scale, scale, loops * scale**2))
        return laplacian(g, dtype)._replace(left=left, right=right, diag=diag)


class _GCNLayer(nn.Module):
    """A linear map, the sum over neighbours, a bias."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = InputLinear(in_channels, out_channels, bias=False, weight_initializer="glorot")
        self.smoothing = _Smoothing()
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def reset_parameters(self) -> None:
        """Draw all parameters anew and forget the cached graph."""
        self.lin.reset_parameters()
        self.smoothing.reset_parameters()
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, graph: EdgesOrGraph, edge_weight: Tensor | None) -> Tensor:
        """``[N, in_channels] -> [N, out_channels]``."""
        x = self.lin(x)
        smooth: Step = self.smoothing(x, graph, edge_weight)
        return smooth(x, None, 1.0, 0.0, 0.0) + self.bias


class _ConvNetwork(_Network):
    """Dropout - linear - ReLU - dropout - convolution, and a last linear map unless that ends in the classes.

    With ``labels`` it is also told the classes of some nodes, ``known``, and adds a learned vector per class to what
    these nodes bring into the convolution, as in `Shi et al. <https://arxiv.org/abs/2009.03509>`_. Train it on nodes
    whose classes it is not told: of its own class a node would learn nothing else.
    """

    conv_class: ClassVar[type[nn.Module]]

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        dropout: float,
        input_dropout: float,
        head: bool,
        labels: bool,
        **conv_options: Any,
    ) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, dropout)
        self._check_share("input_dropout", input_dropout)
        self.input_dropout = input_dropout
        self.lin = InputLinear(in_channels, hidden_channels)
        self.label_lin = nn.Linear(out_channels, hidden_channels, bias=False) if labels else None
        self.conv = self.conv_class(hidden_channels, hidden_channels if head else out_channels, **conv_options)
        self.head = nn.Linear(hidden_channels, out_channels) if head else None

    @property
    def takes_labels(self) -> bool:
        """Whether ``forward`` has to be given ``known``."""
        return self.label_lin is not None

    def forward(
        self, x: Tensor, edge_index: EdgesOrGraph, edge_weight: Tensor | None = None, known: Tensor | None = None
    ) -> Tensor:
        """Log-probabilities ``[N, out_channels]`` of nodes with features ``x`` ``[N, in_channels]``.

        ``known`` ``[N]`` is for a network with ``labels``: the classes that it may know, and -1 for all other nodes.
        """
        return F.log_softmax(self._logits(x, edge_index, edge_weight, known), dim=-1)

    def _logits(
        self, x: Tensor, graph: EdgesOrGraph, edge_weight: Tensor | None, known: Tensor | None = None
    ) -> Tensor:
        hidden = self._drop(self.lin(dropout(x, self.input_dropout, self.training)).relu())
        self._check_known(known, hidden.size(0))
        if self.label_lin is not None and known is not None:
            # A row of zeros in front, for nodes of no known class.
            hidden = hidden + F.embedding(known + 1, F.pad(self.label_lin.weight.t(), (0, 0, 1, 0)))
        out = self._convolve(hidden, graph, edge_weight)
        return out if self.head is None else self.head(out)

    def _check_known(self, known: Tensor | None, num_nodes: int) -> None:
        where = type(self).__name__
        if (known is None) == self.takes_labels:
            wanted = (
                "a class or -1 for every node, with labels=True" if self.takes_labels else "None without labels=True"
            )
            raise checks.wrong_value(where, "known", wanted, known)
        if known is None:
            return
        if known.dtype not in (torch.int32, torch.int64):
            raise checks.wrong_type(where, "known", "a tensor of int32 or int64", known)
        if known.shape != (num_nodes,):
            raise checks.wrong_value(where, "known", f"of shape [{num_nodes}]", known)
        # Elsewhere the look would wait for the device, whose own check it is then.
        if known.device.type == "cpu" and not torch.compiler.is_compiling() and known.numel():
            low, high = (int(value) for value in known.aminmax())
            if low < -1 or high >= self.out_channels:
                wanted = f"of classes from 0 to {self.out_channels - 1}, or -1"
                raise checks.wrong_value(where, "known", wanted, low if low < -1 else high)

    def _convolve(self, x: Tensor, graph: EdgesOrGraph, edge_weight: Tensor | None) -> Tensor:
        out: Tensor = self.conv(x, graph, edge_weight)
        return out

    def _traits(self) -> dict[str, Any]:
        return {"conv": self.conv, **({"labels": True} if self.takes_labels else {})}


class PLUFG(_ConvNetwork):
    """pL-UFG1, pL-UFG2 or pL-fUFG: framelet bands smoothed by the p-Laplacian.

    Args:
        in_channels: Features per node.
        hidden_channels: Channels the convolution works on.
        out_channels: Classes.
        dropout: Share of hidden values dropped in training.
        input_dropout: Share of features dropped in training.
        head: Whether a linear map from hidden channels to classes follows the convolution. Without it the convolution
            itself ends in the classes and smooths predictions, as p-GNN and APPNP do, which is faster: there are fewer
            classes than hidden channels.
        activation: What the convolution's output goes through: ``"none"``, as in the paper, ``"relu"``, as in UFG, or
            ``"leaky_relu"``. Without a head ReLU may let a class die: no node is ever of it, nor brings it back.
        labels: Whether ``forward`` takes ``known``, classes of nodes, as further input.
        conv_options: Keywords of :class:`~plufg_fast.nn.PLUFGConv`: ``variant``, ``p``, ``mu``, ``theta`` ...
            (its default ``theta="node"`` fits one number of nodes, ``num_nodes`` or the first input's).
    """

    conv_class = PLUFGConv

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        head: bool = True,
        activation: Literal["none", "relu", "leaky_relu"] = "none",
        labels: bool = False,
        **conv_options: Any,
    ) -> None:
        super().__init__(
            in_channels, hidden_channels, out_channels, dropout, input_dropout, head, labels, **conv_options
        )
        checks.one_of("PLUFG", "activation", activation, ("none", *RECTIFIERS))
        self.activation = activation

    def _convolve(self, x: Tensor, graph: EdgesOrGraph, edge_weight: Tensor | None) -> Tensor:
        out = super()._convolve(x, graph, edge_weight)
        rectify = RECTIFIERS.get(self.activation)
        return out if rectify is None else rectify(out)

    def _traits(self) -> dict[str, Any]:
        return {**super()._traits(), "activation": self.activation}


class PGNN(_ConvNetwork):
    """p-GNN: p-Laplacian message passing (`Fu et al. <https://arxiv.org/abs/2111.07337>`_).

    Args:
        in_channels: Features per node.
        hidden_channels: Channels the convolution starts from.
        out_channels: Classes.
        dropout: Share of hidden values dropped in training.
        input_dropout: Share of features dropped in training.
        K: Steps.
        p: The p of the p-Laplacian.
        mu: How strongly the output is held to the input.
        labels: Whether ``forward`` takes ``known``, classes of nodes, as further input.
        conv_options: Further keywords of :class:`~plufg_fast.nn.PLaplacianConv`.
    """

    conv_class = PLaplacianConv

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        K: int = 4,
        p: float = 1.5,
        mu: float = 0.1,
        labels: bool = False,
        **conv_options: Any,
    ) -> None:
        channels = in_channels, hidden_channels, out_channels
        # As published, it has no head: the steps smooth the predictions.
        super().__init__(*channels, dropout, input_dropout, False, labels, K=K, p=p, mu=mu, **conv_options)


class UFG(_ConvNetwork):
    """UFG: framelet convolution without smoothing (`Zheng et al. <https://arxiv.org/abs/2102.06986>`_).

    Args:
        in_channels: Features per node.
        hidden_channels: Channels the convolution works on.
        out_channels: Classes.
        dropout: Share of hidden values dropped in training.
        input_dropout: Share of features dropped in training.
        head: Whether a linear map from hidden channels to classes follows the convolution, which ends in the classes
            without it.
        labels: Whether ``forward`` takes ``known``, classes of nodes, as further input.
        conv_options: Keywords of :class:`~plufg_fast.nn.UFGConv`.
    """

    conv_class = UFGConv

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        head: bool = True,
        labels: bool = False,
        **conv_options: Any,
    ) -> None:
        super().__init__(
            in_channels, hidden_channels, out_channels, dropout, input_dropout, head, labels, **conv_options
        )


class MLP(_Network):
    """Two linear layers that never look at the graph."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, *, dropout: float = 0.5) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, dropout)
        self.lin1 = InputLinear(in_channels, hidden_channels)
        self.lin2 = nn.Linear(hidden_channels, out_channels)

    def _logits(self, x: Tensor, graph: EdgesOrGraph, edge_weight: Tensor | None) -> Tensor:
        return self._predict(x)

    def _predict(self, x: Tensor) -> Tensor:
        hidden = self.lin1(self._drop(x)).relu()
        out: Tensor = self.lin2(self._drop(hidden))
        return out


class GCN(_Network):
    """Two graph convolutions (`Kipf and Welling <https://arxiv.org/abs/1609.02907>`_)."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, *, dropout: float = 0.5) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, dropout)
        self.conv1 = _GCNLayer(in_channels, hidden_channels)
        self.conv2 = _GCNLayer(hidden_channels, out_channels)

    def _logits(self, x: Tensor, graph: EdgesOrGraph, edge_weight: Tensor | None) -> Tensor:
        hidden = self.conv1(self._drop(x), graph, edge_weight).relu()
        out: Tensor = self.conv2(self._drop(hidden), graph, edge_weight)
        return out


class SGC(_Network):
    """A linear classifier on K times smoothed features (`Wu et al. <https://arxiv.org/abs/1902.07153>`_).

    Smoothing and the linear map commute; the map comes first, since there are fewer classes than features. It has no
    hidden layer: ``hidden_channels`` is taken for the common signature and not used. ``dropout`` acts on the input
    and is off by default, as in the paper.
    """

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, *, dropout: float = 0.0, K: int = 2
    ) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, dropout)
        self.lin = InputLinear(in_channels, out_channels, bias=False)
        self.smoothing = _Smoothing()
        checks.count("SGC", "K", K)
        self.K = K
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        super().reset_parameters()
        nn.init.zeros_(self.bias)

    def _logits(self, x: Tensor, graph: EdgesOrGraph, edge_weight: Tensor | None) -> Tensor:
        x = self.lin(self._drop(x))
        smooth = self.smoothing(x, graph, edge_weight)
        for _ in range(self.K):
            x = smooth(x, None, 1.0, 0.0, 0.0)
        return x + self.bias

    def _traits(self) -> dict[str, Any]:
        return {"K": self.K}


class GAT(_Network):
    """Two attention layers (`Veličković et al. <https://arxiv.org/abs/1710.10903>`_), blind to edge weights.

    Args:
        in_channels: Features per node.
        hidden_channels: Channels of all heads together: a multiple of ``heads``.
        out_channels: Classes.
        dropout: Share of inputs, hidden values and attention weights dropped in training.
        heads: Attention heads of the first layer; the second has one.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        dropout: float = 0.5,
        heads: int = 8,
    ) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, dropout)
        checks.count("GAT", "heads", heads, least=1)
        if hidden_channels % heads:
            raise checks.wrong_value("GAT", "hidden_channels", f"a multiple of the {heads} heads", hidden_channels)
        self.heads = heads
        self.conv1 = GATConv(in_channels, hidden_channels // heads, heads=heads, dropout=dropout)
        self.conv1.lin = InputLinear(in_channels, hidden_channels, bias=False, weight_initializer="glorot")
        self.conv2 = GATConv(hidden_channels, out_channels, heads=1, dropout=dropout)

    def _logits(self, x: Tensor, graph: EdgesOrGraph, edge_weight: Tensor | None) -> Tensor:
        edge_index = _edge_index(graph, edge_weight)
        hidden = F.elu(self.conv1(self._drop(x), edge_index))
        out: Tensor = self.conv2(self._drop(hidden), edge_index)
        return out

    def _traits(self) -> dict[str, Any]:
        return {"heads": self.heads}


class JKNet(_Network):
    """Graph convolutions that the classifier sees all at once (`Xu et al. <https://arxiv.org/abs/1806.03536>`_).

    Args:
        in_channels: Features per node.
        hidden_channels: Channels of every layer.
        out_channels: Classes.
        dropout: Share of inputs and hidden values dropped in training.
        layers: Number of convolutions.
        jump: How the layers are put together: ``"cat"`` or ``"max"``.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        dropout: float = 0.5,
        layers: int = 2,
        jump: str = "cat",
    ) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, dropout)
        checks.count("JKNet", "layers", layers, least=1)
        checks.one_of("JKNet", "jump", jump, ("cat", "max"))
        widths = [in_channels] + [hidden_channels] * layers
        self.convs = nn.ModuleList(_GCNLayer(a, b) for a, b in pairwise(widths))
        self.jump = JumpingKnowledge(jump)
        self.lin = nn.Linear(hidden_channels * (layers if jump == "cat" else 1), out_channels)

    def _logits(self, x: Tensor, graph: EdgesOrGraph, edge_weight: Tensor | None) -> Tensor:
        seen = []
        for conv in self.convs:
            x = conv(self._drop(x), graph, edge_weight).relu()
            seen.append(x)
        out: Tensor = self.lin(self._drop(self.jump(seen)))
        return out

    def _traits(self) -> dict[str, Any]:
        return {"layers": len(self.convs), "jump": self.jump.mode}


class APPNP(MLP):
    """An MLP, then personalised PageRank (`Gasteiger et al. <https://arxiv.org/abs/1810.05997>`_).

    Args:
        in_channels: Features per node.
        hidden_channels: Hidden channels of the MLP.
        out_channels: Classes.
        dropout: Share of inputs and hidden values dropped in training.
        K: Steps.
        alpha: Probability of returning to the start.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        dropout: float = 0.5,
        K: int = 10,
        alpha: float = 0.1,
    ) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, dropout=dropout)
        _check_walk("APPNP", K, alpha)
        self.K, self.alpha = K, alpha
        self.smoothing = _Smoothing()

    def _logits(self, x: Tensor, graph: EdgesOrGraph, edge_weight: Tensor | None) -> Tensor:
        out = start = self._predict(x)
        smooth = self.smoothing(out, graph, edge_weight)
        for _ in range(self.K):
            out = smooth(out, start, 1.0 - self.alpha, 0.0, self.alpha)
        return out

    def _traits(self) -> dict[str, Any]:
        return {"K": self.K, "alpha": self.alpha}


class GPRGNN(MLP):
    r"""An MLP, then PageRank with learned weights (`Chien et al. <https://arxiv.org/abs/2006.07988>`_).

    Its output is :math:`\sum_{k=0}^K \gamma_k A^k x`, where :math:`x` is that of the MLP. The weights start at
    personalised PageRank, :math:`\gamma_k = \alpha (1 - \alpha)^k` and :math:`\gamma_K = (1 - \alpha)^K`.

    Args:
        in_channels: Features per node.
        hidden_channels: Hidden channels of the MLP.
        out_channels: Classes.
        dropout: Share of inputs, hidden values and predictions dropped in training.
        K: Steps.
        alpha: Probability of returning to the start that the weights begin with.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        dropout: float = 0.5,
        K: int = 10,
        alpha: float = 0.1,
    ) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, dropout=dropout)
        _check_walk("GPRGNN", K, alpha)
        self.K, self.alpha = K, alpha
        self.smoothing = _Smoothing()
        self.gamma = nn.Parameter(self._start())

    def _start(self) -> Tensor:
        start = self.alpha * (1.0 - self.alpha) ** torch.arange(self.K + 1, dtype=torch.float64)
        start[-1] = (1.0 - self.alpha) ** self.K
        return start.to(torch.get_default_dtype())

    def reset_parameters(self) -> None:
        """Draw the MLP anew and return the weights to personalised PageRank."""
        super().reset_parameters()
        with torch.no_grad():
            self.gamma.copy_(self._start())

    def _logits(self, x: Tensor, graph: EdgesOrGraph, edge_weight: Tensor | None) -> Tensor:
        walk = self._drop(self._predict(x))
        smooth = self.smoothing(walk, graph, edge_weight)
        gamma = self.gamma.unbind()
        out = gamma[0] * walk
        for weight in gamma[1:]:
            walk = smooth(walk, None, 1.0, 0.0, 0.0)
            out = out + weight * walk
        return out

    def _traits(self) -> dict[str, Any]:
        return {"K": self.K, "alpha": self.alpha}


def _check_walk(where: str, K: int, alpha: float) -> None:
    checks.count(where, "K", K)
    checks.number(where, "alpha", alpha)
    if not 0.0 <= alpha <= 1.0:
        raise checks.wrong_value(where, "alpha", "from 0 to 1", alpha)


def _edge_index(graph: EdgesOrGraph, edge_weight: Tensor | None) -> Tensor:
    """What PyG's layers take."""
    if not isinstance(graph, Graph):
        return graph
    if edge_weight is not None:
        raise ValueError("forward: edge_weight must be None beside a Graph, which holds its own weights")
    if graph.flow != "source_to_target":
        raise checks.wrong_value("forward", "the flow of a Graph", "'source_to_target'", graph.flow)
    return graph.edge_index


MODELS: Final[dict[str, type[_Network]]] = {
    "pl-ufg1": PLUFG,
    "pl-ufg2": PLUFG,
    "pl-fufg": PLUFG,
    "pgnn": PGNN,
    "ufg": UFG,
    "mlp": MLP,
    "gcn": GCN,
    "sgc": SGC,
    "gat": GAT,
    "jknet": JKNet,
    "appnp": APPNP,
    "gprgnn": GPRGNN,
}


class Dims(NamedTuple):
    """The sizes a network is built for."""

    in_channels: int
    out_channels: int
    num_nodes: int | None = None


def build(name: str, data_or_dims: Data | Dims, *, hidden_channels: int = 32, **options: Any) -> nn.Module:
    """The network called ``name`` (:data:`MODELS`), sized for a graph.

    Args:
        name: The network, in any case.
        data_or_dims: A graph with ``x`` and ``y``, or the sizes alone.
        hidden_channels: Hidden channels.
        options: Further keywords of the network, see :func:`option_names`.

    Raises:
        ValueError: If there is no such network, or it has no such option.
    """
    key = name.lower()
    known = option_names(key)
    for option in options:
        if option not in known:
            raise ValueError(f"build: {key} has no option {option!r}; it has {', '.join(known)}")
    if isinstance(data_or_dims, Dims):
        dims = data_or_dims
    else:
        dims = Dims(data_or_dims.num_features, int(data_or_dims.y.max()) + 1, data_or_dims.num_nodes)
    if MODELS[key] is PLUFG:
        options["variant"] = key
    if "num_nodes" in known and dims.num_nodes is not None:
        options.setdefault("num_nodes", dims.num_nodes)
    return MODELS[key](dims.in_channels, hidden_channels, dims.out_channels, **options)


def option_names(name: str) -> list[str]:
    """The keywords that :func:`build` passes on to the network called ``name``, its layer's included."""
    key = name.lower()
    if key not in MODELS:
        raise ValueError(f"build: unknown model {name!r}; known are {', '.join(MODELS)}")
    model = MODELS[key]
    names = _keywords(model)
    if issubclass(model, _ConvNetwork):
        names |= _keywords(model.conv_class)
    # The name says the variant, the network fixes the layer's sizes.
    return sorted(names - {"variant", "in_channels", "hidden_channels", "out_channels"})


def _keywords(cls: type) -> set[str]:
    parameters = inspect.signature(cls).parameters.values()
    return {item.name for item in parameters if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)}
