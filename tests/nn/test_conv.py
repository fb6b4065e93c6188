"""The layers: PyG's contract, the models' definitions, caching, saving, compiling."""

import copy
import gc
import inspect
import pickle
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import graphs
import pytest
import torch
from torch import Tensor
from torch_geometric.testing import assert_module

import plufg_fast as pf
from plufg_fast.nn import ChebConv, PLaplacianConv, PLUFGConv, UFGConv
from plufg_fast.ops.backend import BackendError, available

VARIANTS = ["pl-ufg1", "pl-ufg2", "pl-fufg"]
EDGES = torch.tensor([[0, 1, 2, 3, 1, 2, 3, 0, 0], [1, 0, 1, 2, 2, 3, 0, 3, 0]])


def layers(in_channels: int = 8) -> list[torch.nn.Module]:
    """One of each kind, none bound to a number of nodes."""
    return [
        *[PLUFGConv(in_channels, 5, variant=v, theta="channel", levels=2) for v in VARIANTS],
        PLUFGConv(in_channels, 5, variant="pl-fufg", theta="band", output="sum", learn_p=True),
        PLUFGConv(in_channels, 5, theta="channel", cover="sum"),
        PLaplacianConv(in_channels, 5, K=3, p=1.5, mu=0.5),
        *[UFGConv(in_channels, 5, activation=a, theta="band", threshold=0.1) for a in ("relu", "soft", "hard")],
        ChebConv(in_channels, 5, K=3),
    ]


# What the layers pass on: the option, its value, which operator takes it, and its name there.
GRAPH_OPTIONS = [
    ("flow", "target_to_source", "graph", "flow"),
    ("laplacian_degree", "out", "graph", "laplacian_degree"),
]
DEGREE_OPTIONS = [("flow", "target_to_source", "graph", "flow"), ("node_degree", "out", "graph", "degree")]
FRAMELET_OPTIONS = [
    ("degree", 2, "framelet", "degree"),
    ("dilation", 3.0, "framelet", "dilation"),
    ("scale", "none", "framelet", "scale"),
]
SOLVER_OPTIONS = [
    ("penalty", pf.Penalty("rtv", 0.3), "solver", "penalty"),
    ("eps", 0.5, "solver", "eps"),
    ("solver", "irls", "solver", "solver"),
    ("grad", "implicit", "solver", "grad"),
    ("mode", "pgnn", "solver", "mode"),
]


def assert_passed_on(
    make: Callable[..., Any], by_hand: Callable[..., Tensor], option: str, value: object, to: str, name: str
) -> None:
    """A layer with an option has the value and gradient of its operators with it, and not those without it.

    ``by_hand(layer, x, edges, weight, graph, framelet, solver)`` composes the operators, each with its own options.
    """
    w = graphs.dense("directed_weighted_loops" if to == "graph" else "weighted")
    receiver, sender = w.nonzero(as_tuple=True)
    x, edges, weight = torch.randn(11, 4, dtype=torch.float64), torch.stack((sender, receiver)), w[receiver, sender]
    layer = make(**{option: value}).double()
    torch.nn.init.normal_(layer.bias)
    parameters = list(layer.parameters())

    def results(out: Tensor) -> list[Tensor]:
        return [out.detach(), *torch.autograd.grad(out.square().sum(), parameters)]

    options: dict[str, dict[str, object]] = {"graph": {}, "framelet": {}, "solver": {}}
    without = results(by_hand(layer, x, edges, weight, *options.values()))
    options[to][name] = value
    expected = results(by_hand(layer, x, edges, weight, *options.values()))
    actual = results(layer(x, edges, weight))
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    assert any(float((a - b).abs().max()) > 1e-3 for a, b in zip(actual, without, strict=True))


