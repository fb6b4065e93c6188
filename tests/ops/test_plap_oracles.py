"""The reference p-step against oracles that share no code with it."""

import graphs
import pytest
import torch
from torch import Tensor

from plufg_fast import Graph, Penalty, ops
from plufg_fast.ops.plap import Mode, reference, solvers

PENALTIES = ["power", "tikhonov", "tv", "rtv", "nldiff"]
EXPONENTS = [1.0, 1.5, 2.0, 2.5]

pytestmark = pytest.mark.usefixtures("plap_backend")


def signals(num_nodes: int = 11, bands: int = 2, channels: int = 3) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(1)
    f, y = torch.randn(2, num_nodes, bands, channels, generator=rng, dtype=torch.float64)
    return f, y


def dense_energy(
    f: Tensor, y: Tensor, w: Tensor, p: float, mu: float, penalty: str, parameter: float | None = None, eps: float = 0.0
) -> Tensor:
    """The objective from its definition, by loops over nodes and neighbours."""
    dinv = graphs.inverse_sqrt(w.sum(1))
    e, r = (0.01, 1.0) if parameter is None else (parameter, parameter)
    phi = {
        "power": lambda x: x**p,
        "tikhonov": lambda x: x**2,
        "tv": lambda x: x,
        "rtv": lambda x: (x**2 + e**2) ** 0.5 - e,
        "nldiff": lambda x: r**2 * (1 + x**2 / r**2).log(),
    }[penalty]
    # One more channel of every edge.
    total, smoothing = mu * ((f - y) ** 2).sum(), torch.tensor([eps], dtype=torch.float64)
    for i in range(w.size(0)):
        for b in range(f.size(1)):
            norms = [
                torch.cat((w[i, j].sqrt() * (dinv[j] * f[j, b] - dinv[i] * f[i, b]), smoothing)).norm()
                for j in w[i].nonzero().flatten().tolist()
                if j != i or eps > 0
            ]
            if norms:
                total = total + 0.5 * phi(torch.stack(norms).norm(p=p))
    return total


