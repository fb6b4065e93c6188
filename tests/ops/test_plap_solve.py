"""What the solver promises besides its numbers: steps, tolerances, reports, repeatability, compilation."""

import graphs
import pytest
import torch
from torch import Tensor

from plufg_fast import ops

pytestmark = pytest.mark.usefixtures("plap_backend")


def source(bands: int = 2, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(11, bands, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


def test_steps_are_what_was_asked_for() -> None:
    g, y = graphs.graph("weighted"), source()
    f = y
    for _ in range(7):
        f = ops.plap_step(f, y, g, 1.5, 0.7)
    out, info = ops.plap_solve(y, g, 1.5, 0.7, warmup=5, steps=2, return_info=True)
    assert torch.equal(out, f)
    assert int(info.steps) == 7


def test_tolerance_ends_the_steps_without_gradient() -> None:
    g, y = graphs.graph("weighted"), source()
    out, info = ops.plap_solve(y, g, 1.5, 0.7, warmup=1000, steps=3, tol=1e-6, return_info=True)
    assert 3 < int(info.steps) < 200
    assert float(info.residual) < 1e-6
    assert torch.equal(out, ops.plap_solve(y, g, 1.5, 0.7, warmup=int(info.steps) - 3, steps=3))


def test_tolerance_ends_an_implicit_solve() -> None:
    g, y = graphs.graph("weighted"), source(bands=1)
    f, change, taken = y, 1.0, 0
    while change >= 1e-6:
        before, f, taken = f, ops.plap_step(f, y, g, 1.5, 0.7), taken + 1
        change = float((f - before).norm() / before.norm())
    out, info = ops.plap_solve(y, g, 1.5, 0.7, warmup=1000, tol=1e-6, grad="implicit", return_info=True)
    # The last step, which is the one that is differentiated, comes on top.
    assert int(info.steps) == taken + 1
    torch.testing.assert_close(out, ops.plap_step(f, y, g, 1.5, 0.7), rtol=1e-13, atol=1e-13)


def test_tolerance_waits_for_the_slowest_band() -> None:
    # A band that is zero never changes; it must not make the other look converged.
    g, y = graphs.graph("weighted"), source()
    y[:, 0] = 0
    _, together = ops.plap_solve(y, g, 1.5, 0.7, warmup=1000, tol=1e-6, return_info=True)
    _, alone = ops.plap_solve(y[:, 1], g, 1.5, 0.7, warmup=1000, tol=1e-6, return_info=True)
    assert int(together.steps) == int(alone.steps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("penalty", ["power", "rtv"])
def test_the_same_bits_with_and_without_a_gradient(penalty: str, dtype: torch.dtype) -> None:
    g = graphs.graph("directed_weighted_loops", num_nodes=20)
    for channels in (1, 8, 33):
        y = torch.randn(20, 2, channels, generator=torch.Generator().manual_seed(channels)).to(dtype)
        for p in (1.0, 1.7, 2.0):
            plain = ops.plap_solve(y, g, p, 0.7, penalty, warmup=3, steps=4)
            assert torch.equal(ops.plap_solve(y.clone().requires_grad_(), g, p, 0.7, penalty, 3, 4), plain)


def test_residual_is_the_relative_change_of_the_last_step() -> None:
    g, y = graphs.graph("weighted"), source(bands=1)
    out, info = ops.plap_solve(y, g, 1.5, 0.7, warmup=2, steps=2, return_info=True)
    before = ops.plap_solve(y, g, 1.5, 0.7, warmup=2, steps=1)
    torch.testing.assert_close(info.residual, (out - before).norm() / before.norm())


def test_implicit_takes_as_many_steps_and_the_same_values() -> None:
    g, y = graphs.graph("weighted"), source()
    a, info = ops.plap_solve(y, g, 1.5, 0.7, warmup=5, steps=4, grad="implicit", return_info=True)
    assert int(info.steps) == 9
    assert torch.equal(a, ops.plap_solve(y, g, 1.5, 0.7, warmup=5, steps=4))


def test_input_is_left_alone() -> None:
    g, y = graphs.graph("weighted"), source()
    kept = y.clone()
    out = ops.plap_solve(y, g, 1.5, 0.7)
    out.zero_()
    assert torch.equal(y, kept)


def test_two_runs_give_the_same_bits() -> None:
    g = graphs.graph("hub", num_nodes=200)
    y = torch.randn(200, 2, 16, requires_grad=True)
    runs = []
    for _ in range(2):
        out = ops.plap_solve(y, g, 1.3, 0.7)
        runs.append((out, *torch.autograd.grad(out.square().sum(), y)))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_precision_of_float32_follows_float64() -> None:
    # Measured worst relative error of 14 steps: 4e-7.
    g, y = graphs.graph("weighted"), source()
    double = ops.plap_solve(y, g, 1.5, 0.7)
    single = ops.plap_solve(y.float(), g, 1.5, 0.7)
    assert float((single - double).norm() / double.norm()) < 2e-6


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tol": 1e-3},
        {"grad": "implicit", "warmup": 50},
        {"solver": "irls", "warmup": 2, "steps": 2},
        {"mode": "released"},
        {"penalty": "rtv", "return_info": True},
    ],
    ids=lambda o: "-".join(map(str, o.values())) or "default",
)
def test_compiles_as_one_graph_forward_and_backward(options: dict[str, object]) -> None:
    torch._dynamo.reset()
    # aot_eager runs all of tracing and differentiation; code generation is covered by one layer test.
    g, y = graphs.graph("weighted"), source()

    def run(y: Tensor, p: Tensor, mu: Tensor) -> Tensor:
        out = ops.plap_solve(y, g, p, mu, **options)
        return out[0] if isinstance(out, tuple) else out

    inputs = (
        y.requires_grad_(),
        torch.tensor([1.5, 1.7]).double().requires_grad_(),
        torch.tensor(0.7).double().requires_grad_(),
    )
    eager, compiled = run(*inputs), torch.compile(run, fullgraph=True, backend="aot_eager")(*inputs)
    torch.testing.assert_close(eager, compiled, rtol=1e-12, atol=1e-12)
    grad = torch.randn_like(eager)
    for a, b in zip(torch.autograd.grad(eager, inputs, grad), torch.autograd.grad(compiled, inputs, grad), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_bad_p_is_noticed_in_a_compiled_call() -> None:
    g, y = graphs.graph("weighted"), source()
    run = torch.compile(lambda p: ops.plap_step(y, y, g, p, 0.7), fullgraph=True, backend="aot_eager")
    with pytest.raises(RuntimeError, match="plap_step: p must be finite and at least 1"):
        run(torch.tensor([0.5, 1.5]).double())


def test_opaque_ops_keep_their_contracts(plap_backend: str) -> None:
    g, y = graphs.graph("self_loops"), source()
    weight, dinv, _ = g.values(torch.float64)
    p, mu = torch.tensor([1.5, 1.8]).double(), torch.tensor([0.5, 0.7]).double()
    graph = (g.rowptr, g.col, weight)
    problem = (*graph, *graph, True, dinv, p, mu, "power", None, 0.0, "paper", "jacobi", plap_backend)
    ns = torch.ops.plufg
    torch.library.opcheck(ns.plap_iterate.default, (y, 3, 1e-3, *problem))
    torch.library.opcheck(ns.plap_adjoint.default, (y, y, y, 1e-3, *problem))
    out = y.clone().requires_grad_()
    torch.library.opcheck(ns.plap_implicit.default, (out, y, y, 1e-3, *problem))
    m = torch.rand(g.num_edges, 2, dtype=torch.float64)
    m[g.col > 0] = 0.5  # symmetric enough for conjugate gradients not to matter to the contract
    args = (m.requires_grad_(), y.clone().requires_grad_(), g.rowptr, g.col, dinv, mu.clone().requires_grad_())
    torch.library.opcheck(ns.plap_linear.default, args)