@pytest.mark.parametrize("layer", layers(), ids=repr)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_pygs_invariances(layer: torch.nn.Module) -> None:
    # Shape, any order of the edges, any layout of the adjacency matrix.
    x = torch.randn(6, 8)
    assert_module(layer, x, EDGES, expected_size=(6, 5), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", layers(), ids=repr)
def test_nodes_may_be_renamed(layer: torch.nn.Module) -> None:
    x, order = torch.randn(6, 8), torch.randperm(6)
    renamed = torch.argsort(order)
    torch.testing.assert_close(layer(x, EDGES)[order], layer(x[order], renamed[EDGES]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", layers(), ids=repr)
def test_prepared_graph_edges_and_weights_agree(layer: torch.nn.Module) -> None:
    x, weight = torch.randn(6, 8), torch.rand(EDGES.size(1))
    torch.testing.assert_close(layer(x, EDGES), layer(x, EDGES, torch.ones(EDGES.size(1))))
    directed = torch.tensor([[0, 1, 2, 3, 1], [1, 2, 3, 0, 3]])
    assert torch.equal(layer(x, EDGES, weight), layer(x, pf.Graph(EDGES, 6, weight, **layer.graph_options)))
    assert torch.equal(layer(x, directed), layer(x, pf.Graph(directed, 6, **layer.graph_options)))
    assert not torch.equal(layer(x, EDGES, weight), layer(x, EDGES))


@pytest.mark.parametrize("layer", layers(-1), ids=repr)
def test_input_size_from_the_first_input(layer: torch.nn.Module) -> None:
    x = torch.randn(6, 13)
    assert layer(x, EDGES).shape == (6, 5)
    assert all(p.shape for p in layer.parameters() if not isinstance(p, torch.nn.UninitializedParameter))


@pytest.mark.parametrize("layer", layers(), ids=repr)
def test_reset_draws_anew_and_repeats_under_a_seed(layer: torch.nn.Module) -> None:
    before = copy.deepcopy(layer.state_dict())
    torch.manual_seed(5)
    layer.reset_parameters()
    first = copy.deepcopy(layer.state_dict())
    torch.manual_seed(5)
    layer.reset_parameters()
    assert any(not torch.equal(before[k], v) for k, v in first.items())
    assert all(torch.equal(first[k], v) for k, v in layer.state_dict().items())


@pytest.mark.parametrize("layer", layers(), ids=repr)
def test_saved_copied_and_pickled_layers_compute_the_same(layer: torch.nn.Module) -> None:
    x = torch.randn(6, 8)
    expected = layer(x, EDGES)
    assert torch.equal(copy.deepcopy(layer)(x, EDGES), expected)
    other = copy.deepcopy(layer)
    other.reset_parameters()
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x, EDGES), expected)
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x, EDGES), expected)


@pytest.mark.parametrize("layer", layers(), ids=repr)
def test_a_saved_or_reset_layer_holds_no_graph(layer: torch.nn.Module) -> None:
    edges = torch.randint(0, 6, (2, 20_000))
    layer(torch.randn(6, 8), edges)
    watched = weakref.ref(layer._cache._last[0])
    # 160 kB of edges
    assert len(pickle.dumps(layer)) < 20_000
    layer.reset_parameters()
    gc.collect()
    assert watched() is None


def test_exponents_keep_their_digits_in_every_precision() -> None:
    # bfloat16 has 1.1016, 1.2969 and 1.0 for these.
    p = [1.1, 1.3, 1.003]
    for learn_p in (False, True):
        layer = PLUFGConv(8, 5, "pl-ufg1", p=p, theta="band", learn_p=learn_p)
        digits = 1e-2 if layer.p.learn else 1e-12
        for there in (layer.double(), layer.bfloat16(), layer.double()):
            values = there.p()
            assert isinstance(values, Tensor)
            assert (values.double() - torch.tensor(p, dtype=torch.float64)).abs().max() < digits
        assert layer.bfloat16().p()[2] > 1


@pytest.mark.parametrize("layer", layers(), ids=repr)
def test_every_parameter_gets_a_finite_gradient(layer: torch.nn.Module) -> None:
    layer(torch.randn(6, 8), EDGES).square().sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("layer", layers(), ids=repr)
def test_isolated_nodes_and_empty_graphs(layer: torch.nn.Module) -> None:
    empty = torch.empty(2, 0, dtype=torch.int64)
    for n in (0, 1, 4):
        out = layer(torch.randn(n, 8), empty)
        assert out.shape == (n, 5)
        assert torch.isfinite(out).all()


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (
            PLUFGConv,
            {
                "variant": "pl-ufg2", "p": 1.5, "mu": 1.0, "penalty": "power", "warmup": 10, "steps": 4,
                "framelet": "linear", "levels": 1, "degree": 3, "theta": "node", "num_nodes": None, "learn_p": False,
                "output": "reconstruct", "cached": True, "bias": True, "dilation": 2.0, "scale": "fit", "tol": None,
                "solver": "jacobi", "grad": "unroll", "mode": "paper", "eps": 0.0, "flow": None, "node_degree": None,
                "laplacian_degree": None, "cover": "none", "backend": "auto",
            },
        ),
        (
            PLaplacianConv,
            {
                "penalty": "power", "learn_p": False, "cached": True, "bias": True, "tol": None, "solver": "jacobi",
                "grad": "unroll", "mode": "paper", "eps": 0.0, "flow": None, "node_degree": None, "backend": "auto",
            },
        ),
        (
            UFGConv,
            {
                "framelet": "haar", "activation": "relu", "threshold": 1e-4, "levels": 1, "degree": 3,
                "dilation": 2.0, "scale": "fit", "theta": "node", "num_nodes": None, "cached": True, "bias": True,
                "flow": None, "laplacian_degree": None, "backend": "auto",
            },
        ),
        (
            ChebConv,
            {"normalization": "sym", "bias": True, "cached": True, "flow": "source_to_target", "backend": "auto"},
        ),
    ],
)  # fmt: skip
def test_defaults_are_the_documented_ones(layer: type, expected: dict[str, object]) -> None:
    parameters = inspect.signature(layer).parameters.values()
    assert {item.name: item.default for item in parameters if item.default is not item.empty} == expected


