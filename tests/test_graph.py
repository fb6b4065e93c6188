import copy
import pickle

import graphs
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric import EdgeIndex
from torch_geometric.data import Data

import plufg_fast.graph
import plufg_fast.ops
from plufg_fast import Graph
from plufg_fast.graph import Degree, Flow, GraphCache, expand_rows


def to_dense(g: Graph) -> torch.Tensor:
    w = torch.zeros(g.num_nodes, g.num_nodes, dtype=torch.float64)
    weight = torch.ones(g.num_edges) if g.weight is None else g.weight
    w[expand_rows(g.rowptr, g.col).long(), g.col.long()] = weight.double()
    return w


def same(a: Graph, b: Graph) -> bool:
    return (
        torch.equal(a.rowptr, b.rowptr)
        and torch.equal(a.col, b.col)
        and torch.equal(to_dense(a), to_dense(b))
        and all(
            torch.equal(s, t) for s, t in zip(a.values(torch.float64)[1:], b.values(torch.float64)[1:], strict=True)
        )
        and a.is_undirected == b.is_undirected
    )


@pytest.mark.parametrize("kind", graphs.ALL)
def test_matches_the_dense_matrix(kind: str) -> None:
    w = graphs.dense(kind)
    g = graphs.from_dense(w)
    assert torch.equal(to_dense(g), w)
    assert torch.equal(to_dense(g.transpose()), w.T)
    torch.testing.assert_close(g.deg_inv_sqrt.double(), graphs.inverse_sqrt(w.sum(1)), rtol=1e-6, atol=0)
    off = w.clone().fill_diagonal_(0)
    torch.testing.assert_close(g.lap_deg_inv_sqrt.double(), graphs.inverse_sqrt(off.sum(1)), rtol=1e-6, atol=0)
    assert g.is_undirected == torch.equal(w, w.T)
    assert g.has_self_loops == bool(w.diagonal().any())
    assert (g.transpose() is g) == g.is_undirected


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 9).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.integers(1, 8)), max_size=30),
        )
    ),
    st.sampled_from(["source_to_target", "target_to_source"]),
    st.sampled_from(["in", "out"]),
)
def test_any_multigraph_sums_duplicates_and_finds_the_way_back(case, flow, degree) -> None:
    n, edges = case
    index = torch.tensor([[e[0] for e in edges], [e[1] for e in edges]], dtype=torch.int64).view(2, -1)
    weight = torch.tensor([e[2] / 4 for e in edges], dtype=torch.float64)
    g = Graph(index, n, weight, flow=flow, degree=degree)
    receiver, sender = (1, 0) if flow == "source_to_target" else (0, 1)
    expected = torch.zeros(n, n, dtype=torch.float64)
    for e in edges:
        expected[e[receiver], e[sender]] += e[2] / 4
    assert torch.equal(to_dense(g), expected)
    assert torch.equal(g.deg_inv_sqrt, graphs.inverse_sqrt(expected.sum(1 if degree == "in" else 0)))
    rows = expand_rows(g.rowptr, g.col)
    assert torch.equal(rows[g.edge_slot].long(), index[receiver])
    assert torch.equal(g.col[g.edge_slot].long(), index[sender])
    t = g.transpose()
    assert torch.equal(expand_rows(t.rowptr, t.col)[t.edge_slot].long(), index[sender if t is not g else receiver])
    for row in range(n):
        part = g.col[g.rowptr[row] : g.rowptr[row + 1]]
        assert torch.equal(part, part.sort().values)


