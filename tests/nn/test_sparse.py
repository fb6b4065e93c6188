"""Sparse features: the same numbers as dense ones."""

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import SGConv

from plufg_fast.data import csbm, split
from plufg_fast.experiments.train import fit
from plufg_fast.nn import sparse
from plufg_fast.nn.models import MODELS, Dims, build
from plufg_fast.nn.sparse import InputLinear, dropout, sparse_features


def words(nodes=30, features=20, share=0.1, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(nodes, features, generator=generator, dtype=dtype)
    keep = torch.rand(nodes, features, generator=generator) < share
    # Nodes without a word, words of no node, the first and the last among them.
    keep[[0, 3, -1]] = False
    keep[:, [0, 7, -1]] = False
    return x * keep


@pytest.fixture
def graph():
    graph = csbm(30, 20, avg_degree=5.0)
    graph.x = words()
    return graph


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(30, 20), (1, 5), (5, 1), (0, 4), (40, 300)])
def test_the_linear_layer_and_its_gradients_are_those_of_the_dense_one(shape, dtype):
    x = words(*shape, dtype=dtype) if min(shape) > 3 else torch.zeros(shape, dtype=dtype)
    if x.numel() == 5:
        x.view(-1)[2] = 3.0
    csr = x.to_sparse_csr()
    lin = InputLinear(shape[1], 7).to(dtype)
    grads = []
    for features in (x, csr):
        lin.zero_grad()
        out = lin(features)
        assert out.layout == torch.strided
        (out * torch.arange(out.numel(), dtype=dtype).view_as(out)).sum().backward()
        grads.append((out.detach(), lin.weight.grad.clone(), lin.bias.grad.clone()))
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6 * float(a.abs().max() if a.numel() else 0))


@pytest.mark.parametrize("name", MODELS)
def test_every_network_takes_sparse_features(name, graph):
    model = build(name, graph, hidden_channels=8).double().eval()
    x, csr = graph.x.double(), sparse_features(graph.x.double())
    assert csr.layout == torch.sparse_csr
    grads = []
    for features in (x, csr):
        model.zero_grad()
        out = model(features, graph.edge_index)
        (out * torch.arange(60.0).view(30, 2)).sum().backward()
        grads.append([out.detach(), *(value.grad.clone() for value in model.parameters())])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["pl-ufg2", "gcn", "gat", "sgc"])
def test_a_network_learns_the_same_from_sparse_features(name, graph, monkeypatch):
    masks = split(graph, "random", 0, rates=(0.4, 0.3))
    # Without dropout, which draws for the non-zeros only and so other numbers.
    options = {"hidden_channels": 8, "dropout": 0.0}
    seen = []
    forward = InputLinear.forward

    def watch(self, x):
        if x.size(1) == graph.num_features:
            seen.append(x.layout)
        return forward(self, x)

    monkeypatch.setattr(InputLinear, "forward", watch)
    results = []
    for limit in (1.0, 0.0):
        monkeypatch.setattr(sparse, "MAX_DENSITY", limit)
        results.append(fit(build(name, graph, **options), graph, masks, epochs=15))
    assert {*seen[:30]} == {torch.sparse_csr}
    assert {*seen[30:]} == {torch.strided}
    a, b = results
    assert a.train_loss == pytest.approx(b.train_loss, rel=1e-4)
    assert (a.train_accuracy, a.val_accuracy, a.test_accuracy) == (b.train_accuracy, b.val_accuracy, b.test_accuracy)


def test_same_seed_same_bits_with_sparse_features(graph):
    masks = split(graph, "random", 0, rates=(0.4, 0.3))
    first, again = (fit(build("mlp", graph), graph, masks, epochs=5, seed=3).train_loss for _ in range(2))
    assert first == again


def test_only_features_that_are_mostly_zero_become_sparse():
    x = torch.zeros(10, 10)
    x[:2] = 1.0
    assert sparse_features(x).layout == torch.sparse_csr
    assert torch.equal(sparse_features(x).to_dense(), x)
    x[2, 0] = 1.0
    assert sparse_features(x) is x
    csr = x.to_sparse_csr()
    assert sparse_features(csr) is csr