def test_cache_follows_another_graph() -> None:
    x = torch.randn(6, 8)
    layer = PLUFGConv(8, 5, theta="band", cached=True)
    fresh = copy.deepcopy(layer)
    fresh.cached = False
    layer(x, EDGES)
    other = torch.tensor([[0, 5], [5, 0]])
    assert torch.equal(layer(x, other), fresh(x, other))
    changing = EDGES.clone()
    layer(x, changing)
    changing[1, 0] = 4
    assert torch.equal(layer(x, changing), fresh(x, changing))


def test_torchscript_is_refused_with_what_to_do() -> None:
    for module in (PLUFGConv(8, 5), pf.nn.models.GCN(8, 4, 2)):
        with pytest.raises(TypeError, match=r"TorchScript is not served; use torch\.compile"):
            torch.jit.script(module)


def test_cache_is_used_and_reset_clears_it(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    original = pf.Graph.__init__

    def counting(self: pf.Graph, *args: object, **kwargs: object) -> None:
        built.append(1)
        original(self, *args, **kwargs)

    monkeypatch.setattr(pf.Graph, "__init__", counting)
    x, layer = torch.randn(6, 8), PLUFGConv(8, 5, theta="band")
    layer(x, EDGES)
    layer(x, EDGES)
    layer(x, EDGES.clone())
    assert len(built) == 1
    layer.reset_parameters()
    layer(x, EDGES)
    assert len(built) == 2


@pytest.mark.skipif("plap" in available()["triton"]["cpu"], reason="Triton's interpreter serves on the CPU here")
@pytest.mark.parametrize(
    ("layer", "operator"),
    [
        (PLUFGConv(8, 5, theta="band", backend="triton"), "cheb_analysis"),
        # A framelet brings its own backend.
        (PLUFGConv(8, 5, theta="band", framelet=pf.Framelet("linear"), backend="triton"), "plap_solve"),
        (UFGConv(8, 5, theta="band", backend="triton"), "cheb_analysis"),
        (PLaplacianConv(8, 5, 2, 1.5, 1.0, backend="triton"), "plap_solve"),
        (ChebConv(8, 5, 3, backend="triton"), "ChebConv"),
    ],
)
def test_a_backend_asked_for_by_name_is_that_of_the_operators(layer: torch.nn.Module, operator: str) -> None:
    # Triton's kernels do not take tensors of the CPU: that it is refused shows that it was asked.
    with pytest.raises(BackendError, match=f"{operator}: backend 'triton' cannot serve"):
        layer(torch.randn(6, 8), EDGES)


class TestPLUFG:
    @pytest.mark.parametrize("levels", [1, 2])
    @pytest.mark.parametrize("variant", VARIANTS)
    @pytest.mark.parametrize("output", ["reconstruct", "sum"])
    def test_is_its_definition_built_from_operators(self, variant: str, levels: int, output: str) -> None:
        g, x = graphs.graph("self_loops"), torch.randn(11, 4, dtype=torch.float64)
        layer = PLUFGConv(4, 3, variant=variant, p=1.4, mu=0.6, levels=levels, output=output).double()
        out = layer(x, g) - layer.bias
        framelet = pf.Framelet("linear", levels=levels, degree=3)
        h = x @ layer.lin.weight.T
        bands = framelet.analysis(h, g) * layer.filter.theta
        total = torch.zeros_like(h)

        def solve(y: Tensor) -> Tensor:
            return pf.ops.plap_solve(y, g, 1.4, 0.6, warmup=10, steps=4)

        def back(b: int, z: Tensor) -> Tensor:
            alone = torch.zeros(11, framelet.num_bands, 3, dtype=torch.float64)
            alone[:, b] = z
            return framelet.synthesis(alone, g)

        parts = [(b, bands[:, b]) for b in range(framelet.num_bands)]
        if variant == "pl-ufg1":
            total = sum(solve(back(b, z)) for b, z in parts)
        elif variant == "pl-ufg2":
            total = solve(sum(back(b, z) for b, z in parts))
        elif output == "reconstruct":
            total = sum(back(b, solve(z)) for b, z in parts)
        else:
            total = sum(solve(z) for _, z in parts)
        torch.testing.assert_close(out, total, rtol=1e-10, atol=1e-10)

    @pytest.mark.parametrize(
        ("option", "value", "to", "name"),
        [
            *GRAPH_OPTIONS,
            DEGREE_OPTIONS[1],
            *FRAMELET_OPTIONS,
            *SOLVER_OPTIONS,
            ("tol", 0.1, "solver", "tol"),
            ("warmup", 2, "solver", "warmup"),
            ("steps", 1, "solver", "steps"),
        ],
    )
    def test_options_reach_the_operators(self, option: str, value: object, to: str, name: str) -> None:
        def make(**options: Any) -> PLUFGConv:
            return PLUFGConv(4, 3, p=1.4, mu=0.6, levels=2, theta="band", **options)

        def by_hand(layer: Any, x: Tensor, edges: Tensor, weight: Tensor, *options: dict[str, Any]) -> Tensor:
            of_graph, of_framelet, of_solver = options
            g, framelet = pf.Graph(edges, 11, weight, **of_graph), pf.Framelet("linear", levels=2, **of_framelet)
            y = framelet.synthesis(layer.filter.theta * framelet.analysis(x @ layer.lin.weight.T, g), g)
            out: Tensor = pf.ops.plap_solve(y, g, 1.4, 0.6, **{"warmup": 10, "steps": 4, **of_solver}) + layer.bias
            return out

        assert_passed_on(make, by_hand, option, value, to, name)

    def test_variants_agree_at_p_2_and_with_the_resolvent(self) -> None:
        # Undirected, nothing isolated, an exact transform: one linear map, with a closed form in the limit.
        w, mu = graphs.dense("weighted"), 0.8
        g, x = graphs.from_dense(w), torch.randn(11, 4, dtype=torch.float64)
        framelet = pf.Framelet("linear", method="exact")
        outputs = []
        for variant in VARIANTS:
            layer = PLUFGConv(
                4, 3, variant=variant, p=2.0, mu=mu, framelet=framelet, theta="band", warmup=500, tol=1e-14, bias=False
            ).double()
            with torch.no_grad():
                layer.lin.weight.copy_(torch.linspace(-1, 1, 12).view(3, 4))
                layer.filter.theta.copy_(torch.tensor([0.9, 1.05, 1.1]).view(1, 3, 1))
            outputs.append(layer(x, g))
        h = x @ torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4).T
        y = framelet.synthesis(torch.tensor([0.9, 1.05, 1.1]).double().view(1, 3, 1) * framelet.analysis(h, g), g)
        exact = torch.linalg.solve(torch.eye(11).double() + graphs.laplacian(w) / mu, y)
        for out in outputs:
            torch.testing.assert_close(out, exact, rtol=0, atol=1e-7)
        torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=1e-10)
        torch.testing.assert_close(outputs[0], outputs[2], rtol=0, atol=1e-10)

    def test_released_mode_is_a_dense_transcription_of_that_layer(self) -> None:
        w = graphs.dense("directed")
        receiver, sender = w.nonzero(as_tuple=True)
        layer = PLUFGConv(4, 3, p=1.5, mu=0.7, mode="released", degree=2, dilation=2.0).double()
        x = torch.randn(11, 4, dtype=torch.float64)
        out = layer(x, torch.stack((sender, receiver)))

        # Framelets of the Laplacian normalised by out-degree; W applied again where the paper has W^T.
        lap = graphs.laplacian(w, "out")
        shifted = lap - torch.eye(11).double()  # 2/pi * pi/2 * L - I
        terms = [torch.eye(11).double(), shifted, 2 * shifted @ shifted - torch.eye(11).double()]
        coeffs = layer.framelet.coeffs.clone()
        coeffs[:, 0] /= 2
        filters = [sum(c[k] * terms[k] for k in range(3)) for c in coeffs]
        h = x @ layer.lin.weight.T
        y = sum(m @ (layer.filter.theta[:, r] * (m @ h)) for r, m in enumerate(filters))
        # p-steps normalised by in-degree, a of the sending node, b = 4 mu / p a.
        dinv, f = graphs.inverse_sqrt(w.sum(1)), y
        for _ in range(14):
            scaled = dinv[:, None] * f
            n = torch.cdist(scaled, scaled, compute_mode="donot_use_mm_for_euclid_dist")
            m = w * torch.where(n > 0, n ** (1.5 - 2), 0)
            a = 1 / (dinv**2 * m.sum(1) + 2 * 0.7 / 1.5)
            f = (dinv[:, None] * m * (dinv * a)) @ f + (4 * 0.7 / 1.5 * a)[:, None] * y
        torch.testing.assert_close(out, f + layer.bias, rtol=1e-9, atol=1e-9)

    def test_theta_per_node_takes_its_size_from_the_first_input(self) -> None:
        layer = PLUFGConv(8, 5)
        layer(torch.randn(6, 8), EDGES)
        assert layer.filter.theta.shape == (6, 3, 1)
        theta = layer.filter.theta.detach()
        assert 0.9 <= float(theta.min()) <= float(theta.max()) <= 1.1

    def test_theta_per_node_loads_before_the_first_input(self) -> None:
        trained, fresh = PLUFGConv(8, 5), PLUFGConv(8, 5)
        x = torch.randn(6, 8)
        expected = trained(x, EDGES)
        fresh.load_state_dict(trained.state_dict())
        assert torch.equal(fresh(x, EDGES), expected)

    def test_state_dict_loads_from_another_device(self) -> None:
        source = PLUFGConv(8, 5, num_nodes=6, variant="pl-ufg1", p=[1.0, 1.5, 2.0], learn_p=True)
        on_meta = copy.deepcopy(source).to("meta")
        assert {t.device.type for t in on_meta.state_dict().values()} == {"meta"}
        on_meta.load_state_dict(source.state_dict(), assign=True)
        x = torch.randn(6, 8)
        assert torch.equal(on_meta(x, EDGES), source(x, EDGES))

    def test_p_per_band_reaches_each_band(self) -> None:
        x = torch.randn(6, 8)
        layer = PLUFGConv(8, 5, variant="pl-fufg", theta="band", p=[1.0, 1.5, 2.5], output="sum", bias=False)
        z = layer.filter(layer.framelet.analysis(layer.lin(x), pf.Graph(EDGES, 6)))
        g = pf.Graph(EDGES, 6)
        alone = sum(pf.ops.plap_solve(z[:, b], g, p, 1.0) for b, p in enumerate([1.0, 1.5, 2.5]))
        torch.testing.assert_close(layer(x, EDGES), alone)

    def test_learnable_p_moves_and_stays_at_least_one(self) -> None:
        layer = PLUFGConv(8, 5, theta="band", p=1.05, learn_p=True)
        assert float(layer.p()) == pytest.approx(1.05, rel=1e-6)
        layer(torch.randn(6, 8), EDGES).square().sum().backward()
        torch.optim.SGD([layer.p.raw], lr=0.1).step()
        assert float(layer.p()) != pytest.approx(1.05, rel=1e-6)
        with torch.no_grad():
            layer.p.raw.fill_(-1e6)
        assert float(layer.p()) >= 1
        assert torch.isfinite(layer(torch.randn(6, 8), EDGES)).all()

    @pytest.mark.parametrize("variant", ["pl-ufg1", "pl-fufg"])
    def test_compiles_as_one_graph_with_a_prepared_graph(self, variant: str) -> None:
        self.check_compiled(PLUFGConv(8, 5, variant=variant, num_nodes=11, levels=2, learn_p=True), "aot_eager")

    def test_compiles_to_code_with_a_prepared_graph(self) -> None:
        self.check_compiled(PLUFGConv(8, 5, num_nodes=11), "inductor")

    @staticmethod
    def check_compiled(layer: PLUFGConv, backend: str, graph: pf.Graph | None = None) -> None:
        g, x = graph or graphs.graph("self_loops").to(torch.float32), torch.randn(11, 8)
        eager = layer(x, g)
        expected = torch.autograd.grad(eager.square().sum(), list(layer.parameters()))
        compiled = torch.compile(layer, fullgraph=True, backend=backend)(x, g)
        torch.testing.assert_close(eager, compiled, rtol=1e-5, atol=1e-5)
        actual = torch.autograd.grad(compiled.square().sum(), list(layer.parameters()))
        for a, b in zip(expected, actual, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)

    def test_repr_tells_the_model(self) -> None:
        assert repr(PLUFGConv(8, 5, variant="pl-ufg1", p=1.0, mu=0.5)) == (
            "PLUFGConv(8, 5, variant='pl-ufg1', p=1, mu=0.5, framelet='linear', levels=1, degree=3)"
        )