@pytest.mark.parametrize("kind", ["weighted", "directed_weighted_loops", "directed"])
def test_every_input_format_gives_the_same_graph(kind: str) -> None:
    w = graphs.dense(kind)
    g = graphs.from_dense(w)
    receiver, sender = w.nonzero(as_tuple=True)
    index, weight = torch.stack((sender, receiver)), w[receiver, sender]
    n = w.size(0)
    shuffled = torch.randperm(index.size(1))
    assert same(g, Graph(index[:, shuffled], n, weight[shuffled]))
    assert same(g, Graph(index.int(), n, weight))
    assert same(g, Graph(EdgeIndex(index, sparse_size=(n, n)), edge_weight=weight))
    # Sparse matrices follow PyG's adj_t convention: a row belongs to the receiving node.
    coo = torch.sparse_coo_tensor(torch.stack((receiver, sender)), weight, (n, n), check_invariants=True)
    assert same(g, Graph(coo))
    assert same(g, Graph(coo.coalesce().to_sparse_csr()))
    assert same(g, Graph(coo.coalesce().to_sparse_csc()))
    # scipy matrices follow PyG's from_scipy_sparse_matrix: A[i, j] is an edge from i to j.
    assert same(g, Graph(scipy.sparse.coo_matrix(w.T.numpy())))
    assert same(g, Graph(scipy.sparse.csr_array(w.T.numpy())))
    assert same(g, Graph.from_data(Data(edge_index=index, edge_weight=weight, num_nodes=n)))
    assert same(g, Graph.from_data(Data(adj_t=coo, num_nodes=n)))
    assert same(g, Graph(index.flip(0), n, weight, flow="target_to_source"))


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize(("degree", "laplacian_degree"), [("in", "out"), ("out", "in"), ("out", None)])
def test_options_of_a_graph_from_data(flow: Flow, degree: Degree, laplacian_degree: Degree | None) -> None:
    w = graphs.dense("directed_weighted_loops")  # W[i, j] from j to i
    receiver, sender = w.nonzero(as_tuple=True)
    data = Data(edge_index=torch.stack((sender, receiver)), edge_weight=w[receiver, sender], num_nodes=11)
    g = Graph.from_data(data, flow, degree, laplacian_degree)
    w = w if flow == "source_to_target" else w.T
    assert torch.equal(to_dense(g), w)
    off = w.clone().fill_diagonal_(0)
    over = {"in": 1, "out": 0}
    torch.testing.assert_close(g.deg_inv_sqrt, graphs.inverse_sqrt(w.sum(over[degree])))
    expected = graphs.inverse_sqrt(off.sum(over[laplacian_degree or degree]))
    torch.testing.assert_close(g.lap_deg_inv_sqrt, expected)


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_edge_index_is_what_was_given_whichever_way_it_flows(flow: Flow) -> None:
    index = torch.tensor([[3, 0, 2, 2, 1], [1, 2, 2, 0, 3]])
    g = Graph(index, 4, flow=flow)
    assert torch.equal(g.edge_index[:, g.edge_slot], index)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_integer_weights_keep_their_values(dtype: torch.dtype) -> None:
    g = Graph(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), edge_weight=torch.tensor([2, 2, 3, 3], dtype=dtype))
    assert g.weight is not None
    assert g.weight.dtype == torch.get_default_dtype()
    assert g.weight.tolist() == [2, 2, 3, 3]


def test_sparse_tensor_gives_the_same_graph() -> None:
    torch_sparse = pytest.importorskip("torch_sparse", reason="torch_sparse is not installed")
    w = graphs.dense("directed_weighted_loops")
    assert same(graphs.from_dense(w), Graph(torch_sparse.SparseTensor.from_dense(w)))


