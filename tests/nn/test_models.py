"""The networks of the tables."""

import gc
import inspect
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import seed_everything
from torch_geometric.nn import APPNP as APPNPConv
from torch_geometric.nn import GATConv, GCNConv
from torch_geometric.utils import coalesce

import plufg_fast as pf
from plufg_fast.data import csbm, split
from plufg_fast.experiments.train import fit
from plufg_fast.nn import models
from plufg_fast.nn.conv.base import GraphLayer
from plufg_fast.nn.models import MODELS, Dims, build, option_names
from plufg_fast.nn.sparse import dropout

BASELINES = ("mlp", "gcn", "sgc", "gat", "jknet", "appnp", "gprgnn")
# theta="node" ties a network to its nodes: fine for the tables, not for permutations.
INDUCTIVE = {name: {"theta": "band"} for name in ("pl-ufg1", "pl-ufg2", "pl-fufg", "ufg")}


@pytest.fixture
def graph():
    """12 nodes, undirected, with an isolated one."""
    generator = torch.Generator().manual_seed(0)
    half = torch.randint(0, 11, (2, 20), generator=generator)
    half = half[:, half[0] != half[1]]
    edge_index = coalesce(torch.cat([half, half.flip(0)], dim=1))
    return torch.randn(12, 5, generator=generator), edge_index


def make(name: str, **options: Any) -> Any:
    seed_everything(0)
    return build(name, Dims(5, 3, 12), hidden_channels=8, **options)


@pytest.mark.parametrize("name", MODELS)
def test_rows_are_log_probabilities(name, graph):
    model = make(name).eval()
    out = model(*graph)
    assert out.shape == (12, 3)
    torch.testing.assert_close(out.exp().sum(1), torch.ones(12))


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_gets_a_gradient(name, graph):
    model = make(name)
    # A single linear functional that no symmetry of the softmax cancels.
    (model(*graph) * torch.arange(36.0).view(12, 3)).sum().backward()
    missing = [key for key, value in model.named_parameters() if value.grad is None or not value.grad.any()]
    assert missing == []


@pytest.mark.parametrize("name", MODELS)
def test_reset_parameters_draws_what_the_constructor_draws(name):
    model = make(name)
    first = {key: value.clone() for key, value in model.state_dict().items()}
    model.reset_parameters()
    changed = [key for key, value in model.state_dict().items() if not torch.equal(value, first[key])]
    assert changed
    seed_everything(1)
    model.reset_parameters()
    again = {key: value.clone() for key, value in model.state_dict().items()}
    seed_everything(1)
    model.reset_parameters()
    assert all(torch.equal(value, again[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("name", MODELS)
def test_state_dict_round_trip_gives_the_same_output(name, graph):
    model = make(name).eval()
    other = make(name)
    other.reset_parameters()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.eval()(*graph), model(*graph))


@pytest.mark.parametrize("name", MODELS)
def test_renaming_the_nodes_renames_the_output(name, graph):
    x, edge_index = graph
    model = make(name, **INDUCTIVE.get(name, {})).eval()
    new_name = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    moved = torch.empty_like(x)
    moved[new_name] = x
    torch.testing.assert_close(model(moved, new_name[edge_index])[new_name], model(x, edge_index))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_graph_object_serves_as_well_as_edges(name, weighted, graph):
    x, edge_index = graph
    directed = edge_index[:, edge_index[0] < edge_index[1]]
    weight = torch.linspace(0.5, 2.0, directed.size(1)) if weighted else None
    model = make(name).eval()
    expected = model(x, directed, weight)
    torch.testing.assert_close(model(x, pf.Graph(directed, 12, weight)), expected)
    torch.testing.assert_close(model(x=x, edge_index=directed, edge_weight=weight), expected)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("mlp", "gat")])
def test_edge_weights_matter(name, graph):
    x, edge_index = graph
    model = make(name).eval()
    # Symmetric weights, as in an undirected graph, but not all equal.
    weight = 1.0 + edge_index.sum(0).float()
    assert not torch.allclose(model(x, edge_index, weight), model(x, edge_index), atol=1e-4)


