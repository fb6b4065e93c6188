"""The baselines compute what they are said to compute, and so do the expectations they are checked against."""

import graphs
import pytest
import torch

from plufg_fast import Framelet, Graph, Penalty, ops
from plufg_fast.bench import baselines, parity
from plufg_fast.bench.graphs import KINDS, labelled, power_law, short_count
from plufg_fast.nn import PLUFGConv
from plufg_fast.nn.models import PLUFG
from plufg_fast.ops.plap import reference
from plufg_fast.ops.plap.reference import Edges

SMALL = power_law(60, 400)


def signals(g: Graph, *shape: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(g.num_nodes, *shape, dtype=dtype), torch.randn(g.num_nodes, *shape, dtype=dtype)


@pytest.mark.parametrize("kind", ["unweighted", "weighted", "self_loops"])
def test_product_message_passing_and_laplacian_agree(kind: str) -> None:
    g = graphs.graph(kind).to(torch.float32)
    x, _ = signals(g, 5)
    product = baselines.adjacency(g) @ x
    dense = torch.eye(g.num_nodes, dtype=torch.float64) - graphs.laplacian(graphs.dense(kind))
    torch.testing.assert_close(product, (dense @ x.double()).float())
    torch.testing.assert_close(baselines.message_passing(g)(x), product)
    assert parity.error([product], [parity.expected_sum(x, g, normalised=True)]) < 1e-6


@pytest.mark.skipif(not hasattr(torch.ops.plufg, "cheb_step"), reason="the extension is not built")
def test_the_bare_gather_is_the_sum_over_neighbours() -> None:
    x, _ = signals(SMALL, 8)
    ones = baselines.csr(SMALL.rowptr, SMALL.col, torch.ones(SMALL.num_edges), SMALL.num_nodes)
    torch.testing.assert_close(baselines.gather_sum(x, SMALL), ones @ x)
    assert parity.error([ones @ x], [parity.expected_sum(x, SMALL, normalised=False)]) < 1e-6


def test_the_step_in_the_first_cache_is_a_step_over_as_many_edges() -> None:
    g = power_law(200, 2_000)
    f, y = signals(g, 8)
    edges = Edges.from_csr(g.rowptr, g.col % 64, None, g.values(torch.float32)[1])
    p, mu = torch.tensor([1.5]), torch.tensor([0.7])
    expected = reference.step(f.unsqueeze(1), y.unsqueeze(1), edges, p, mu, Penalty("power"), 0.0).squeeze(1)
    torch.testing.assert_close(baselines.step_in_cache(g, 1.5, 0.7)(f, y), expected)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_explicit_matrices_are_the_framelet_transform(degree: int) -> None:
    x, _ = signals(SMALL, 3)
    explicit, fast = baselines.ExplicitFramelet(SMALL, degree), Framelet("linear", degree=degree)
    bands = fast.analysis(x, SMALL)
    torch.testing.assert_close(explicit.analysis(x, SMALL), bands, rtol=1e-4, atol=1e-5)
    for sum_bands in (True, False):
        there = fast.synthesis(bands, SMALL, sum_bands)
        torch.testing.assert_close(explicit.synthesis(bands, SMALL, sum_bands), there, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.5])
def test_released_step_is_that_of_the_parity_mode(p: float) -> None:
    g = graphs.graph("unweighted")
    y, _ = signals(g, 3, dtype=torch.float64)
    f = y
    for _ in range(5):
        f = baselines.released_step(f, y, g.edge_index, g.values(torch.float64)[1], p, 0.7)
    torch.testing.assert_close(f, ops.plap_solve(y, g, p, 0.7, warmup=4, steps=1, mode="released"))


@pytest.mark.parametrize("own_gradient", [False, True])
def test_released_layer_is_that_of_the_parity_mode(own_gradient: bool) -> None:
    x, _ = signals(SMALL, 4)
    ours = PLUFGConv(4, 4, p=1.5, mu=0.7, num_nodes=SMALL.num_nodes, mode="released")
    framelet = baselines.ExplicitFramelet(SMALL)
    framelet = framelet.with_own_gradient() if own_gradient else framelet
    theirs = baselines.ReleasedConv(4, 4, SMALL, framelet, p=1.5, mu=0.7, num_nodes=SMALL.num_nodes)
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(theirs(x, SMALL), ours(x, SMALL), rtol=1e-4, atol=1e-5)
    # Without an edge whose gradient is zero it can be trained, too.
    for layer in (ours, theirs):
        layer(x, SMALL).square().sum().backward()
    torch.testing.assert_close(theirs.lin.weight.grad, ours.lin.weight.grad, rtol=1e-3, atol=1e-4)


