"""`Graph`: one graph, validated once and laid out for the kernels.

A row of the CSR belongs to a *receiving* node and lists the nodes it receives from. The transposed CSR serves
everything that flows the other way (adjoints, backward passes); on an undirected graph it is the same arrays.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from . import checks

Flow: TypeAlias = Literal["source_to_target", "target_to_source"]
Degree: TypeAlias = Literal["in", "out"]

_OTHER_FLOW: Final[dict[str, Flow]] = {
    "source_to_target": "target_to_source",
    "target_to_source": "source_to_target",
}
_OTHER_DEGREE: Final[dict[str, Degree]] = {"in": "out", "out": "in"}
# Indices up to here are kept in 32 bits: half the memory traffic of every kernel.
_INT32_MAX = torch.iinfo(torch.int32).max


class Graph:
    r"""A graph in compressed rows, with its transpose, degrees and the way back to the user's edges.

    Duplicate edges are summed into one (unweighted ones count 1 each). Self-loops stay: the p-Laplacian step
    uses them as edges and in its degrees, the Laplacian :math:`L = I - D^{-1/2} W D^{-1/2}` leaves them out of
    both. Isolated nodes and empty graphs are legal.

    Args:
        edge_index: ``[2, E]`` integer tensor (row 0 = source, row 1 = target), a PyG ``EdgeIndex``, a
            ``torch.sparse`` COO/CSR/CSC matrix or ``SparseTensor`` in PyG's ``adj_t`` convention (row =
            receiving node, values = weights), or a scipy sparse matrix (``A[i, j]`` an edge from i to j).
        num_nodes: number of nodes; by default the largest index plus one, or the matrix's size.
        edge_weight: ``[E]`` finite, non-negative weights; constants: no gradient flows into them. A node whose weights
            sum to less than about 1e-30 is isolated to signals in single precision.
        flow: ``"source_to_target"`` (node i receives from its in-neighbours) or ``"target_to_source"``.
        degree: ``"in"`` sums the weights of the edges a node receives over, ``"out"`` of those it sends over.
        laplacian_degree: the same choice for the Laplacian alone; ``None`` follows ``degree``.

    Its tensors are shared with the kernels, which trust them: they are not to be changed in place.

    Attributes:
        num_nodes: number of nodes N.
        rowptr: ``[N + 1]`` row offsets, int32 where they fit, else int64.
        col: ``[E]`` sending node of each stored edge, ascending within a row.
        weight: ``[E]`` weights, or ``None`` when all are 1.
        edge_slot: ``[edges given]`` the stored edge that each edge of the input went into, so that
            ``per_edge[g.edge_slot]`` is in the user's order.
        is_undirected: whether the weighted adjacency matrix is symmetric; weights that are so up to rounding are
            made so exactly.
        has_self_loops: whether any node sends to itself.
    """

    num_nodes: int
    rowptr: Tensor
    col: Tensor
    weight: Tensor | None
    edge_slot: Tensor
    is_undirected: bool
    has_self_loops: bool
    flow: Flow
    degree: Degree
    laplacian_degree: Degree
    dtype: torch.dtype

    def __init__(
        self,
        edge_index: Any,
        num_nodes: int | None = None,
        edge_weight: Tensor | None = None,
        flow: Flow = "source_to_target",
        degree: Degree = "in",
        laplacian_degree: Degree | None = None,
    ) -> None:
        check_options("Graph", flow, degree, laplacian_degree)
        # A graph made in inference mode must serve training, too.
        with torch.inference_mode(False):
            self._build(edge_index, num_nodes, edge_weight, flow, degree, laplacian_degree)

    def _build(
        self,
        edge_index: Any,
        num_nodes: int | None,
        edge_weight: Tensor | None,
        flow: Flow,
        degree: Degree,
        laplacian_degree: Degree | None,
    ) -> None:
        receiver, sender, weight, num_nodes = _edges(edge_index, num_nodes, edge_weight, flow)

        self.flow = flow
        self.degree = degree
        self.laplacian_degree = laplacian_degree or degree
        self.num_nodes = num_nodes
        # Degrees are counts, which half precision does not hold.
        default = torch.promote_types(torch.get_default_dtype(), torch.float32)
        self.dtype = default if weight is None else weight.dtype
        self._kept: dict[torch.dtype, tuple[Tensor | None, Tensor, Tensor]] = {}
        self._cover: Graph | None = None

        row, col, weight, slot = _merge_duplicates(receiver, sender, weight, num_nodes, self.dtype)
        # A stable sort by sender of edges sorted by receiver is the transposed order.
        by_sender = torch.argsort(col, stable=True)
        rowptr, rowptr_t = _row_pointers(row, num_nodes), _row_pointers(col, num_nodes)
        row_t, weight_t = row[by_sender], None if weight is None else weight[by_sender]
        self.is_undirected = torch.equal(rowptr, rowptr_t) and torch.equal(col, row_t)
        if self.is_undirected and weight is not None and weight_t is not None:
            # Weights computed for both directions, or summed in another order, may differ by rounding.
            rounding = 8 * torch.finfo(weight.dtype).eps
            self.is_undirected = torch.allclose(weight, weight_t, rtol=rounding, atol=0.0)
            if self.is_undirected:
                weight = weight_t = (weight + weight_t) / 2
        loop = row == col
        self.has_self_loops = bool(loop.any())

        degrees = {"in": _row_sums(rowptr, weight), "out": _row_sums(rowptr_t, weight_t)}
        self._deg_inv_sqrt = _inv_sqrt(degrees[self.degree])
        lap_degree = degrees[self.laplacian_degree]
        if self.has_self_loops:
            # Summed anew rather than subtracted: a node with nothing but a self-loop must get exactly 0.
            kept = (~loop).double() if weight is None else torch.where(loop, 0, weight).double()
            lap_degree = (
                _row_sums(rowptr, kept) if self.laplacian_degree == "in" else _row_sums(rowptr_t, kept[by_sender])
            )
        self._lap_deg_inv_sqrt = _inv_sqrt(lap_degree)

        fits = max(num_nodes, row.numel(), slot.numel()) <= _INT32_MAX
        index = torch.int32 if fits else torch.int64
        self.rowptr, self.col, self.weight = rowptr.to(index), col.to(index), weight
        self.edge_slot = slot.to(index)
        self._transpose = self
        if not self.is_undirected:
            to_transposed = torch.empty_like(by_sender)
            to_transposed[by_sender] = torch.arange(by_sender.numel(), device=by_sender.device)
            self._transpose = self._reversed(
                rowptr_t.to(index), row_t.to(index), weight_t, to_transposed[slot].to(index)
            )

    @classmethod
    def from_data(
        cls,
        data: Any,
        flow: Flow = "source_to_target",
        degree: Degree = "in",
        laplacian_degree: Degree | None = None,
    ) -> Graph:
        """The graph of a ``torch_geometric.data.Data``: its ``adj_t`` or ``edge_index`` and ``edge_weight``."""
        for name in ("adj_t", "edge_index"):
            edges = getattr(data, name, None)
            if edges is not None:
                break
        else:
            raise checks.wrong_type("Graph.from_data", "data", "a Data with edge_index or adj_t", data)
        weight = getattr(data, "edge_weight", None) if name == "edge_index" else None
        return cls(edges, data.num_nodes, weight, flow, degree, laplacian_degree)

    @property
    def num_edges(self) -> int:
        """Number of stored edges, after duplicates were summed."""
        return self.col.numel()

    @property
    def device(self) -> torch.device:
        """Where the graph's tensors live."""
        return self.col.device

    @property
    def deg_inv_sqrt(self) -> Tensor:
        """``[N]`` degrees to the power -1/2, 0 for a node of degree 0; self-loops count."""
        return self._deg_inv_sqrt.to(self.dtype)

    @property
    def lap_deg_inv_sqrt(self) -> Tensor:
        """``[N]`` the same for the Laplacian: by ``laplacian_degree`` and without self-loops."""
        return self._lap_deg_inv_sqrt.to(self.dtype)

    @property
    def edge_index(self) -> Tensor:
        """``[2, E]`` the stored edges in PyG's order (source, target), int64."""
        row = expand_rows(self.rowptr, self.col).long()
        pair = (self.col.long(), row) if self.flow == "source_to_target" else (row, self.col.long())
        return torch.stack(pair)

    def transpose(self) -> Graph:
        """The graph with every edge reversed and every degree kept: its Laplacian is the transpose of this one's.

        It is ``self`` on an undirected graph, and otherwise was built together with it.
        """
        return self._transpose

    def cover(self) -> Graph:
        r"""The double cover: an undirected graph of two copies of every node, in which no direction is lost.

        Copy i receives and copy N + i sends: an edge from j to i becomes one between N + j and i. Where
        :math:`D^{-1/2} W D^{-1/2}` of a directed graph takes both degrees from one side, and drops the edges of nodes
        that have none there, this has :math:`D_{in}^{-1/2} W D_{out}^{-1/2}` and its transpose as its two blocks.
        So framelets are tight and the energy of the p-Laplacian falls on it, as on every undirected graph.

        It is made at the first call and kept, which a compiler cannot do: call this once before ``torch.compile``.
        """
        found = self._cover
        if found is None:
            if torch.compiler.is_compiling():
                raise RuntimeError("Graph.cover: call it once, or the layer, before it is compiled")
            receiver, sender = expand_rows(self.rowptr, self.col).long(), self.col.long() + self.num_nodes
            both = torch.stack((torch.cat((sender, receiver)), torch.cat((receiver, sender))))
            weight = None if self.weight is None else self.weight.repeat(2)
            found = Graph(both, 2 * self.num_nodes, weight).to(self.dtype)
            if may_keep():
                self._cover = found
        return found

    def values(self, dtype: torch.dtype) -> tuple[Tensor | None, Tensor, Tensor]:
        """Weights and both inverse square-root degrees in the precision of a signal."""
        # What a compiler traces is no tensor to keep.
        if torch.compiler.is_compiling():
            return self._values(dtype)
        found = self._kept.get(dtype)
        if found is None:
            with torch.inference_mode(False):
                found = self._values(dtype)
            if may_keep():
                if found[0] is not None and self.weight is not None:
                    inside, expected = found[0].isfinite(), f"within the range of {dtype}"
                    checks.all_true("Graph", "edge_weight", expected, inside, self.weight)
                self._kept[dtype] = found
        return found

    def _values(self, dtype: torch.dtype) -> tuple[Tensor | None, Tensor, Tensor]:
        weight = None if self.weight is None else self.weight.to(dtype)
        # A node whose weights vanish in this precision is isolated in it. (x/sqrt(d))^2, summed over channels, must not
        # overflow: 2^26 is the room that is left for x.
        largest = torch.finfo(dtype).max ** 0.5 / 2**13
        dinv, lap_dinv = (
            torch.where(t < largest, t, 0).to(dtype) for t in (self._deg_inv_sqrt, self._lap_deg_inv_sqrt)
        )
        return weight, dinv, lap_dinv

    def to(
        self,
        device: torch.device | torch.dtype | str | None = None,
        dtype: torch.dtype | None = None,
        non_blocking: bool = False,
    ) -> Graph:
        """A graph on another device and/or with its values in another precision; ``self`` if nothing changes.

        ``non_blocking`` is that of :meth:`torch.Tensor.to`; PyG's ``Data`` gives it to all that it holds.
        """
        if isinstance(device, torch.dtype):
            device, dtype = None, device
        target = self.device if device is None else torch.empty(0, device=device).device
        dtype = self.dtype if dtype is None else dtype
        if not dtype.is_floating_point:
            raise checks.wrong_value("Graph.to", "dtype", "a floating-point type", checks.Shown(dtype))
        if target == self.device and dtype == self.dtype:
            return self
        # Training may follow a move in inference mode.
        with torch.inference_mode(False):
            moved = self._moved(target, dtype, non_blocking)
            if self._transpose is not self:
                moved._transpose = self._transpose._moved(target, dtype, non_blocking)
                moved._transpose._transpose = moved
        return moved

    def cpu(self) -> Graph:
        """The graph in main memory."""
        return self.to("cpu")

    def cuda(self, device: torch.device | int | str | None = None, non_blocking: bool = False) -> Graph:
        """The graph on a GPU, by default the current one."""
        name = f"cuda:{device}" if isinstance(device, int) else device
        return self.to("cuda" if name is None else name, non_blocking=non_blocking)

    def _moved(self, device: torch.device, dtype: torch.dtype, non_blocking: bool) -> Graph:
        copy = object.__new__(Graph)
        copy.__dict__.update(
            {k: v.to(device, non_blocking=non_blocking) if isinstance(v, Tensor) else v for k, v in vars(self).items()}
        )
        copy.dtype, copy._kept, copy._cover = dtype, {}, None
        copy.weight = None if copy.weight is None else copy.weight.to(dtype)
        copy._transpose = copy
        return copy

    def _reversed(self, rowptr: Tensor, col: Tensor, weight: Tensor | None, slot: Tensor) -> Graph:
        copy = object.__new__(Graph)
        copy.__dict__.update(self.__dict__)
        copy.rowptr, copy.col, copy.weight, copy.edge_slot = rowptr, col, weight, slot
        # Degrees stay with their nodes, so what was summed over received edges is now over sent ones.
        copy.flow = _OTHER_FLOW[self.flow]
        copy.degree = _OTHER_DEGREE[self.degree]
        copy.laplacian_degree = _OTHER_DEGREE[self.laplacian_degree]
        copy._transpose, copy._kept, copy._cover = self, {}, None
        return copy

    def __repr__(self) -> str:
        traits = [
            f"num_nodes={self.num_nodes}",
            f"num_edges={self.num_edges}",
            "undirected" if self.is_undirected else "directed",
            "unweighted" if self.weight is None else f"weighted ({str(self.dtype)[6:]})",
            *(["self-loops"] if self.has_self_loops else []),
            str(self.col.dtype)[6:],
            str(self.device),
        ]
        return f"Graph({', '.join(traits)})"


