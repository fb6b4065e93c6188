"""ChebConv against PyG's."""

import pytest
import torch
import torch_geometric.nn

import plufg_fast as pf
from plufg_fast.nn import ChebConv

EDGES = torch.tensor([[0, 1, 2, 3, 1, 2, 3, 0, 0], [1, 0, 1, 2, 2, 3, 0, 3, 0]])


@pytest.mark.parametrize("normalization", ["sym", "rw", None])
@pytest.mark.parametrize("widths", [(8, 5), (5, 8)])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("order", [1, 2, 5])
def test_equals_pygs(order: int, flow: str, widths: tuple[int, int], normalization: str | None) -> None:
    theirs = torch_geometric.nn.ChebConv(*widths, order, normalization=normalization, flow=flow).double()
    ours = ChebConv(*widths, order, normalization=normalization, flow=flow).double()
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    x, weight = torch.randn(6, widths[0], dtype=torch.float64), torch.rand(EDGES.size(1), dtype=torch.float64)
    for edge_weight in (None, weight):
        with pytest.raises(ValueError, match=r"lambda_max must be a constant \(pass lambda_max\.detach"):
            ours(x, EDGES, edge_weight, lambda_max=torch.tensor(1.3, requires_grad=True))
        for lambda_max in (None, 1.7, torch.tensor(1.3)):
            expected = theirs(x, EDGES, edge_weight, lambda_max=lambda_max)
            actual = ours(x, EDGES, edge_weight, lambda_max=lambda_max)
            torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("built", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_flow_is_the_layers_on_an_undirected_graph(flow: str, built: str) -> None:
    path = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    theirs = torch_geometric.nn.ChebConv(8, 5, 3, normalization="rw", flow=flow).double()
    ours = ChebConv(8, 5, 3, normalization="rw", flow=flow).double()
    ours.load_state_dict(theirs.state_dict())
    x, graph = torch.randn(4, 8, dtype=torch.float64), pf.Graph(path, flow=built)
    torch.testing.assert_close(ours(x, graph), theirs(x, path), rtol=1e-9, atol=1e-9)


def test_equals_pygs_in_single_precision() -> None:
    theirs, ours = torch_geometric.nn.ChebConv(8, 5, 4), ChebConv(8, 5, 4)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(6, 8)
    torch.testing.assert_close(ours(x, EDGES), theirs(x, EDGES), rtol=1e-6, atol=2e-6)


def test_equals_pygs_on_a_batch_of_graphs() -> None:
    theirs, ours = torch_geometric.nn.ChebConv(4, 3, 4).double(), ChebConv(4, 3, 4).double()
    ours.load_state_dict(theirs.state_dict())
    x, edges = torch.randn(12, 4, dtype=torch.float64), torch.cat((EDGES, EDGES + 6), dim=1)
    batch, lambda_max = torch.arange(2).repeat_interleave(6), torch.tensor([1.5, 1.9]).double()
    args = (x, edges, None, batch, lambda_max)
    torch.testing.assert_close(ours(*args), theirs(*args), rtol=1e-6, atol=1e-6)


def test_gradients_equal_pygs() -> None:
    theirs, ours = torch_geometric.nn.ChebConv(8, 5, 4).double(), ChebConv(8, 5, 4).double()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(6, 8, dtype=torch.float64)
    for layer in (theirs, ours):
        layer(x, EDGES).square().sum().backward()
    for a, b in zip(theirs.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("widths", [(8, 5), (5, 8)])
def test_takes_several_samples_on_one_graph_as_pygs(widths: tuple[int, int]) -> None:
    theirs, ours = torch_geometric.nn.ChebConv(*widths, 4).double(), ChebConv(*widths, 4).double()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 6, widths[0], dtype=torch.float64)
    torch.testing.assert_close(ours(x, EDGES), theirs(x, EDGES), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("widths", [(8, 5), (5, 8)])
def test_half_precision_and_autocast(widths: tuple[int, int]) -> None:
    layer, x = ChebConv(*widths, 3), torch.randn(6, widths[0])
    expected = layer(x, EDGES)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x, EDGES)
    assert out.dtype == torch.float32
    # Measured at most 0.018, of values of size 1 to 3.
    torch.testing.assert_close(out, expected, rtol=0, atol=0.03)
    half = layer.bfloat16()(x.bfloat16(), EDGES)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, rtol=0, atol=0.03)