def test_a_module_of_ones_own_gets_the_features_as_they_are(graph):
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = torch.nn.Linear(20, 2)

        def reset_parameters(self):
            self.lin.reset_parameters()

        def forward(self, x, edge_index, edge_weight=None):
            assert x.layout == torch.strided
            return F.log_softmax(self.lin(x), dim=-1)

    fit(Own(), graph, split(graph, "random", 0, rates=(0.4, 0.3)), epochs=1)


def test_dropout_drops_non_zeros_and_keeps_their_mean():
    x = words(400, 300)
    csr = sparse_features(x)
    torch.manual_seed(0)
    dropped = dropout(csr, 0.75, True).to_dense()
    kept = dropped != 0
    assert not bool(kept[x == 0].any())
    assert torch.equal(dropped[kept], x[kept] * 4)
    share = float(kept.sum()) / float((x != 0).sum())
    assert share == pytest.approx(0.25, abs=5 * (0.25 * 0.75 / float((x != 0).sum())) ** 0.5)
    assert dropout(csr, 0.75, False) is csr
    assert dropout(csr, 0.0, True) is csr


def test_gradients_behind_dropout_see_the_dropped_values():
    csr = sparse_features(words())
    lin = InputLinear(20, 3, bias=False)
    lin(csr).sum().backward()  # the transpose that is kept must not bring its values along
    lin.zero_grad()
    dropped = dropout(csr, 0.5, True)
    lin(dropped).sum().backward()
    torch.testing.assert_close(lin.weight.grad, dropped.to_dense().sum(0).expand(3, 20))


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (torch.eye(4).to_sparse_csr(), ValueError, r"InputLinear: x must be of shape \[N, 5\]"),
        (torch.eye(5).to_sparse_coo(), TypeError, "InputLinear: x must be a dense tensor or a constant sparse CSR"),
        (torch.eye(5).to_sparse_csr().requires_grad_(), TypeError, "constant"),
    ],
)
def test_other_inputs_are_refused(x, error, words):
    with pytest.raises(error, match=words):
        InputLinear(5, 2)(x)


def test_sgc_maps_before_it_smooths_and_computes_what_pyg_does():
    graph = csbm(30, 20, avg_degree=5.0)
    ours = build("sgc", Dims(20, 3), K=3)
    pyg = SGConv(20, 3, K=3)
    with torch.no_grad():
        ours.bias.uniform_()
        pyg.lin.weight.copy_(ours.lin.weight)
        pyg.lin.bias.copy_(ours.bias)
    expected = F.log_softmax(pyg(graph.x, graph.edge_index), dim=-1)
    torch.testing.assert_close(ours(graph.x, graph.edge_index), expected)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dropout_of_a_dense_tensor_keeps_its_share_and_mean_and_gives_gradients(p, dtype):
    x = torch.rand(501, 199, dtype=dtype) + 0.5
    x.requires_grad_()
    torch.manual_seed(1)
    out = dropout(x, p, True)
    kept = out != 0
    share = float(kept.double().mean())
    assert share == pytest.approx(1 - p, abs=5 * (p * (1 - p) / x.numel()) ** 0.5)
    torch.testing.assert_close(out[kept], x[kept] / (1 - p), rtol=1e-4, atol=0.0)
    # No pattern along rows or columns: four numbers share a draw.
    for dim in (0, 1):
        assert float((kept.double().mean(dim) - (1 - p)).abs().max()) <= 5 * (p * (1 - p) / x.size(dim)) ** 0.5
    shift = (kept[:, 1:] & kept[:, :-1]).double().mean()
    assert float(shift) == pytest.approx((1 - p) ** 2, abs=0.01)
    out.sum().backward()
    assert torch.equal(x.grad != 0, kept)
    assert dropout(x, p, False) is x


def test_dropout_of_nearly_everything_stays_finite():
    assert bool(dropout(torch.ones(1000, 100), 1 - 1e-9, True).isfinite().all())