class TestCover:
    """Layers on the double cover of a directed graph."""

    @pytest.mark.parametrize("theta", ["node", "channel", "band"])
    @pytest.mark.parametrize("cover", ["sum", "cat"])
    @pytest.mark.parametrize("variant", VARIANTS)
    def test_is_the_same_model_on_the_cover_with_weights_of_each_copy(
        self, variant: str, cover: str, theta: str
    ) -> None:
        w = graphs.dense("directed_weighted_loops")
        none = torch.zeros_like(w)
        g = graphs.from_dense(torch.cat((torch.cat((none, w), 1), torch.cat((w.T, none), 1))))
        x, options = torch.randn(11, 4, dtype=torch.float64), {"variant": variant, "p": 1.4, "mu": 0.6, "levels": 2}
        layer = PLUFGConv(4, 6, cover=cover, theta=theta, **options).double()
        torch.nn.init.normal_(layer.bias)
        out = layer(x, graphs.from_dense(w))
        width = 3 if cover == "cat" else 6
        # A filter of every node can say all that filters of a copy say.
        on_cover = PLUFGConv(4, width, theta="node", num_nodes=22, bias=False, **options).double()
        copies = layer.filter.theta if theta == "node" else layer.filter.theta.repeat_interleave(11, 0)
        h = torch.cat([x @ part.T for part in layer.lin.weight.split(width)])
        y = on_cover.framelet.analysis(h, g) * copies
        if variant != "pl-fufg":
            y = on_cover.framelet.synthesis(y, g, sum_bands=variant == "pl-ufg2")
        solved = on_cover._smooth(y, g)
        if variant == "pl-fufg":
            solved = on_cover.framelet.synthesis(solved, g)
        elif variant == "pl-ufg1":
            solved = solved.sum(1)
        received, sent = solved[:11], solved[11:]
        expected = (received + sent if cover == "sum" else torch.cat((received, sent), 1)) + layer.bias
        torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)

    def test_direction_and_both_ends_matter(self) -> None:
        # 0 -> 1 -> 2: on the graph itself node 0, which receives nothing, hears of nobody.
        edges, layer = torch.tensor([[0, 1], [1, 2]]), PLUFGConv(8, 6, theta="channel", cover="cat")
        x = torch.randn(3, 8)
        assert not torch.allclose(layer(x, edges), layer(x, edges.flip(0)), atol=1e-3)
        other = x.clone()
        other[1] += 1
        received, sent = (layer(x, edges) - layer(other, edges)).abs()[0].split(3)
        assert received.max() < 1e-6
        assert sent.max() > 1e-3

    def test_every_parameter_is_trained(self) -> None:
        for theta in ("node", "channel", "band"):
            layer = PLUFGConv(8, 6, theta=theta, cover="cat", learn_p=True)
            layer(torch.randn(6, 8), torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 0, 3]])).square().sum().backward()
            for name, parameter in layer.named_parameters():
                assert parameter.grad.isfinite().all(), name
                assert parameter.grad.abs().sum() > 0, name

    def test_filters_of_nodes_are_counted_by_node(self) -> None:
        layer = PLUFGConv(8, 6, theta="node", num_nodes=6, cover="cat")
        assert layer.filter.theta.shape == (12, 3, 1)
        lazy = PLUFGConv(8, 6, theta="node", cover="cat")
        lazy(torch.randn(6, 8), EDGES)
        assert lazy.filter.theta.shape == (12, 3, 1)
        with pytest.raises(ValueError, match="expected 6 nodes, got 7"):
            layer(torch.randn(7, 8), EDGES)

    def test_graphs_without_nodes_or_edges(self) -> None:
        layer = PLUFGConv(8, 6, theta="channel", cover="cat")
        for n in (0, 1, 4):
            out = layer(torch.randn(n, 8), torch.empty(2, 0, dtype=torch.int64))
            assert out.shape == (n, 6)
            assert torch.isfinite(out).all()

    def test_compiles_once_its_cover_is_made(self) -> None:
        g, x = graphs.graph("directed_weighted_loops").to(torch.float32), torch.randn(11, 8)
        layer = PLUFGConv(8, 6, theta="channel", cover="cat")
        with pytest.raises(Exception, match=r"Graph\.cover: call it once, or the layer, before it is compiled"):
            torch.compile(layer, fullgraph=True, backend="aot_eager")(x, g)
        torch.compiler.reset()
        TestPLUFG.check_compiled(layer, "aot_eager", g)

    def test_repr_tells_of_it(self) -> None:
        assert repr(PLUFGConv(8, 6, cover="cat")).endswith("degree=3, cover='cat')")