@pytest.mark.parametrize("kind", graphs.UNDIRECTED)
@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_step_is_the_first_order_condition_of_the_energy(penalty: str, p: float, kind: str) -> None:
    # The condition dE/dF = 0 is (1/a_i) (F_i - F'_i) = 0; with b = 2 mu a read off the step's dependence on Y.
    g, mu = graphs.graph(kind), 0.7
    f, y = signals()
    f.requires_grad_()
    (gradient,) = torch.autograd.grad(ops.plap_energy(f, y, g, p, mu, penalty), f)
    f = f.detach()
    out = ops.plap_step(f, y, g, p, mu, penalty)
    a = (ops.plap_step(f, y + 1, g, p, mu, penalty) - out) / (2 * mu)
    torch.testing.assert_close((f - out) / a, gradient, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", graphs.ALL)
@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_energy_is_its_definition(penalty: str, p: float, kind: str) -> None:
    w = graphs.dense(kind)
    f, y = signals()
    energy = ops.plap_energy(f, y, graphs.from_dense(w), p, 0.7, penalty)
    torch.testing.assert_close(energy, dense_energy(f, y, w, p, 0.7, penalty), rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", ["weighted", "directed_weighted_loops", "isolated"])
@pytest.mark.parametrize("numbers", [1, 40])
def test_energy_does_not_depend_on_how_edges_are_taken(
    numbers: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = graphs.graph(kind)
    f, y = signals()
    whole = [ops.plap_energy(f, y, g, 1.5, 0.7, penalty) for penalty in PENALTIES]
    monkeypatch.setattr(reference, "_PIECE", numbers)
    assert torch.equal(torch.stack([ops.plap_energy(f, y, g, 1.5, 0.7, it) for it in PENALTIES]), torch.stack(whole))


@pytest.mark.parametrize(("p", "eps"), [(1.5, 0.0), (2.5, 0.0), (0.5, 0.3), (1.0, 0.3), (1.5, 0.3)])
@pytest.mark.parametrize(
    "penalty",
    [
        *[Penalty(name) for name in PENALTIES],
        *[Penalty(name, parameter) for name in ("rtv", "nldiff") for parameter in (0.3, 2.5)],
    ],
    ids=repr,
)
def test_parameters_and_smoothing_are_those_of_the_dense_energy(penalty: Penalty, p: float, eps: float) -> None:
    w, mu = graphs.dense("self_loops"), 0.7
    g = graphs.from_dense(w)
    f, y = signals()
    f.requires_grad_()
    expected = dense_energy(f, y, w, p, mu, penalty.name, penalty.parameter, eps)
    (gradient,) = torch.autograd.grad(expected, f)
    f, expected = f.detach(), expected.detach()
    torch.testing.assert_close(ops.plap_energy(f, y, g, p, mu, penalty, eps), expected, rtol=1e-12, atol=0)
    # The step by the same condition as above.
    out = ops.plap_step(f, y, g, p, mu, penalty, eps)
    a = (ops.plap_step(f, y + 1, g, p, mu, penalty, eps) - out) / (2 * mu)
    torch.testing.assert_close((f - out) / a, gradient, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", graphs.ALL)
@pytest.mark.parametrize("p", EXPONENTS)
def test_step_is_the_theorem_entry_by_entry(p: float, kind: str) -> None:
    w, mu = graphs.dense(kind), 0.6
    f, y = signals(bands=1)
    dinv = graphs.inverse_sqrt(w.sum(1))
    expected = torch.empty_like(f)
    for i in range(w.size(0)):
        total, pulled = torch.zeros(()).double(), torch.zeros(3).double()
        for j in w[i].nonzero().flatten().tolist():
            n = (w[i, j].sqrt() * (dinv[j] * f[j, 0] - dinv[i] * f[i, 0])).norm()
            m = w[i, j] * p * (n ** (p - 2) if n > 0 else float(p == 2))
            total, pulled = total + m, pulled + m * dinv[j] * f[j, 0]
        expected[i, 0] = (dinv[i] * pulled + 2 * mu * y[i, 0]) / (dinv[i] ** 2 * total + 2 * mu)
    torch.testing.assert_close(ops.plap_step(f, y, graphs.from_dense(w), p, mu), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["unweighted", "weighted", "hub"])
@pytest.mark.parametrize("solver", ["jacobi", "irls"])
def test_limit_at_p_2_is_the_resolvent_of_the_laplacian(kind: str, solver: str) -> None:
    w, mu = graphs.dense(kind), 0.4
    _, y = signals(bands=1)
    y = y[:, 0]
    exact = torch.linalg.solve(torch.eye(w.size(0), dtype=torch.float64) + graphs.laplacian(w) / mu, y)
    out, info = ops.plap_solve(
        y, graphs.from_dense(w), 2.0, mu, warmup=2000, tol=1e-13, solver=solver, return_info=True
    )
    torch.testing.assert_close(out, exact, rtol=0, atol=1e-8)
    assert int(info.steps) < 1000


@pytest.mark.parametrize("kind", graphs.UNDIRECTED)
@pytest.mark.parametrize("p", [1.0, 1.3, 1.5, 2.0])
@pytest.mark.parametrize("solver", ["jacobi", "irls"])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_energy_never_rises_for_p_up_to_2(penalty: str, solver: str, p: float, kind: str, plap_backend: str) -> None:
    # At p = 1 an edge norm may reach 0, where the objective has a kink; smoothing keeps to where it holds.
    g, eps = graphs.graph(kind), 1e-3 if p == 1 else 0.0
    _, y = signals()
    weight, dinv, _ = g.values(torch.float64)
    p_, mu = torch.full((2, 2), 1.0).double() * torch.tensor([[p], [0.3]])
    graph = (g.rowptr, g.col, weight)  # undirected: its own transpose
    phi = (penalty, Penalty(penalty).parameter, eps)
    serving = plap_backend if solver == "jacobi" else "reference"
    problem = solvers.Problem(*graph, *graph, True, dinv, p_, mu, *phi, "paper", solver, serving)
    f, before = y, ops.plap_energy(y, y, g, p, 0.3, penalty, eps=eps)
    for _ in range(10):
        f = problem.step(f, y)
        energy = ops.plap_energy(f, y, g, p, 0.3, penalty, eps=eps)
        assert energy <= before * (1 + 1e-12)
        before = energy


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("penalty", ["power", "tikhonov", "rtv", "nldiff"])
def test_an_edge_that_closes_at_p_2_keeps_its_weight(penalty: str, mu: float) -> None:
    # At mu = 1 one step of a quadratic makes both ends equal; without a weight the edge would let them go again.
    g = Graph(torch.tensor([[0, 1], [1, 0]]))
    y = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    phi = Penalty(penalty, 1.0) if penalty in ("rtv", "nldiff") else Penalty(penalty)
    f, before = y, ops.plap_energy(y, y, g, 2.0, mu, phi)
    for _ in range(12):
        f = ops.plap_step(f, y, g, 2.0, mu, phi)
        energy = ops.plap_energy(f, y, g, 2.0, mu, phi)
        assert energy <= before * (1 + 1e-12)
        before = energy
    level = torch.full_like(y, 0.5)
    # Of a level signal a quadratic of slope z = 2, or 1/e with e = 1, makes the mean of it and y.
    z = 1.0 if penalty == "rtv" else 2.0
    expected = (z * level + 2 * mu * y) / (z + 2 * mu)
    torch.testing.assert_close(ops.plap_step(level, y, g, 2.0, mu, phi), expected)


@pytest.mark.parametrize("kind", ["self_loops", "isolated", "directed_weighted_loops"])
def test_tikhonov_at_p_2_is_power_at_p_2(kind: str) -> None:
    g = graphs.graph(kind)
    f, y = signals()
    f[1:6] = 0  # ties
    for name in ("f", "level"):
        start = f if name == "f" else torch.zeros_like(f)
        steps = [ops.plap_step(start, y, g, 2.0, 0.7, penalty) for penalty in ("power", "tikhonov")]
        torch.testing.assert_close(*steps)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("p", [1.5, 2.0, 2.5])
def test_limit_is_the_minimiser_that_lbfgs_finds(p: float, penalty: str) -> None:
    # rtv with its small e is nearly total variation: a gentler one keeps both methods accurate.
    phi = Penalty("rtv", 0.5) if penalty == "rtv" else Penalty(penalty)
    g, mu = graphs.graph("self_loops"), 1.0
    _, y = signals()
    out, info = ops.plap_solve(y, g, p, mu, phi, warmup=5000, tol=1e-12, return_info=True)
    assert info.residual < 1e-11
    f = y.clone().requires_grad_()
    lbfgs = torch.optim.LBFGS(
        [f], max_iter=2000, tolerance_grad=1e-12, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        lbfgs.zero_grad()
        energy = ops.plap_energy(f, y, g, p, mu, phi)
        energy.backward()
        return energy

    lbfgs.step(closure)
    torch.testing.assert_close(out, f.detach(), rtol=0, atol=2e-6)
    at_limit = ops.plap_energy(out, y, g, p, mu, phi)
    assert at_limit <= ops.plap_energy(f.detach(), y, g, p, mu, phi) * (1 + 1e-12)


def test_irls_solves_p_1_with_smoothing_to_the_minimum() -> None:
    g, mu, eps = graphs.graph("weighted"), 0.8, 1e-2
    _, y = signals()
    options = {"eps": eps, "tol": 1e-13, "return_info": True}
    jacobi, _ = ops.plap_solve(y, g, 1.0, mu, warmup=20000, **options)
    irls, info = ops.plap_solve(y, g, 1.0, mu, warmup=500, solver="irls", **options)
    torch.testing.assert_close(jacobi, irls, rtol=0, atol=1e-9)
    assert int(info.steps) < 200


@pytest.mark.parametrize(("mode", "factor"), [("released", 4.0), ("pgnn", 2.0)])
@pytest.mark.parametrize("kind", graphs.ALL)
@pytest.mark.parametrize(("p", "eps"), [*((p, 0.0) for p in EXPONENTS), (0.5, 0.3), (1.5, 0.3)])
def test_released_modes_are_a_dense_transcription_of_that_code(
    p: float, eps: float, kind: str, mode: Mode, factor: float
) -> None:
    w, mu = graphs.dense(kind), 0.9
    _, y = signals(bands=1)
    y = y[:, 0]
    dinv = graphs.inverse_sqrt(w.sum(1))
    f = y
    for _ in range(5):
        h = dinv[:, None] * f
        n = (w * torch.cdist(h, h, compute_mode="donot_use_mm_for_euclid_dist") ** 2 + eps**2).sqrt()
        m = w * torch.where(n > 0, n ** (p - 2), float(p == 2))
        a = 1 / (dinv**2 * m.sum(1) + 2 * mu / p)
        # a scales the column: it belongs to the sending node.
        f = (dinv[:, None] * m * (dinv * a)) @ f + (factor * mu / p * a)[:, None] * y
    out = ops.plap_solve(y, graphs.from_dense(w), p, mu, warmup=2, steps=3, mode=mode, eps=eps)
    torch.testing.assert_close(out, f, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", graphs.ALL)
def test_divergence_is_the_negative_adjoint_of_the_gradient(kind: str) -> None:
    g = graphs.graph(kind)
    f, _ = signals()
    u = torch.randn(g.num_edges, 2, 3, dtype=torch.float64)
    left = (ops.edge_gradient(f, g) * u).sum()
    torch.testing.assert_close(left, -(f * ops.divergence(u, g)).sum(), rtol=1e-12, atol=1e-12)


def test_divergence_of_the_gradient_is_the_laplacian() -> None:
    w = graphs.dense("weighted")
    g = graphs.from_dense(w)
    f = signals()[0][:, 0]
    # <grad f, grad f> counts each undirected edge from both ends.
    torch.testing.assert_close(-0.5 * ops.divergence(ops.edge_gradient(f, g), g), graphs.laplacian(w) @ f)


def test_edge_gradient_returns_to_the_users_order() -> None:
    w = graphs.dense("directed_weighted_loops")
    receiver, sender = w.nonzero(as_tuple=True)
    order = torch.randperm(receiver.numel())
    receiver, sender = receiver[order], sender[order]
    g = Graph(torch.stack((sender, receiver)), w.size(0), w[receiver, sender])
    f = signals()[0][:, 0]
    dinv = graphs.inverse_sqrt(w.sum(1))[:, None]
    expected = w[receiver, sender].sqrt()[:, None] * ((dinv * f)[sender] - (dinv * f)[receiver])
    torch.testing.assert_close(ops.edge_gradient(f, g)[g.edge_slot], expected)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_isolated_nodes_keep_their_source(penalty: str) -> None:
    g = graphs.graph("isolated")
    f, y = signals()
    out = ops.plap_step(f, y, g, 1.5, 0.7, penalty)
    torch.testing.assert_close(out[[4, 7]], y[[4, 7]], rtol=1e-15, atol=0)


def test_bands_are_independent() -> None:
    g = graphs.graph("weighted")
    f, y = signals()
    p, mu = torch.tensor([1.2, 2.3]).double(), torch.tensor([0.5, 2.0]).double()
    together = ops.plap_step(f, y, g, p, mu)
    for b in range(2):
        alone = ops.plap_step(f[:, b], y[:, b], g, float(p[b]), float(mu[b]))
        torch.testing.assert_close(together[:, b], alone, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_storage_only(dtype: torch.dtype) -> None:
    g = graphs.graph("hub").to(torch.float32)
    f, y = (t.to(dtype) for t in signals())
    half = ops.plap_step(f, y, g, 1.5, 0.7)
    assert half.dtype == dtype
    assert torch.equal(half, ops.plap_step(f.float(), y.float(), g, 1.5, 0.7).to(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_of_edge_gradient_and_divergence_is_storage_only(dtype: torch.dtype) -> None:
    # In so few bits a sum over 3000 edges would end early, and a weight of 1e-6 would leave its nodes isolated.
    hub = torch.stack((torch.zeros(3000, dtype=torch.int64), torch.arange(1, 3001)))
    for g in (Graph(torch.cat((hub, hub.flip(0)), 1)), Graph(hub[:, :1], edge_weight=torch.tensor([1e-6]))):
        f, u = torch.randn(g.num_nodes, 2).to(dtype), torch.rand(g.num_edges, 2).to(dtype)
        for run, x in ((ops.edge_gradient, f), (ops.divergence, u)):
            expected = run(x.float(), g)
            assert expected.any()
            assert torch.equal(run(x, g), expected.to(dtype))


def test_strided_and_expanded_inputs_are_taken_as_they_are() -> None:
    g = graphs.graph("weighted")
    f, y = signals()
    strided = torch.randn(3, 11, 2, dtype=torch.float64).permute(1, 2, 0)
    expected = ops.plap_step(strided.contiguous(), y, g, 1.5, 0.7)
    assert torch.equal(ops.plap_step(strided, y, g, 1.5, 0.7), expected)
    wide = y[:, :1].expand(-1, 2, -1)
    assert torch.equal(ops.plap_step(f, wide, g, 1.5, 0.7), ops.plap_step(f, wide.clone(), g, 1.5, 0.7))


@pytest.mark.parametrize("shape", [(0, 4), (5, 0), (0, 2, 3)])
def test_empty_signals(shape: tuple[int, ...]) -> None:
    g = Graph(torch.empty(2, 0, dtype=torch.int64), shape[0])
    y = torch.randn(shape)
    assert torch.equal(ops.plap_solve(y, g, 1.5, 1.0), y)