def may_keep() -> bool:
    """Whether tensors made now are ordinary ones: not those of a transform of `torch.func`, nor fake, nor traced."""
    if torch.compiler.is_compiling():
        return True
    return not (torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack())


class GraphCache:
    """The last graph a layer was called with, reused only while the edges are still the same.

    The same tensor objects, unmodified since, are recognised at once; other tensors are compared entry by entry,
    which costs far less than building a graph. So a cached layer fed another graph follows it. Matrices that are
    not tensors cannot be watched and are built anew. What is changed behind torch's back, through ``.data`` or a
    shared numpy array, stays unnoticed.
    """

    def __init__(self) -> None:
        self.clear()

    def __getstate__(self) -> dict[str, Any]:
        # A file or a copy of a network is not the place for a graph.
        return {"_last": None}

    def clear(self) -> None:
        """Forget the graph."""
        # As one thing: another thread may put its own there at any time.
        self._last: _Last | None = None

    def get(self, edge_index: Any, num_nodes: int, edge_weight: Tensor | None, **options: Any) -> Graph:
        """The graph of these edges, built if it is not the one at hand."""
        edges = _plain(edge_index)
        # PyG's EdgeIndex and the tensor inside it count what is written to each of them apart.
        watched = [t for t in (edge_index, edges, edge_weight) if isinstance(t, Tensor)]
        # Tensors made under inference mode carry no version, so a change in place could not be noticed.
        can_watch = isinstance(edge_index, Tensor) and not any(t.is_inference() for t in watched)
        versions = [t._version for t in watched] if can_watch else None
        stamp = num_nodes, sorted(options.items())
        last = self._last
        if last is not None and versions is not None and stamp == last.stamp:
            if len(watched) == len(last.watched) and all(a is b for a, b in zip(watched, last.watched, strict=True)):
                if versions == last.versions:
                    return last.graph
            elif (
                _same(edges, last.edges)
                and _same(edge_weight, last.weight)
                # The stored tensors must be unmodified too, or the comparison says nothing about the graph.
                and [t._version for t in last.watched] == last.versions
            ):
                return last.graph
        graph = Graph(edge_index, num_nodes, edge_weight, **options)
        if may_keep():
            self._last = _Last(graph, edges, edge_weight, watched, versions, stamp)
        return graph