def test_weights_beside_a_graph_object_are_refused(graph):
    x, edge_index = graph
    for name in MODELS:
        if name != "mlp":
            with pytest.raises((ValueError, TypeError), match="edge_weight"):
                make(name)(x, pf.Graph(edge_index, 12), torch.ones(edge_index.size(1)))


@pytest.mark.parametrize("name", ["gcn", "gat", "appnp"])
def test_a_graph_flowing_backwards_is_refused_where_it_would_be_misread(name, graph):
    x, edge_index = graph
    directed = edge_index[:, edge_index[0] < edge_index[1]]
    with pytest.raises(ValueError, match="source_to_target"):
        make(name)(x, pf.Graph(directed, 12, flow="target_to_source"))


@pytest.mark.parametrize("name", MODELS)
def test_learns_a_graph_that_gives_the_classes_away(name):
    data = csbm(200, 8, avg_degree=8.0, phi=0.5, seed=0)
    # Both the edges and the first feature tell the classes.
    data.x[:, 0] += 2.0 * data.y - 1.0
    model = build(name, data, hidden_channels=16)
    result = fit(model, data, split(data, rates=(0.3, 0.2)), epochs=30, lr=0.05, seed=0)
    assert result.test_accuracy > 0.9


@pytest.mark.parametrize("name", ["pl-ufg1", "pl-ufg2", "pl-fufg", "pgnn", "ufg"])
def test_features_are_dropped_in_training_only(name, graph):
    plain, dropping = make(name, dropout=0.0), make(name, dropout=0.0, input_dropout=0.6)
    plain.load_state_dict(dropping.state_dict())
    assert torch.equal(dropping.eval()(*graph), plain(*graph))
    torch.manual_seed(0)
    first, second = (dropping.train()(*graph) for _ in range(2))
    assert not torch.allclose(first, second, atol=1e-3)


def smoothing_matrix(edge_index, weight=None):
    """GCN's, dense and by the book."""
    matrix = torch.zeros(12, 12)
    matrix.index_put_((edge_index[1], edge_index[0]), torch.ones(edge_index.size(1)) if weight is None else weight)
    matrix += torch.diag((matrix.diagonal() == 0).float())
    scale = matrix.sum(1).rsqrt()
    return scale.unsqueeze(1) * matrix * scale


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loops", [False, True])
def test_gcn_and_appnp_are_those_of_pyg(directed, weighted, loops, graph):
    x, edge_index = graph
    if directed:
        edge_index = edge_index[:, edge_index[0] < edge_index[1]]
    if loops:
        edge_index = torch.cat([edge_index, torch.tensor([[2, 11], [2, 11]])], dim=1)
    weight = torch.linspace(0.5, 2.0, edge_index.size(1)) if weighted else None
    model = make("gcn").eval()
    for layer, signal in ((model.conv1, x), (model.conv2, torch.randn(12, 8))):
        theirs = GCNConv(signal.size(1), layer.bias.numel())
        with torch.no_grad():
            theirs.lin.weight.copy_(layer.lin.weight)
            theirs.bias.copy_(layer.bias.normal_())
        torch.testing.assert_close(layer(signal, edge_index, weight), theirs(signal, edge_index, weight))
    model = make("appnp", K=6, alpha=0.2).eval()
    expected = APPNPConv(6, 0.2)(model._predict(x), edge_index, weight).log_softmax(1)
    torch.testing.assert_close(model(x, edge_index, weight), expected)


def gcn_layer(ours: Any) -> GCNConv:
    """PyG's layer with the same numbers."""
    theirs = GCNConv(ours.lin.in_channels, ours.lin.out_channels)
    theirs.load_state_dict({"lin.weight": ours.lin.weight, "bias": ours.bias})
    return theirs


