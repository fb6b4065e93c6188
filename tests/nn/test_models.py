"""The networks of the tables."""

import pytest
import torch
from torch_geometric import seed_everything
from torch_geometric.nn import APPNP as APPNPConv
from torch_geometric.nn import GCNConv
from torch_geometric.utils import coalesce

import plufg_fast as pf
from plufg_fast.data import csbm, split
from plufg_fast.experiments.train import fit
from plufg_fast.nn.conv.base import GraphLayer
from plufg_fast.nn.models import MODELS, Dims, build, option_names

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


def make(name, **options):
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


@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("name", ["pl-ufg1", "pl-ufg2", "pl-fufg"])
def test_relu_stands_between_the_convolution_and_what_follows(name, head, graph):
    x, edge_index = graph
    model = make(name, head=head, activation="relu").eval()
    hidden = model.conv(model.lin(x).relu(), edge_index)
    assert (hidden < 0).any()
    expected = hidden.relu() if model.head is None else model.head(hidden.relu())
    assert torch.equal(model(x, edge_index), expected.log_softmax(1))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_autocast_and_half_precision(name, sparse, graph):
    x, edge_index = graph
    model = make(name, **({"dropout": 0.0} if name == "gat" else {})).eval()
    x = x.to_sparse_csr() if sparse else x
    expected = model(x, edge_index)
    with torch.autocast("cpu", torch.bfloat16):
        out = model(x, edge_index)
        out.float().sum().backward()
    torch.testing.assert_close(out.float(), expected, rtol=0.05, atol=0.1)
    assert all(value.grad is not None for value in model.parameters())
    if not sparse:
        half = model.bfloat16()(x.bfloat16(), edge_index)
        assert half.dtype == torch.bfloat16
        torch.testing.assert_close(half.float(), expected, rtol=0.05, atol=0.1)


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
    model.reset_parameters()
    assert all(cache._last is None for cache in caches)


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