class _Last(NamedTuple):
    """A graph, and what it was made from."""

    graph: Graph
    edges: Any
    weight: Tensor | None
    watched: list[Tensor]
    versions: list[int] | None
    stamp: tuple[int, list[tuple[str, Any]]]


def check_options(
    where: str, flow: str = "source_to_target", degree: str = "in", laplacian_degree: str | None = None
) -> None:
    """Refuse options that no `Graph` takes."""
    checks.one_of(where, "flow", flow, _OTHER_FLOW)
    checks.one_of(where, "degree", degree, _OTHER_DEGREE)
    if laplacian_degree is not None:
        checks.one_of(where, "laplacian_degree", laplacian_degree, _OTHER_DEGREE)


def _same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return (
        isinstance(a, Tensor)
        and isinstance(b, Tensor)
        and a.layout == b.layout == torch.strided
        and a.device == b.device
        and a.dtype == b.dtype
        and torch.equal(a, b)
    )


def expand_rows(rowptr: Tensor, col: Tensor) -> Tensor:
    """The row of every stored edge, in the type of `col`."""
    nodes = torch.arange(rowptr.numel() - 1, dtype=col.dtype, device=col.device)
    return torch.repeat_interleave(nodes, rowptr.diff(), output_size=col.numel())


def _edges(
    given: Any, num_nodes: int | None, edge_weight: Tensor | None, flow: Flow
) -> tuple[Tensor, Tensor, Tensor | None, int]:
    """Receiver, sender, weight of every edge as given, and the number of nodes; everything checked."""
    if num_nodes is not None:
        checks.count("Graph", "num_nodes", num_nodes)
        num_nodes = int(num_nodes)
    if isinstance(given, Graph):
        raise checks.wrong_type("Graph", "edge_index", "edges or a sparse matrix (this is a Graph already)", given)
    if _is_edge_list(given):
        source, target, size = _from_edge_index(given)
    else:
        if edge_weight is not None:
            raise checks.wrong_value("Graph", "edge_weight", "None: a matrix holds its own weights", edge_weight)
        source, target, edge_weight, size = _from_matrix(given, flow)
        if isinstance(edge_weight, Tensor):
            # A stored zero is no edge: without its counterpart it would make a symmetric matrix a directed graph.
            stored = edge_weight != 0
            source, target, edge_weight = source[stored], target[stored], edge_weight[stored]
    receiver, sender = (target, source) if flow == "source_to_target" else (source, target)

    if edge_weight is not None:
        edge_weight = _checked_weight(edge_weight, source)
    both = torch.stack((receiver, sender)).long()
    if both.numel() and int(both.min()) < 0:
        raise checks.wrong_value("Graph", "edge_index", "non-negative", int(both.min()))
    needed = int(both.max()) + 1 if both.numel() else 0
    if size is not None and needed > size:
        raise checks.wrong_value("Graph", "edge_index", f"within the size {size} of its matrix", needed - 1)
    if num_nodes is None:
        num_nodes = needed if size is None else size
    elif needed > num_nodes:
        raise checks.wrong_value("Graph", "edge_index", f"below num_nodes = {num_nodes}", needed - 1)
    elif size is not None and size > num_nodes:
        raise checks.wrong_value("Graph", "num_nodes", f"at least the size {size} of the matrix", num_nodes)
    return both[0], both[1], edge_weight, num_nodes