def with_random_biases(model: Any) -> Any:
    """They start at zero, where it does not show whether they come before or behind a nonlinearity."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return model


def test_gcn_is_two_layers_of_pyg(graph: tuple[Tensor, Tensor]) -> None:
    x, edge_index = graph
    model = with_random_biases(make("gcn").eval())
    hidden = gcn_layer(model.conv1)(x, edge_index)
    assert (hidden < 0).any()
    expected = gcn_layer(model.conv2)(hidden.relu(), edge_index).log_softmax(1)
    torch.testing.assert_close(model(x, edge_index), expected)


@pytest.mark.parametrize("jump", ["cat", "max"])
def test_jknet_is_layers_of_pyg_seen_together(jump: str, graph: tuple[Tensor, Tensor]) -> None:
    x, edge_index = graph
    model = with_random_biases(make("jknet", layers=3, jump=jump).eval())
    first = gcn_layer(model.convs[0])(x, edge_index).relu()
    second = gcn_layer(model.convs[1])(first, edge_index).relu()
    third = gcn_layer(model.convs[2])(second, edge_index).relu()
    seen = torch.cat((first, second, third), dim=1) if jump == "cat" else first.maximum(second).maximum(third)
    expected = (seen @ model.lin.weight.T + model.lin.bias).log_softmax(1)
    torch.testing.assert_close(model(x, edge_index), expected)


def test_gat_is_two_layers_of_pyg_with_elu_between(graph: tuple[Tensor, Tensor]) -> None:
    x, edge_index = graph
    model = with_random_biases(make("gat", heads=2).eval())
    first, second = GATConv(5, 4, heads=2), GATConv(8, 3)
    first.load_state_dict(model.conv1.state_dict())
    second.load_state_dict(model.conv2.state_dict())
    hidden = first(x, edge_index)
    hidden = torch.where(hidden > 0, hidden, hidden.exp() - 1)
    torch.testing.assert_close(model(x, edge_index), second(hidden, edge_index).log_softmax(1))


@pytest.mark.parametrize(
    ("name", "dropped"),
    [
        # How wide every signal is that values are dropped from: 5 features, 8 hidden channels, 3 classes.
        *[(name, [(5, 0.2), (8, 0.6)]) for name in ("pl-ufg1", "pl-ufg2", "pl-fufg", "pgnn", "ufg")],
        *[(name, [(5, 0.6), (8, 0.6)]) for name in ("mlp", "gcn", "gat", "appnp")],
        ("sgc", [(5, 0.6)]),
        ("jknet", [(5, 0.6), (8, 0.6), (16, 0.6)]),
        ("gprgnn", [(5, 0.6), (8, 0.6), (3, 0.6)]),
    ],
)
def test_what_is_dropped_in_training_and_kept_in_evaluation(
    name: str, dropped: list[tuple[int, float]], graph: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, float, bool]] = []

    def spy(x: Tensor, p: float, training: bool) -> Tensor:
        seen.append((x.size(1), p, training))
        return dropout(x, p, training)

    monkeypatch.setattr(models, "dropout", spy)
    model = make(name, dropout=0.6, **({"input_dropout": 0.2} if "input_dropout" in option_names(name) else {}))
    first, second = (model.train()(*graph) for _ in range(2))
    assert not torch.allclose(first, second, atol=1e-3)
    assert seen == 2 * [(width, p, True) for width, p in dropped]
    seen.clear()
    first, second = (model.eval()(*graph) for _ in range(2))
    assert torch.equal(first, second)
    assert seen == 2 * [(width, p, False) for width, p in dropped]
    if name == "gat":
        assert (model.conv1.dropout, model.conv2.dropout) == (0.6, 0.6), "of attention weights"


PLUFG_DEFAULTS = {"dropout": 0.5, "input_dropout": 0.0, "head": True, "activation": "none", "labels": False}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pl-ufg1", PLUFG_DEFAULTS),
        ("pl-ufg2", PLUFG_DEFAULTS),
        ("pl-fufg", PLUFG_DEFAULTS),
        ("pgnn", {"dropout": 0.5, "input_dropout": 0.0, "K": 4, "p": 1.5, "mu": 0.1, "labels": False}),
        ("ufg", {"dropout": 0.5, "input_dropout": 0.0, "head": True, "labels": False}),
        ("mlp", {"dropout": 0.5}),
        ("gcn", {"dropout": 0.5}),
        ("sgc", {"dropout": 0.0, "K": 2}),
        ("gat", {"dropout": 0.5, "heads": 8}),
        ("jknet", {"dropout": 0.5, "layers": 2, "jump": "cat"}),
        ("appnp", {"dropout": 0.5, "K": 10, "alpha": 0.1}),
        ("gprgnn", {"dropout": 0.5, "K": 10, "alpha": 0.1}),
    ],
)
def test_defaults_are_those_of_the_papers(name: str, expected: dict[str, object]) -> None:
    parameters = inspect.signature(MODELS[name]).parameters.values()
    assert {item.name: item.default for item in parameters if item.default is not item.empty} == expected
    assert build(name, Dims(5, 3, 12)).hidden_channels == 32


@pytest.mark.parametrize("name", ["gcn", "appnp"])
def test_a_changed_graph_or_precision_is_noticed(name, graph):
    x, edge_index = graph
    model = make(name).eval()
    model(x, edge_index)
    fresh = make(name).eval()
    fresh.load_state_dict(model.state_dict())
    other = edge_index[:, :-2]
    torch.testing.assert_close(model(x, other), fresh(x, other))
    assert model.double()(x.double(), other).dtype == torch.float64


def test_gpr_starts_as_personalised_pagerank(graph):
    model, expected = make("gprgnn", K=6, alpha=0.2).eval(), make("appnp", K=6, alpha=0.2).eval()
    expected.load_state_dict(model.state_dict(), strict=False)
    torch.testing.assert_close(model(*graph), expected(*graph))


def test_gpr_weights_weigh_the_powers_of_the_adjacency_matrix(graph):
    x, edge_index = graph
    model = make("gprgnn", K=2).eval()
    with torch.no_grad():
        model.gamma.copy_(torch.tensor([0.5, -2.0, 3.0]))
    a, x0 = smoothing_matrix(edge_index), model._predict(x)
    expected = (0.5 * x0 - 2.0 * a @ x0 + 3.0 * a @ (a @ x0)).log_softmax(1)
    torch.testing.assert_close(model(x, edge_index), expected)


def test_build_passes_options_on():
    model = build("PL-fUFG", Dims(5, 3, 12), hidden_channels=8, p=1.25, mu=7.0, dropout=0.1)
    assert model.conv.variant == "pl-fufg"
    assert model.dropout == 0.1
    assert "mu=7" in repr(model)
    assert "p=1.25" in repr(model)


@pytest.mark.parametrize("name", ["pl-ufg1", "pl-ufg2", "pl-fufg", "ufg"])
def test_without_a_head_the_convolution_predicts(name, graph):
    x, edge_index = graph
    model = make(name, head=False).eval()
    assert not any(key.startswith("head") for key in model.state_dict())
    logits = model.conv(model.lin(x).relu(), edge_index)
    assert torch.equal(model(x, edge_index), logits.log_softmax(1))


@pytest.mark.parametrize("name", ["pl-ufg1", "pl-ufg2", "pl-fufg", "ufg"])
def test_the_head_is_a_linear_map_of_the_convolution(name, graph):
    x, edge_index = graph
    model = make(name).eval()
    hidden = model.conv(model.lin(x).relu(), edge_index)
    assert hidden.shape == (12, 8)
    expected = (hidden @ model.head.weight.T + model.head.bias).log_softmax(1)
    torch.testing.assert_close(model(x, edge_index), expected)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("name", ["pl-ufg1", "pl-ufg2", "pl-fufg"])
def test_the_activation_stands_between_the_convolution_and_what_follows(name, head, activation, graph):
    x, edge_index = graph
    model = make(name, head=head, activation=activation).eval()
    hidden = model.conv(model.lin(x).relu(), edge_index)
    assert (hidden < 0).any()
    hidden = torch.where(hidden > 0, hidden, 0.01 * hidden if activation == "leaky_relu" else 0.0)
    expected = hidden if model.head is None else model.head(hidden)
    assert torch.equal(model(x, edge_index), expected.log_softmax(1))


LABELLED = ("pl-ufg1", "pl-ufg2", "pl-fufg", "pgnn", "ufg")


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", LABELLED)
def test_known_labels_add_a_vector_per_class_to_what_is_convolved(name, dtype, graph):
    x, edge_index = graph
    model = make(name, labels=True).eval()
    known = torch.tensor([-1, 2, 0, -1, 2, 1, -1, 0, 0, -1, 1, 2], dtype=dtype)
    hidden = model.lin(x).relu()
    for node, label in enumerate(known.tolist()):
        if label >= 0:
            hidden[node] += model.label_lin.weight[:, label]
    out = model.conv(hidden, edge_index)
    # UFG has its activation in the layer, and no other one is on by default.
    expected = (out if model.head is None else model.head(out)).log_softmax(1)
    torch.testing.assert_close(model(x, edge_index, known=known), expected)


@pytest.mark.parametrize("name", LABELLED)
def test_without_known_labels_a_network_that_takes_them_is_one_that_does_not(name, graph):
    model, plain = make(name, labels=True).eval(), make(name).eval()
    missing, unexpected = plain.load_state_dict(model.state_dict(), strict=False)
    assert (missing, unexpected) == ([], ["label_lin.weight"])
    assert torch.equal(model(*graph, known=torch.full((12,), -1)), plain(*graph))


@pytest.mark.parametrize("name", LABELLED)
def test_a_known_label_is_heard_by_neighbours_and_learned_from(name, graph):
    x, edge_index = graph
    model = make(name, labels=True, dropout=0.0, input_dropout=0.0)
    node, neighbour = edge_index[:, 0].tolist()
    known = torch.full((12,), -1)
    before = model(x, edge_index, known=known)[neighbour]
    known[node] = 1
    after = model(x, edge_index, known=known)[neighbour]
    assert not torch.allclose(before, after)
    after[0].backward()
    grad = model.label_lin.weight.grad
    assert grad[:, 1].any()
    assert not grad[:, [0, 2]].any()


@pytest.mark.parametrize(
    ("labels", "known", "error", "message"),
    [
        (True, None, ValueError, "PLUFG: known must be a class or -1 for every node, with labels=True, got None"),
        (False, torch.zeros(12, dtype=torch.long), ValueError, "PLUFG: known must be None without labels=True"),
        (True, torch.zeros(11, dtype=torch.long), ValueError, r"known must be of shape \[12\]"),
        (True, torch.zeros(12), TypeError, "known must be a tensor of int32 or int64"),
        (True, torch.ones(12, dtype=torch.bool), TypeError, "known must be a tensor of int32 or int64"),
        (True, torch.full((12,), 3), ValueError, "known must be of classes from 0 to 2, or -1, got 3"),
        (True, torch.full((12,), -2), ValueError, "known must be of classes from 0 to 2, or -1, got -2"),
    ],
)
def test_known_labels_that_cannot_be_are_refused(labels, known, error, message, graph):
    with pytest.raises(error, match=message):
        make("pl-ufg2", labels=labels)(*graph, known=known)


def test_a_network_that_takes_labels_compiles_as_one_graph(graph):
    x, edge_index = graph
    model = make("pl-ufg2", labels=True, theta="band").eval()
    known = torch.arange(12) % 4 - 1
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    g = pf.Graph(edge_index, 12)
    torch.testing.assert_close(compiled(x, g, known=known), model(x, g, known=known))


@pytest.mark.parametrize("name", ["pl-ufg2", "ufg"])
def test_a_class_that_no_node_is_said_to_be_of_dies_by_relu_and_comes_back_by_a_leaky_one(name, graph):
    x, edge_index = graph
    for activation, dead in (("relu", True), ("leaky_relu", False)):
        model = make(name, head=False, activation=activation)
        with torch.no_grad():
            model.conv.bias[0] = -10.0
        model(x, edge_index)[:, 0].sum().backward()
        assert (float(model.conv.bias.grad[0]) == 0.0) is dead


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_autocast_and_half_precision(name, sparse, graph):
    x, edge_index = graph
    model = make(name, **({"dropout": 0.0} if name == "gat" else {})).eval()
    # Nodes that differ: a network that answers all alike would otherwise be within the tolerance.
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(2.0 if value.dim() == 2 else 1.0)
    x = x.to_sparse_csr() if sparse else x
    expected = model(x, edge_index).detach()
    tolerance = 0.01 * float(expected.abs().max())  # measured at most 0.007
    assert float(expected.std(0).max()) > 5 * tolerance
    with torch.autocast("cpu", torch.bfloat16):
        out = model(x, edge_index)
        out.float().sum().backward()
    torch.testing.assert_close(out.float(), expected, rtol=0, atol=tolerance)
    assert all(value.grad is not None for value in model.parameters())
    if not sparse:
        half = model.bfloat16()(x.bfloat16(), edge_index)
        assert half.dtype == torch.bfloat16
        torch.testing.assert_close(half.float(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_evaluated_first_in_inference_mode_then_trained(name, graph):
    x, edge_index = graph
    model, g = make(name).eval(), pf.Graph(edge_index, 12)
    with torch.inference_mode():
        expected = model(x, g)
    out = model(x, g)
    assert torch.equal(out, expected)
    out.sum().backward()


@pytest.mark.parametrize("name", ["gcn", "pl-ufg2"])
def test_networks_in_training_compile_as_one_graph(name, graph):
    x, edge_index = graph
    model = make(name, dropout=0.5).train()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    first, second = (compiled(x, pf.Graph(edge_index, 12)) for _ in range(2))
    assert not torch.equal(first, second), "dropout draws anew"
    first.sum().backward()


def test_build_sizes_the_network_by_the_graph():
    data = csbm(50, 6)
    assert build("gcn", data)(data.x, data.edge_index).shape == (50, 2)
    assert build("pl-ufg1", data)(data.x, data.edge_index).shape == (50, 2)


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="pl-ufg1, pl-ufg2, pl-fufg, pgnn"):
        build("gnc", Dims(5, 3))
    with pytest.raises(ValueError, match="gcn has no option 'p'; it has dropout"):
        build("gcn", Dims(5, 3), p=1.5)
    with pytest.raises(ValueError, match="pl-ufg1 has no option 'variant'"):
        build("pl-ufg1", Dims(5, 3), variant="pl-ufg2")
    assert {"p", "mu", "theta", "framelet", "levels", "dropout"} <= set(option_names("pl-ufg2"))


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("mlp", {"dropout": 1.0}),
        ("pl-ufg2", {"input_dropout": -0.1}),
        ("pl-ufg1", {"activation": "soft"}),
        ("gat", {"heads": 3}),
        ("jknet", {"layers": 0}),
        ("jknet", {"jump": "sum"}),
        ("gprgnn", {"alpha": 2.0}),
        ("appnp", {"K": -1}),
        ("sgc", {"K": -3}),
    ],
)
def test_bad_options_are_refused(name, bad):
    with pytest.raises(ValueError, match=f"{'hidden_channels' if 'heads' in bad else next(iter(bad))} must be"):
        build(name, Dims(5, 3), hidden_channels=8, **bad)


@pytest.mark.parametrize("name", ["gcn", "sgc", "jknet", "appnp", "gprgnn", "pl-ufg2", "ufg", "pgnn"])
def test_resetting_forgets_the_cached_graph(name, graph):
    model = make(name)
    model(*graph)
    caches = [module._cache for module in model.modules() if isinstance(module, GraphLayer)]
    assert caches
    assert all(cache._last is not None for cache in caches)
    watched = [weakref.ref(cache._last[0]) for cache in caches]
    model.reset_parameters()
    gc.collect()
    assert all(graph() is None for graph in watched)


@pytest.mark.parametrize("name", MODELS)
def test_a_network_first_called_in_a_transform_of_torch_func(name, graph):
    model = make(name).eval()

    def loss(parameters):
        return torch.func.functional_call(model, parameters, graph)[:, 0].sum()

    parameters = dict(model.named_parameters())
    found = torch.func.grad(loss)(parameters)
    # Edges, degrees and coefficients that belong to the transform are not what the next call gets.
    expected = torch.autograd.grad(model(*graph)[:, 0].sum(), list(parameters.values()))
    torch.testing.assert_close(list(found.values()), list(expected), rtol=1e-4, atol=1e-6)
    assert not [
        t
        for module in model.modules()
        if isinstance(module, GraphLayer)
        for t in vars(module._cache._last[0]).values()
        if isinstance(t, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(t)
    ]