def test_traced_layer_is_the_layer() -> None:
    x, _ = signals(SMALL, 4)
    net = PLUFG(4, 8, 3, num_nodes=SMALL.num_nodes, dropout=0.0, backend="reference")
    expected = net(x, SMALL)
    traced = baselines.TracedConv(8, 8, num_nodes=SMALL.num_nodes)
    traced.load_state_dict(net.conv.state_dict())
    net.conv = traced
    assert torch.equal(net(x, SMALL), expected)


@pytest.mark.parametrize("kind", ["weighted", "self_loops", "isolated", "hub", "directed_weighted_loops"])
@pytest.mark.parametrize("bands", [(), (2,)])
def test_expectations_by_blocks_of_rows_are_the_reference(
    kind: str, bands: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parity, "_BLOCK_EDGES", 7)
    g = graphs.graph(kind)
    f, y = (t.requires_grad_() for t in signals(g, *bands, 3, dtype=torch.float64))
    out = ops.plap_step(f, y, g, 1.5, 0.7, backend="reference")
    torch.testing.assert_close(parity.expected_step(f, y, g, 1.5, 0.7), out.detach())
    grad = torch.randn_like(out)
    expected = torch.autograd.grad(out, (f, y), grad)
    torch.testing.assert_close(parity.expected_gradients(grad, f, y, g, 1.5, 0.7), expected)


def test_on_large_graphs_the_first_rows_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity, "_CHECKED_EDGES", 100)
    f, y = (t.requires_grad_() for t in signals(SMALL, 3, dtype=torch.float64))
    rows = parity.checked_rows(SMALL)
    assert int(SMALL.rowptr[rows]) <= 100 < int(SMALL.rowptr[rows + 1])
    out = ops.plap_step(f, y, SMALL, 1.5, 0.7, backend="reference")
    expected = parity.expected_step(f, y, SMALL, 1.5, 0.7)
    assert expected.size(0) == rows
    assert parity.error([out], [expected]) < 1e-12
    grad = parity.only_checked(torch.randn_like(out), SMALL)
    gradients = torch.autograd.grad(out, (f, y), grad)
    assert parity.error(gradients, parity.expected_gradients(grad, f, y, SMALL, 1.5, 0.7)) < 1e-12


def test_expected_roundtrip_is_the_reference() -> None:
    x, _ = signals(SMALL, 3, dtype=torch.float64)
    coeffs = torch.randn(3, 4, dtype=torch.float64)
    bands = ops.cheb_analysis(x, SMALL, coeffs, 1.2, backend="reference")
    expected = ops.cheb_synthesis(bands, SMALL, coeffs, 1.2, backend="reference")
    matrix = baselines.adjacency(SMALL, torch.float64)
    torch.testing.assert_close(parity.expected_roundtrip(x, matrix, coeffs, 1.2), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_generated_graphs_are_what_they_are_called(kind: str) -> None:
    g = KINDS[kind](1_000, 12_000)
    degree = g.rowptr.diff()
    assert g.is_undirected
    assert not g.has_self_loops
    assert 0.6 * 12_000 < g.num_edges <= 12_000
    spread = float(degree.max()) / float(degree.float().mean())
    assert {"power law": spread > 5, "regular": spread == 1, "grid": 1 < spread < 1.2}[kind]


def test_a_stand_in_says_that_it_is_one() -> None:
    data = labelled("cora", None, tiny=True)
    assert "stand-in for Cora" in data.name
    assert data.x.size(0) == data.y.numel()


@pytest.mark.parametrize(("count", "text"), [(482_113, "0.48 M"), (30_000_000, "30 M"), (4_200, "4.2 k")])
def test_counts_are_short(count: int, text: str) -> None:
    assert short_count(count) == text