def _is_edge_list(given: Any) -> bool:
    return isinstance(given, Tensor) and given.layout == torch.strided


def _plain(given: Any) -> Any:
    """The tensor inside PyG's EdgeIndex; anything else as it is."""
    return given.as_tensor() if hasattr(given, "as_tensor") else given


def _from_edge_index(given: Tensor) -> tuple[Tensor, Tensor, int | None]:
    sizes = given.sparse_size() if hasattr(given, "sparse_size") else (None, None)  # PyG's EdgeIndex
    edges = _plain(given)
    if edges.dtype not in (torch.int32, torch.int64):
        raise checks.wrong_type("Graph", "edge_index", "an int32 or int64 tensor", edges)
    if edges.dim() != 2 or edges.size(0) != 2:
        raise checks.wrong_value("Graph", "edge_index", "of shape [2, E]", edges)
    known = [int(n) for n in sizes if n is not None]
    return edges[0], edges[1], max(known) if known else None


def _from_matrix(given: Any, flow: Flow) -> tuple[Tensor, Tensor, Tensor | None, int]:
    """Source, target, weight and size of a sparse matrix of any make."""
    transposed = True
    if isinstance(given, Tensor):
        shape = tuple(given.shape)
        row, col, value = _from_torch_sparse(given)
    elif hasattr(given, "sparse_sizes") and hasattr(given, "coo"):  # torch_sparse.SparseTensor
        shape = tuple(given.sparse_sizes())
        row, col, value = given.coo()
    elif hasattr(given, "tocoo"):  # scipy
        coo = given.tocoo()
        shape, transposed = tuple(coo.shape), False
        row, col = torch.as_tensor(coo.row), torch.as_tensor(coo.col)
        value = torch.as_tensor(coo.data)
    else:
        raise checks.wrong_type(
            "Graph",
            "edge_index",
            "a [2, E] tensor, EdgeIndex, torch.sparse, SparseTensor or scipy matrix",
            given,
        )
    if len(shape) != 2 or shape[0] != shape[1]:
        raise checks.wrong_value("Graph", "edge_index", "a square matrix", checks.Shown(f"shape {shape}"))
    if not transposed:
        return row, col, value, shape[0]
    if flow != "source_to_target":
        raise checks.wrong_value(
            "Graph",
            "flow",
            "'source_to_target' for a matrix in the adj_t convention (row = receiving node)",
            flow,
        )
    return col, row, value, shape[0]