class TestPLaplacian:
    def test_is_k_steps_from_its_source(self) -> None:
        g, x = graphs.graph("weighted"), torch.randn(11, 4, dtype=torch.float64)
        layer = PLaplacianConv(4, 3, K=3, p=1.3, mu=0.4).double()
        y = layer.lin(x)
        f = y
        for _ in range(3):
            f = pf.ops.plap_step(f, y, g, 1.3, 0.4)
        torch.testing.assert_close(layer(x, g), f + layer.bias)

    @pytest.mark.parametrize(("option", "value", "to", "name"), [*DEGREE_OPTIONS, *SOLVER_OPTIONS])
    def test_options_reach_the_operators(self, option: str, value: object, to: str, name: str) -> None:
        def make(**options: Any) -> PLaplacianConv:
            return PLaplacianConv(4, 3, K=6, p=1.3, mu=0.4, **options)

        def by_hand(layer: Any, x: Tensor, edges: Tensor, weight: Tensor, *options: dict[str, Any]) -> Tensor:
            of_graph, _, of_solver = options
            g = pf.Graph(edges, 11, weight, **of_graph)
            smooth = pf.ops.plap_solve(x @ layer.lin.weight.T, g, 1.3, 0.4, warmup=0, steps=6, **of_solver)
            out: Tensor = smooth + layer.bias
            return out

        assert_passed_on(make, by_hand, option, value, to, name)

    def test_tolerance_ends_an_implicit_solve_early(self) -> None:
        g, x = graphs.graph("weighted"), torch.randn(11, 4, dtype=torch.float64)
        layer = PLaplacianConv(4, 3, K=60, p=1.3, mu=0.4, tol=0.01, grad="implicit", bias=False).double()
        y = (x @ layer.lin.weight.T).detach()
        f, change, taken = y, 1.0, 0
        while change >= 0.01:
            before, f, taken = f, pf.ops.plap_step(f, y, g, 1.3, 0.4), taken + 1
            change = float((f - before).norm() / before.norm())
        assert 1 < taken < 50
        # One more step follows, the one that is differentiated.
        torch.testing.assert_close(layer(x, g), pf.ops.plap_step(f, y, g, 1.3, 0.4), rtol=1e-12, atol=1e-12)