def test_sparse_tensor_is_recognised_by_its_interface() -> None:
    # torch_sparse has no wheel for every torch; what Graph uses of its SparseTensor are these two methods.
    class SparseTensor:
        def __init__(self, w: torch.Tensor) -> None:
            self.w = w

        def sparse_sizes(self) -> tuple[int, ...]:
            return tuple(self.w.shape)

        def coo(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            row, col = self.w.nonzero(as_tuple=True)
            return row, col, self.w[row, col]

    w = graphs.dense("directed_weighted_loops")
    assert same(graphs.from_dense(w), Graph(SparseTensor(w)))


def test_uncoalesced_entries_are_summed() -> None:
    index = torch.tensor([[0, 0, 1], [1, 1, 0]])
    g = Graph(torch.sparse_coo_tensor(index, torch.tensor([1.0, 2.0, 3.0]), (2, 2)))
    assert g.num_edges == 2
    assert g.weight is not None
    assert g.weight.tolist() == [3.0, 3.0]
    assert g.is_undirected


def test_stored_zeros_of_a_matrix_are_no_edges() -> None:
    index = torch.tensor([[0, 1, 0], [1, 0, 2]])
    matrix = torch.sparse_coo_tensor(index, torch.tensor([1.0, 1.0, 0.0]), (3, 3), check_invariants=True)
    for stored in (matrix, scipy.sparse.coo_matrix(([1.0, 1.0, 0.0], index.numpy()), (3, 3))):
        g = Graph(stored)
        assert (g.num_edges, g.is_undirected, g.weight) == (2, True, None)


def test_many_duplicates_are_counted_where_half_precision_is_the_default() -> None:
    # bfloat16 has no 257.
    torch.set_default_dtype(torch.bfloat16)
    try:
        g = Graph(torch.tensor([[0], [1]]).expand(2, 257))
    finally:
        torch.set_default_dtype(torch.float32)
    assert g.weight is not None
    assert (g.weight.tolist(), g.dtype) == ([257.0], torch.float32)


def test_unweighted_duplicates_count() -> None:
    g = Graph(torch.tensor([[0, 0, 0, 1], [1, 1, 1, 0]]))
    assert g.weight is not None
    assert g.weight.tolist() == [1.0, 3.0]
    assert g.edge_slot.tolist() == [1, 1, 1, 0]


def test_unit_weights_are_no_weights() -> None:
    assert Graph(torch.tensor([[0, 1], [1, 0]]), edge_weight=torch.ones(2)).weight is None


def test_duplicates_that_sum_to_one_are_no_weights() -> None:
    g = Graph(torch.tensor([[0, 0], [1, 1]]), edge_weight=torch.tensor([0.25, 0.75]))
    assert g.weight is None
    assert g.num_edges == 1


@pytest.mark.parametrize("num_nodes", [0, 1, 5])
def test_no_edges(num_nodes: int) -> None:
    g = Graph(torch.empty(2, 0, dtype=torch.int64), num_nodes)
    assert (g.num_nodes, g.num_edges) == (num_nodes, 0)
    assert g.is_undirected
    assert torch.equal(g.deg_inv_sqrt, torch.zeros(num_nodes))


def test_nodes_are_counted_by_the_largest_index() -> None:
    assert Graph(torch.tensor([[0, 7], [1, 2]])).num_nodes == 8
    assert Graph(torch.empty(2, 0, dtype=torch.int64)).num_nodes == 0


def test_a_lone_self_loop_leaves_the_laplacian() -> None:
    g = Graph(torch.tensor([[0, 1, 2], [0, 2, 1]]), edge_weight=torch.tensor([0.3, 0.1, 0.1]))
    assert g.deg_inv_sqrt[0] > 0
    assert g.lap_deg_inv_sqrt[0] == 0


def test_degree_choices_on_a_directed_graph() -> None:
    w = graphs.dense("directed_weighted_loops")
    off = w.clone().fill_diagonal_(0)
    g = graphs.from_dense(w, degree="in", laplacian_degree="out")
    torch.testing.assert_close(g.deg_inv_sqrt, graphs.inverse_sqrt(w.sum(1)))
    torch.testing.assert_close(g.lap_deg_inv_sqrt, graphs.inverse_sqrt(off.sum(0)))
    t = g.transpose()
    assert torch.equal(t.deg_inv_sqrt, g.deg_inv_sqrt)
    assert t.transpose() is g
    receiver, sender = w.nonzero(as_tuple=True)
    rebuilt = Graph(
        torch.stack((sender, receiver)), w.size(0), w[receiver, sender], t.flow, t.degree, t.laplacian_degree
    )
    assert same(t, rebuilt)


def test_indices_take_64_bits_when_they_must(monkeypatch: pytest.MonkeyPatch) -> None:
    small = graphs.graph("directed_weighted_loops")
    monkeypatch.setattr(plufg_fast.graph, "_INT32_MAX", 10)
    large = graphs.graph("directed_weighted_loops")
    assert {t.dtype for t in (small.rowptr, small.col, small.edge_slot)} == {torch.int32}
    assert {t.dtype for t in (large.rowptr, large.col, large.edge_slot)} == {torch.int64}
    assert torch.equal(small.col.long(), large.col)


@pytest.mark.parametrize("kind", ["weighted", "directed_weighted_loops"])
def test_survives_pickle_copy_and_conversion(kind: str) -> None:
    g = graphs.graph(kind)
    for other in (pickle.loads(pickle.dumps(g)), copy.deepcopy(g)):
        assert same(g, other)
        assert same(g.transpose(), other.transpose())
        assert other.transpose().transpose() is other
    single = g.to(torch.float32)
    assert single.weight is not None
    assert single.weight.dtype == single.deg_inv_sqrt.dtype == torch.float32
    assert single.transpose().transpose() is single
    assert g.to("cpu") is g
    meta = g.to("meta")
    assert meta.transpose().col.device.type == "meta"


def test_unweighted_degrees_are_exact_in_double_precision() -> None:
    g = graphs.from_dense(graphs.dense("unweighted"))
    assert g.deg_inv_sqrt.dtype == torch.float32
    expected = graphs.inverse_sqrt(graphs.dense("unweighted").sum(1))
    torch.testing.assert_close(g.values(torch.float64)[1], expected, rtol=1e-15, atol=0)


def test_repr_tells_what_matters() -> None:
    assert repr(graphs.graph("unweighted")) == ("Graph(num_nodes=11, num_edges=46, undirected, unweighted, int32, cpu)")
    assert "directed, weighted (float64), self-loops" in repr(graphs.graph("directed_weighted_loops"))


def test_symmetric_up_to_rounding_is_undirected() -> None:
    # Sums in another order, and weights computed once per direction.
    index = torch.tensor([[0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
    g = Graph(index, edge_weight=torch.tensor([0.1, 0.2, 0.3, 0.3, 0.2, 0.1], dtype=torch.float64))
    assert g.is_undirected
    assert g.weight is not None
    assert g.weight[0] == g.weight[1]
    w = graphs.dense("weighted").float()
    scale = w.sum(1).rsqrt()
    assert graphs.from_dense(scale[:, None] * w * scale).is_undirected
    w[0, 1] *= 1 + 1e-4
    assert not graphs.from_dense(w).is_undirected


@pytest.mark.parametrize("kind", ["weighted", "directed_weighted_loops"])
def test_moved_in_inference_mode_it_can_be_trained_with(kind: str) -> None:
    with torch.inference_mode():
        g = graphs.graph(kind).to(torch.float32)
    y = torch.randn(11, 2, requires_grad=True)
    (plufg_fast.ops.plap_step(y, y, g, 1.5, 1.0).sum() + plufg_fast.Framelet().analysis(y, g).sum()).backward()
    assert y.grad is not None


def test_moves_with_the_data_that_holds_it() -> None:
    # PyG gives what it holds arguments that a tensor takes, and leaves behind in silence what refuses them.
    data = Data(x=torch.randn(11, 2), graph=graphs.graph("directed"))
    assert data.graph.cpu() is data.graph
    assert data.to("meta", non_blocking=True).graph.device == data.x.device == torch.device("meta")


@pytest.mark.parametrize("least", [1e-92, 1e-36])
def test_weights_that_vanish_in_single_precision_leave_a_node_isolated(least: float) -> None:
    # 1e-36 is a float32, but squares of what is divided by its root are none.
    weight = torch.tensor([1.0, 1.0, least, least], dtype=torch.float64)
    g = Graph(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), edge_weight=weight)
    _, dinv, lap_dinv = g.values(torch.float32)
    assert dinv[2] == lap_dinv[2] == 0
    assert g.values(torch.float64)[1][2] > 0
    y = torch.full((3, 64), 3.0, requires_grad=True)
    for p in (1.0, 1.7, 2.0, 2.5):
        out = plufg_fast.ops.plap_solve(y * torch.tensor([[1.0], [-2.0], [3.0]]), g, p, 1.0)
        assert out.isfinite().all()
        assert torch.autograd.grad(out.sum(), y)[0].isfinite().all()


def test_weights_that_are_small_in_single_precision_count() -> None:
    weight = torch.tensor([1.0, 1.0, 1e-28, 1e-28])
    g = Graph(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), edge_weight=weight)
    y = torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    exact = plufg_fast.ops.plap_solve(y.double(), g, 1.7, 1.0)
    torch.testing.assert_close(plufg_fast.ops.plap_solve(y, g, 1.7, 1.0), exact.float(), rtol=1e-5, atol=1e-5)


class TestCache:
    index = torch.tensor([[0, 1, 2], [1, 2, 0]])

    def test_reuses_the_same_tensors(self) -> None:
        cache = GraphCache()
        index = self.index.clone()
        assert cache.get(index, 3, None) is cache.get(index, 3, None)

    def test_reuses_equal_tensors(self) -> None:
        cache = GraphCache()
        assert cache.get(self.index.clone(), 3, None) is cache.get(self.index.clone(), 3, None)

    def test_notices_another_graph(self) -> None:
        cache = GraphCache()
        first = cache.get(self.index, 3, None)
        second = cache.get(self.index.flip(0), 3, None)
        assert not torch.equal(first.col, second.col)

    def test_notices_a_change_in_place(self) -> None:
        cache = GraphCache()
        index = self.index.clone()
        first = cache.get(index, 3, None)
        index[1, 0] = 2
        assert not torch.equal(first.rowptr, cache.get(index, 3, None).rowptr)

    def test_notices_a_change_in_place_behind_an_equal_tensor(self) -> None:
        cache = GraphCache()
        index = self.index.clone()
        cache.get(index, 3, None)
        index[1, 0] = 2
        changed = index.clone()
        assert torch.equal(cache.get(changed, 3, None).rowptr, Graph(changed, 3).rowptr)

    @pytest.mark.parametrize("inside", [True, False])
    def test_notices_what_is_written_to_an_edge_index(self, inside: bool) -> None:
        cache = GraphCache()
        base = self.index.clone()
        index = EdgeIndex(base, sparse_size=(3, 3))
        first = cache.get(index, 3, None)
        assert cache.get(index, 3, None) is first
        (base if inside else index)[1, 0] = 2
        assert torch.equal(index.as_tensor(), base)
        # Nor may the changed one, which is kept, stand for what equals it now.
        for changed in (base.clone(), index):
            assert torch.equal(cache.get(changed, 3, None).rowptr, Graph(base, 3).rowptr)
            assert cache.get(self.index, 3, None).edge_index.equal(first.edge_index)
            cache.get(index, 3, None)

    def test_notices_weights_nodes_and_options(self) -> None:
        cache = GraphCache()
        base = cache.get(self.index, 3, None)
        weighted = cache.get(self.index, 3, torch.tensor([1.0, 2.0, 3.0]))
        assert weighted.weight is not None
        assert cache.get(self.index, 4, None).num_nodes == 4
        assert cache.get(self.index, 3, None, flow="target_to_source").flow == "target_to_source"
        assert base.weight is None

    def test_rebuilds_for_matrices_that_cannot_be_watched(self) -> None:
        cache = GraphCache()
        matrix = scipy.sparse.csr_matrix(graphs.dense("weighted").numpy())
        first = cache.get(matrix, 11, None)
        matrix.data[:] = 2.0
        second = cache.get(matrix, 11, None)
        assert first.weight is not None
        assert second.weight is not None
        assert not torch.equal(first.weight, second.weight)

    def test_rebuilds_for_tensors_that_carry_no_version(self) -> None:
        cache = GraphCache()
        with torch.inference_mode():
            index = self.index.clone()
        first = cache.get(index, 3, None)
        with torch.inference_mode():
            index[1, 0] = 2
        assert not torch.equal(first.rowptr, cache.get(index, 3, None).rowptr)

    def test_another_thread_that_changes_the_graph_does_not_change_this_ones(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache, other = GraphCache(), self.index.flip(1)[:, :-1].contiguous()
        same = plufg_fast.graph._same

        def interrupted(a: object, b: object) -> bool:
            found = same(a, b)
            # What another thread may do while tensors are compared.
            monkeypatch.setattr(plufg_fast.graph, "_same", same)
            cache.get(other, 3, None)
            return found

        first = cache.get(self.index, 3, None)
        monkeypatch.setattr(plufg_fast.graph, "_same", interrupted)
        assert cache.get(self.index.clone(), 3, None) is first


def test_a_matrix_whose_gradient_would_be_lost_is_refused():
    values = torch.ones(2, requires_grad=True)
    matrix = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), values, (2, 2))
    for adjacency in (matrix, matrix.to_sparse_csr()):
        with pytest.raises(ValueError, match=r"edge_index must be a constant \(pass edge_index.detach\(\)\)"):
            Graph(adjacency)
    assert Graph(matrix.detach()).num_edges == 2


def test_values_are_those_of_the_precision_and_the_graph_asked():
    g = Graph(torch.tensor([[0, 1, 2], [1, 2, 1]]), 4, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    half, full = g.values(torch.float32), g.values(torch.float64)
    assert [t.dtype for t in (*half, *full)] == [torch.float32] * 3 + [torch.float64] * 3
    assert g.values(torch.float32) is half
    moved = g.to(torch.float32)
    assert moved.values(torch.float64)[0].dtype == torch.float64
    # Each graph has its own: a transpose made later must not answer with another's.
    torch.testing.assert_close(g.transpose().values(torch.float64)[0], g.transpose().weight)
    assert not torch.equal(g.values(torch.float64)[0], g.transpose().values(torch.float64)[0])


def test_values_first_asked_for_in_inference_mode_serve_training():
    g = Graph(torch.tensor([[0, 1], [1, 0]]), 2, torch.tensor([2.0, 2.0]))
    with torch.inference_mode():
        g.values(torch.float64)
    f = torch.ones(2, 1, dtype=torch.float64, requires_grad=True)
    (f * g.values(torch.float64)[1].view(-1, 1)).sum().backward()
    assert f.grad is not None


class TestCover:
    @pytest.mark.parametrize("kind", graphs.ALL)
    def test_is_both_directions_between_two_copies(self, kind: str) -> None:
        w = graphs.dense(kind)
        cover = graphs.from_dense(w).cover()
        none = torch.zeros_like(w)
        blocks = torch.cat((torch.cat((none, w), 1), torch.cat((w.T, none), 1)))
        assert torch.equal(to_dense(cover), blocks)
        assert same(cover, graphs.from_dense(blocks))
        assert cover.is_undirected
        assert not cover.has_self_loops

    @pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
    def test_first_copies_receive_whichever_way_and_degrees_were_asked(self, flow: Flow) -> None:
        index, weight = torch.tensor([[0, 0, 1, 2], [1, 1, 2, 2]]), torch.tensor([0.5, 1.0, 2.0, 3.0])
        cover = Graph(index, 4, weight, flow=flow, degree="out", laplacian_degree="in").cover()
        receiver, sender = (1, 0) if flow == "source_to_target" else (0, 1)
        expected = torch.zeros(8, 8, dtype=torch.float64)
        for i, j, value in zip(index[receiver].tolist(), index[sender].tolist(), weight.tolist(), strict=True):
            expected[i, 4 + j] += value
            expected[4 + j, i] += value
        assert torch.equal(to_dense(cover), expected)
        for degree in (cover.deg_inv_sqrt, cover.lap_deg_inv_sqrt):
            torch.testing.assert_close(degree.double(), graphs.inverse_sqrt(expected.sum(1)), rtol=1e-6, atol=0)

    def test_of_the_transpose_has_its_copies_swapped(self) -> None:
        g = graphs.graph("directed_weighted_loops")
        swap = torch.arange(22).roll(11)
        assert torch.equal(to_dense(g.transpose().cover()), to_dense(g.cover())[swap][:, swap])

    @pytest.mark.parametrize("num_nodes", [0, 1, 5])
    def test_without_edges(self, num_nodes: int) -> None:
        cover = Graph(torch.empty(2, 0, dtype=torch.int64), num_nodes).cover()
        assert (cover.num_nodes, cover.num_edges) == (2 * num_nodes, 0)

    def test_is_made_once_and_follows_its_graph(self) -> None:
        g = graphs.graph("directed_weighted_loops")
        assert g.cover() is g.cover()
        single = g.to(torch.float32)
        assert single.cover().dtype == torch.float32
        assert g.cover().dtype == torch.float64
        for other in (pickle.loads(pickle.dumps(g)), copy.deepcopy(g)):
            assert same(other.cover(), g.cover())

    def test_made_in_inference_mode_serves_training(self) -> None:
        g = graphs.graph("directed_weighted_loops")
        with torch.inference_mode():
            g.cover()
        y = torch.randn(22, 2, dtype=torch.float64, requires_grad=True)
        plufg_fast.ops.plap_step(y, y, g.cover(), 1.5, 1.0).sum().backward()
        assert y.grad is not None

    def test_framelets_are_tight_where_those_of_the_directed_graph_are_not(self) -> None:
        g, framelet = graphs.graph("directed"), plufg_fast.Framelet("linear", degree=6)

        def change(graph: Graph) -> float:
            x = torch.randn(graph.num_nodes, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
            return abs(float(framelet.analysis(x, graph).norm() / x.norm()) - 1)

        assert change(g.cover()) < 1e-3
        assert change(g) > 1e-2