def _from_torch_sparse(given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # The values of a COO matrix would leave its gradient behind in silence.
    checks.constant("Graph", "edge_index", given)
    if given.layout == torch.sparse_coo:
        # Uncoalesced entries are duplicates like any others and are summed with them later.
        index, value = given._indices(), given._values()
        if index.size(0) != 2 or value.dim() != 1:
            raise checks.wrong_value("Graph", "edge_index", "a matrix of scalars", given)
        return index[0], index[1], value
    if given.layout not in (torch.sparse_csr, torch.sparse_csc):
        raise checks.wrong_type("Graph", "edge_index", "a COO, CSR or CSC matrix", checks.Shown(given.layout))
    if given.layout == torch.sparse_csr:
        pointer, index, length = given.crow_indices(), given.col_indices(), given.size(0)
    else:
        pointer, index, length = given.ccol_indices(), given.row_indices(), given.size(1)
    if given.dim() != 2 or given.values().dim() != 1:
        raise checks.wrong_value("Graph", "edge_index", "a matrix of scalars", given)
    # torch checks these only on request, and a kernel would read out of bounds.
    if pointer.numel() != length + 1 or int(pointer[0]) != 0 or int(pointer[-1]) != index.numel():
        raise checks.wrong_value(
            "Graph",
            "edge_index",
            f"a matrix whose row pointers run from 0 to its {index.numel()} entries",
            given,
        )
    if bool((pointer.diff() < 0).any()):
        raise checks.wrong_value("Graph", "edge_index", "a matrix whose row pointers never fall", given)
    major = expand_rows(pointer, index)
    row, col = (major, index) if given.layout == torch.sparse_csr else (index, major)
    return row, col, given.values()


def _checked_weight(given: Any, edges: Tensor) -> Tensor:
    if not isinstance(given, Tensor):
        raise checks.wrong_type("Graph", "edge_weight", "a torch.Tensor", given)
    weight: Tensor = given
    if weight.is_complex():
        raise checks.wrong_type("Graph", "edge_weight", "real", weight)
    if weight.dim() != 1 or weight.numel() != edges.numel():
        raise checks.wrong_value("Graph", "edge_weight", f"of shape [{edges.numel()}], one per edge", weight)
    checks.constant("Graph", "edge_weight", weight)
    checks.same_device("Graph", "edge_weight", weight, "edge_index", edges.device)
    if not weight.is_floating_point():
        weight = weight.to(torch.get_default_dtype())
    if weight.dtype in (torch.float16, torch.bfloat16):
        weight = weight.float()
    if not bool(torch.isfinite(weight).all()):
        raise checks.wrong_value("Graph", "edge_weight", "finite", weight[~torch.isfinite(weight)][0].item())
    if weight.numel() and float(weight.min()) < 0:
        raise checks.wrong_value("Graph", "edge_weight", "non-negative", float(weight.min()))
    return weight


def _merge_duplicates(
    receiver: Tensor, sender: Tensor, weight: Tensor | None, num_nodes: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Row, column and weight of the distinct edges in CSR order, and the place of each given edge among them."""
    key, order = torch.sort(receiver * num_nodes + sender, stable=True)
    key, group, times = torch.unique_consecutive(key, return_inverse=True, return_counts=True)
    slot = torch.empty_like(order)
    slot[order] = group
    row = key.div(max(num_nodes, 1), rounding_mode="floor")
    col = key - row * num_nodes
    if key.numel() == order.numel():
        merged = None if weight is None else weight[order]
    elif weight is None:
        merged = times.to(dtype)
    else:
        merged = _row_sums(_pointers(times), weight[order]).to(dtype)
    if merged is not None and bool((merged == 1).all()):
        merged = None
    return row, col, merged, slot


def _pointers(counts: Tensor) -> Tensor:
    return torch.cat((counts.new_zeros(1), counts.cumsum(0)))


def _row_pointers(row: Tensor, num_nodes: int) -> Tensor:
    return _pointers(torch.bincount(row, minlength=num_nodes))


def _row_sums(rowptr: Tensor, values: Tensor | None) -> Tensor:
    """``[N]`` sums over rows in float64, in a fixed order on every device."""
    if values is None:
        return rowptr.diff().double()
    if values.numel() == 0:
        return torch.zeros(rowptr.numel() - 1, dtype=torch.float64, device=rowptr.device)
    return torch.segment_reduce(values.double(), "sum", lengths=rowptr.diff(), unsafe=True)


def _inv_sqrt(degree: Tensor) -> Tensor:
    return torch.where(degree > 0, degree, torch.inf).rsqrt()