class TestUFG:
    @pytest.mark.parametrize(("option", "value", "to", "name"), [*GRAPH_OPTIONS, *FRAMELET_OPTIONS])
    def test_options_reach_the_operators(self, option: str, value: object, to: str, name: str) -> None:
        def make(**options: Any) -> UFGConv:
            return UFGConv(4, 3, levels=2, theta="channel", **options)

        def by_hand(layer: Any, x: Tensor, edges: Tensor, weight: Tensor, *options: dict[str, Any]) -> Tensor:
            of_graph, of_framelet, _ = options
            g, framelet = pf.Graph(edges, 11, weight, **of_graph), pf.Framelet("haar", levels=2, **of_framelet)
            z = layer.filter.theta * framelet.analysis(x @ layer.lin.weight.T, g)
            # The bias comes before ReLU.
            out: Tensor = framelet.synthesis(z, g) + layer.bias
            return out.relu()

        assert_passed_on(make, by_hand, option, value, to, name)

    @pytest.mark.parametrize("activation", ["soft", "hard"])
    def test_shrinkage_is_its_formula(self, activation: Literal["soft", "hard"]) -> None:
        g, x = graphs.graph("weighted"), torch.randn(11, 4, dtype=torch.float64)
        layer: Any = UFGConv(4, 3, activation=activation, threshold=0.2, theta="band").double()
        torch.nn.init.normal_(layer.bias)
        framelet = pf.Framelet("haar")
        z = layer.filter.theta * framelet.analysis(x @ layer.lin.weight.T, g)
        low, high = z[:, :1], z[:, 1:]
        large = high.abs() > 0.2
        assert large.any()
        assert not large.all()
        shrunk = torch.where(large, high - 0.2 * high.sign() if activation == "soft" else high, 0)
        expected = framelet.synthesis(torch.cat((low, shrunk), dim=1), g) + layer.bias
        torch.testing.assert_close(layer(x, g), expected, rtol=1e-12, atol=1e-12)

    def test_shrinkage_spares_the_low_pass_band(self) -> None:
        x = torch.randn(6, 8)
        layer = UFGConv(8, 5, activation="hard", threshold=1e6, theta="band", bias=False)
        g = pf.Graph(EDGES, 6)
        z = layer.filter(layer.framelet.analysis(layer.lin(x), g))
        z[:, 1:] = 0
        torch.testing.assert_close(layer(x, EDGES), layer.framelet.synthesis(z, g))

    def test_without_a_threshold_shrinkage_is_nothing(self) -> None:
        x = torch.randn(6, 8)
        soft, relu = UFGConv(8, 5, activation="soft", threshold=0.0, theta="band"), UFGConv(8, 5, theta="band")
        relu.load_state_dict(soft.state_dict())
        torch.testing.assert_close(soft(x, EDGES).relu(), relu(x, EDGES))

    def test_a_leaky_relu_keeps_a_hundredth_of_what_is_below_zero(self) -> None:
        x = torch.randn(6, 8)
        soft, leaky = (UFGConv(8, 5, activation=a, threshold=0.0, theta="band") for a in ("soft", "leaky_relu"))
        leaky.load_state_dict(soft.state_dict())
        out = soft(x, EDGES)
        assert (out < 0).any()
        torch.testing.assert_close(leaky(x, EDGES), torch.where(out > 0, out, 0.01 * out))


class TestLife:
    """What happens to a layer between being made and being used."""

    @pytest.mark.parametrize("layer", layers(), ids=repr)
    def test_evaluated_first_in_inference_mode_then_trained(self, layer: torch.nn.Module) -> None:
        x = torch.randn(6, 8)
        with torch.inference_mode():
            expected = layer(x, EDGES)
        out = layer(x, EDGES)
        assert torch.equal(out, expected)
        out.sum().backward()

    def test_lazy_theta_is_a_parameter_of_the_layers_precision(self) -> None:
        layer = PLUFGConv(8, 5).double()
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            layer(torch.randn(6, 8, dtype=torch.float64), EDGES)
        assert layer.filter.theta.dtype == torch.float64
        layer(torch.randn(6, 8, dtype=torch.float64), EDGES).sum().backward()
        assert layer.filter.theta.grad is not None

    def test_lazy_state_saves_and_loads(self, tmp_path: Path) -> None:
        lazy, other = PLUFGConv(8, 5), PLUFGConv(8, 5)
        torch.save(lazy.state_dict(), tmp_path / "state.pt")
        other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        assert torch.equal(other.lin.weight, lazy.lin.weight)
        assert other(torch.randn(6, 8), EDGES).shape == (6, 5)
        with pytest.raises(RuntimeError, match=r"Missing key.*filter\.theta"):
            other.load_state_dict(lazy.state_dict())

    def test_lazy_layer_says_what_it_needs_to_be_compiled(self) -> None:
        with pytest.raises(Exception, match="give num_nodes or call the layer once before"):
            torch.compile(PLUFGConv(8, 5), fullgraph=True, backend="aot_eager")(torch.randn(6, 8), pf.Graph(EDGES, 6))

    def test_misfitting_state_is_refused_by_shape(self) -> None:
        stored = PLUFGConv(8, 5, levels=2, num_nodes=6).state_dict()
        with pytest.raises(RuntimeError, match=r"size mismatch for filter\.theta"):
            PLUFGConv(8, 5, levels=1).load_state_dict(stored)

    def test_shown_and_traced_without_data(self) -> None:
        layer = PLUFGConv(8, 5, theta="band", learn_p=True).to("meta")
        assert "p=1.5 (learnable)" in repr(layer)
        assert layer(torch.randn(6, 8, device="meta"), pf.Graph(EDGES, 6).to("meta")).shape == (6, 5)

    def test_p_may_come_as_a_tensor(self) -> None:
        assert "p=1.25" in repr(PLUFGConv(8, 5, p=torch.tensor(1.25)))
        assert "p=1.25/2/1.5" in repr(PLUFGConv(8, 5, "pl-fufg", p=torch.tensor([1.25, 2.0, 1.5])))

    def test_a_directed_graph_prepared_otherwise_is_refused(self) -> None:
        g, x = pf.Graph(torch.tensor([[0, 1], [1, 2]]), 6), torch.randn(6, 8)
        message = "a directed Graph must be built with laplacian_degree='out' for this layer, got 'in'"
        for layer in (ChebConv(8, 5, 3), PLUFGConv(8, 5, theta="band", mode="released")):
            with pytest.raises(ValueError, match=message):
                layer(x, g)
        with pytest.raises(ValueError, match="must be built with flow='target_to_source'"):
            UFGConv(8, 5, theta="band", flow="target_to_source")(x, g)

    def test_what_a_layer_does_not_ask_for_is_the_graphs_choice(self) -> None:
        g, x = pf.Graph(torch.tensor([[0, 1], [1, 2]]), 6, degree="out"), torch.randn(6, 8)
        assert ChebConv(8, 5, 3)(x, g).shape == (6, 5)
        layer = PLUFGConv(8, 5, theta="band")
        assert not torch.equal(layer(x, g), layer(x, g.transpose()))

    def test_compiled_calls_follow_graphs_of_other_sizes_and_other_numbers(self) -> None:
        layer = PLUFGConv(8, 5, theta="channel")
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        for n in (6, 9, 13):
            g, x = graphs.graph("weighted", n).to(torch.float32), torch.randn(n, 8)
            torch.testing.assert_close(compiled(x, g), layer(x, g), rtol=1e-5, atol=1e-5)
        step = torch.compile(pf.ops.plap_step, fullgraph=True, backend="aot_eager")
        for p, mu in ((1.5, 1.0), (1.6, 1.2), (1.7, 2)):
            torch.testing.assert_close(step(x, x, g, p, mu), pf.ops.plap_step(x, x, g, p, mu))


@pytest.mark.parametrize(
    "layer", [PLUFGConv(2, 3, theta="band"), UFGConv(2, 3, theta="band"), PLaplacianConv(2, 3, 2, 1.5, 1.0)]
)
def test_transforms_of_torch_func_give_what_backward_gives(layer: torch.nn.Module) -> None:
    layer, g = layer.double(), graphs.graph("weighted", num_nodes=7)
    x = torch.randn(7, 2, dtype=torch.float64, requires_grad=True)

    def loss(x: Tensor) -> Tensor:
        return layer(x, g).square().sum()

    # First of all, so that nothing of a transform is kept for what comes behind it.
    found = torch.func.grad(loss)(x.detach())
    assert not g._kept
    expected = torch.autograd.grad(loss(x), x)[0]
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.func.jacrev(loss)(x.detach()), expected)
    many = torch.stack((x.detach(), 2 * x.detach()))
    assert not [t for t in g._kept[torch.float64] if torch._C._functorch.is_functorch_wrapped_tensor(t)]
    torch.testing.assert_close(torch.vmap(loss)(many), torch.stack([loss(x) for x in many]))
