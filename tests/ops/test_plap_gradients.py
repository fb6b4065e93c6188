"""Derivatives of the reference p-step: against finite differences, against each other, and where there is a kink."""

from typing import Any, Literal

import graphs
import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck
from torch.utils.checkpoint import checkpoint

from plufg_fast import Graph, Penalty, ops
from plufg_fast.ops.backend import BackendError
from plufg_fast.ops.plap import reference

PENALTIES = ["power", "tikhonov", "tv", "rtv", "nldiff"]

pytestmark = pytest.mark.usefixtures("plap_backend")


def leaf(*shape: int, seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=rng, dtype=torch.float64).requires_grad_()


def exponents(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("kind", ["self_loops", "isolated", "directed_weighted_loops"])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_step_in_every_argument(penalty: str, kind: str) -> None:
    g = graphs.graph(kind, num_nodes=8)
    f, y = leaf(8, 2, 2), leaf(8, 2, 2, seed=1)
    assert gradcheck(
        lambda f, y, p, mu: ops.plap_step(f, y, g, p, mu, penalty),
        (f, y, exponents(1.3, 2.4), exponents(0.5, 1.5)),
    )


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 2.5, 3.0])
@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_step_for_every_exponent(p: float, eps: float) -> None:
    g = graphs.graph("self_loops", num_nodes=8)
    assert gradcheck(lambda f, y: ops.plap_step(f, y, g, p, 0.7, eps=eps), (leaf(8, 2), leaf(8, 2, seed=1)))


@pytest.mark.parametrize("p", [(0.6,), (0.6, 1.3)])
@pytest.mark.parametrize(
    "penalty",
    [
        *[Penalty(name) for name in ("power", "tikhonov", "tv")],
        *[Penalty(name, parameter) for name in ("rtv", "nldiff") for parameter in (0.3, 2.5)],
    ],
    ids=repr,
)
def test_step_with_any_parameter_and_with_smoothing_below_p_1(penalty: Penalty, p: tuple[float, ...]) -> None:
    g = graphs.graph("self_loops", num_nodes=8)
    f, y = leaf(8, len(p), 2), leaf(8, len(p), 2, seed=1)
    assert gradcheck(
        lambda f, y, p, mu: ops.plap_step(f, y, g, p, mu, penalty, eps=0.2),
        (f, y, exponents(*p), exponents(*(0.5, 1.5)[: len(p)])),
    )


@pytest.mark.parametrize("p", [2.0, 2.5])
@pytest.mark.parametrize("scalar", [True, False])
def test_step_in_p_and_mu_at_special_values(p: float, scalar: bool) -> None:
    # p = 2 is where the rule at zero norms changes; finite differences across it see no self-loops.
    g = graphs.graph("weighted", num_nodes=8)
    f, y = leaf(8, 1, 2), leaf(8, 1, 2, seed=1)
    shape = () if scalar else (1,)
    values = (
        exponents(p).detach().reshape(shape).requires_grad_(),
        exponents(0.7).detach().reshape(shape).requires_grad_(),
    )
    assert gradcheck(lambda p, mu: ops.plap_step(f.detach(), y.detach(), g, p, mu), values)


@pytest.mark.parametrize("kind", ["self_loops", "isolated", "directed_weighted_loops"])
@pytest.mark.parametrize("eps", [0.0, 0.2])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_written_out_backward_is_the_recorded_one(penalty: str, eps: float, kind: str) -> None:
    g = graphs.graph(kind)
    weight, dinv, _ = g.values(torch.float64)
    edges = reference.Edges.from_csr(g.rowptr, g.col, weight, dinv)
    for p in [(1.0, 1.5), (2.0, 2.5)]:
        inputs = leaf(11, 2, 3), leaf(11, 2, 3, seed=1), exponents(*p), exponents(0.4, 1.3)
        f, y, p_, mu = inputs
        out = reference.step(f, y, edges, p_, mu, Penalty(penalty), eps)
        grad = torch.randn_like(out)
        recorded = torch.autograd.grad(out, inputs, grad)
        f, y, p_, mu = (t.detach() for t in inputs)
        written = reference.step_backward(grad, f, y, edges, p_, mu, Penalty(penalty), eps)
        for a, b in zip(recorded, written, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_energy_in_every_argument(penalty: str) -> None:
    g = graphs.graph("self_loops", num_nodes=8)
    assert gradcheck(
        lambda f, y, p, mu: ops.plap_energy(f, y, g, p, mu, penalty),
        (leaf(8, 2, 2), leaf(8, 2, 2, seed=1), exponents(1.3, 2.4), exponents(0.5, 1.5)),
    )


def test_edge_gradient_and_divergence() -> None:
    g = graphs.graph("directed_weighted_loops", num_nodes=8)
    assert gradcheck(lambda f: ops.edge_gradient(f, g), (leaf(8, 2),))
    assert gradcheck(lambda u: ops.divergence(u, g), (leaf(g.num_edges, 2),))


@pytest.mark.parametrize("mode", ["paper", "released", "pgnn"])
@pytest.mark.parametrize("kind", ["self_loops", "directed_weighted_loops"])
def test_unrolled_solve_in_every_argument(kind: str, mode: str) -> None:
    g = graphs.graph(kind, num_nodes=7)
    assert gradcheck(
        lambda y, p, mu: ops.plap_solve(y, g, p, mu, warmup=0, steps=3, mode=mode),
        (leaf(7, 2, 2), exponents(1.4, 2.3), exponents(0.5, 1.5)),
    )


@pytest.mark.parametrize(
    "needed", [(True, True, True), (True, False, False), (False, True, False), (False, False, True)]
)
@pytest.mark.parametrize("warmup", [0, 3])
@pytest.mark.parametrize("penalty", ["power", "rtv"])
def test_unrolled_solve_is_a_chain_of_single_steps(penalty: str, warmup: int, needed: tuple[bool, bool, bool]) -> None:
    # Steps may share a node of autograd, which sums what each passes on and drops what nobody needs.
    g = graphs.graph("directed_weighted_loops")
    values = leaf(11, 2, 3), exponents(1.4, 2.3), exponents(0.5, 1.5)
    y, p, mu = (v.detach().requires_grad_(need) for v, need in zip(values, needed, strict=True))
    wanted = [v for v in (y, p, mu) if v.requires_grad]
    together = ops.plap_solve(y, g, p, mu, penalty, warmup=warmup, steps=3)
    f = y
    with torch.no_grad():
        for _ in range(warmup):
            f = ops.plap_step(f, y, g, p, mu, penalty)
    for _ in range(3):
        f = ops.plap_step(f, y, g, p, mu, penalty)
    assert torch.equal(together, f)
    grad = torch.randn_like(f).transpose(1, 2).contiguous().transpose(1, 2)
    found, expected = (torch.autograd.grad(out, wanted, grad) for out in (together, f))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-14)


def test_an_exponent_that_changes_before_backward_is_noticed_or_does_no_harm(plap_backend: str) -> None:
    g = graphs.graph("weighted", num_nodes=7)
    y, p = leaf(7, 2), exponents(1.5)
    out = ops.plap_solve(y, g, p, 0.7, steps=2).sum()
    (expected,) = torch.autograd.grad(out, y, retain_graph=True)
    with torch.no_grad():
        p.mul_(2)
    if plap_backend == "reference":  # which keeps what it made of p
        assert torch.equal(torch.autograd.grad(out, y)[0], expected)
    else:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.backward()


def test_second_derivatives_are_refused_or_right(plap_backend: str) -> None:
    g = graphs.graph("weighted", num_nodes=7)
    solvers = (lambda y: ops.plap_step(y, y, g, 1.5, 0.7), lambda y: ops.plap_solve(y, g, 1.5, 0.7, warmup=0, steps=2))
    for solve in solvers:
        # The gradient of a plain sum comes in as a constant, and goes out depending on y all the same.
        for loss in (lambda out: out.square().sum(), torch.sum):
            y = leaf(7, 2)
            (grad,) = torch.autograd.grad(loss(solve(y)), y, create_graph=True)
            if plap_backend == "reference":
                assert torch.autograd.gradgradcheck(solve, (y,))
            else:
                with pytest.raises(RuntimeError, match="differentiated twice"):
                    grad.square().sum().backward()


def test_what_depends_on_nothing_else_may_be_differentiated_beside_a_step(plap_backend: str) -> None:
    g = graphs.graph("weighted", num_nodes=7)
    y, other = leaf(7, 2), leaf(7, 2, seed=1)
    loss = ops.plap_step(y.detach(), y, g, 1.5, 0.7).sum() + (other**3).sum()
    (grad,) = torch.autograd.grad(loss, other, create_graph=True)
    grad.sum().backward()
    torch.testing.assert_close(other.grad, 6 * other.detach())


@pytest.mark.parametrize("call", ["step", "solve"])
def test_forward_mode_is_right_or_refused(call: str, plap_backend: str) -> None:
    g = graphs.graph("weighted", num_nodes=7)
    y, along = leaf(7, 2).detach(), leaf(7, 2, seed=1).detach()

    def value(y: Tensor, **options: str) -> Tensor:
        if call == "step":
            return ops.plap_step(y, y.square(), g, 1.5, 0.7, **options)
        return ops.plap_solve(y, g, 1.5, 0.7, warmup=0, steps=2, **options)

    _, tangent = torch.func.jvp(value, (y,), (along,))
    h = 1e-6
    expected = (value(y + h * along) - value(y - h * along)) / (2 * h)
    torch.testing.assert_close(tangent, expected, rtol=1e-6, atol=1e-8)
    if plap_backend != "reference":
        with pytest.raises(BackendError, match=r"no rules for the transforms of torch\.func"):
            torch.func.jvp(lambda y: value(y, backend=plap_backend), (y,), (along,))


@pytest.mark.parametrize("options", [{"grad": "implicit"}, {"solver": "irls"}])
def test_forward_mode_of_what_is_solved_is_refused(options: dict[str, Any], plap_backend: str) -> None:
    g = graphs.graph("weighted", num_nodes=7)
    y, along = leaf(7, 2).detach(), leaf(7, 2, seed=1).detach()

    def value(y: Tensor) -> Tensor:
        return ops.plap_solve(y, g, 1.5, 0.7, backend=plap_backend if "grad" in options else "auto", **options)

    ((name, what),) = options.items()
    with pytest.raises(BackendError, match=rf"{name} '{what}' has no rule for the transforms of torch\.func"):
        torch.func.jvp(value, (y,), (along,))
    with (
        forward_ad.dual_level(),
        pytest.raises(BackendError, match=f"{name} '{what}' has no rule for forward-mode derivatives"),
    ):
        value(forward_ad.make_dual(y, along))


@pytest.mark.parametrize("source", ["y", "p", "mu"])
def test_implicit_gradients_refuse_to_be_differentiated_twice(source: str, plap_backend: str) -> None:
    g = graphs.graph("weighted", num_nodes=7)
    leaves = {"y": leaf(7, 2), "p": exponents(1.5), "mu": exponents(0.7)}
    # Linear in the output: of what is differentiated again only the system that was solved depends on the source.
    loss = ops.plap_solve(
        leaves["y"], g, leaves["p"], leaves["mu"], warmup=200, grad="implicit", backend=plap_backend
    ).sum()
    (first,) = torch.autograd.grad(loss, leaves["y"], create_graph=True)
    with pytest.raises(RuntimeError, match="implicit gradients cannot be differentiated twice"):
        torch.autograd.grad(first.square().sum(), leaves[source])


@pytest.mark.parametrize("call", ["step", "solve"])
def test_forward_mode_within_compiled_code(call: str) -> None:
    # Kernels have no forward rule, and torch would take the tangents of their results for zero.
    g = graphs.graph("weighted", num_nodes=7)
    y, along = leaf(7, 2).detach(), leaf(7, 2, seed=1).detach()

    def value(y: Tensor) -> Tensor:
        if call == "step":
            return ops.plap_step(y, y.square(), g, 1.5, 0.7)
        return ops.plap_solve(y, g, 1.5, 0.7, warmup=0, steps=2)

    def derivative(y: Tensor) -> Tensor:
        return torch.func.jvp(value, (y,), (along,))[1]

    def dual(y: Tensor) -> Tensor:
        with forward_ad.dual_level():
            tangent: Tensor = forward_ad.unpack_dual(value(forward_ad.make_dual(y, along))).tangent
            return tangent

    expected = derivative(y)
    assert expected.abs().sum() > 0
    for function in (derivative, dual):
        torch.testing.assert_close(torch.compile(function, backend="eager")(y), expected)


@pytest.mark.parametrize("call", ["step", "unroll", "implicit", "irls"])
def test_gradient_checkpointing(call: str) -> None:
    g, y = graphs.graph("weighted", num_nodes=7), leaf(7, 2)
    grad: Literal["unroll", "implicit"] = "implicit" if call == "implicit" else "unroll"
    solver: Literal["jacobi", "irls"] = "irls" if call == "irls" else "jacobi"

    def value(y: Tensor) -> Tensor:
        if call == "step":
            return ops.plap_step(y, y, g, 1.5, 0.7)
        return ops.plap_solve(y, g, 1.5, 0.7, warmup=20, steps=2, grad=grad, solver=solver)

    (expected,) = torch.autograd.grad(value(y).square().sum(), y)
    (got,) = torch.autograd.grad(checkpoint(value, y, use_reentrant=False).square().sum(), y)
    assert torch.equal(got, expected)


def test_batches_of_exponents() -> None:
    g, y = graphs.graph("weighted", num_nodes=7), leaf(7, 2).detach()
    p = torch.tensor([1.2, 1.7, 2.5], dtype=torch.float64)
    got = torch.vmap(lambda p: ops.plap_step(y, y, g, p, 0.7))(p)
    torch.testing.assert_close(got, torch.stack([ops.plap_step(y, y, g, float(value), 0.7) for value in p]))


@pytest.mark.parametrize("steps", [1, 30])
def test_implicit_gradient_of_a_signal_that_is_not_contiguous(steps: int) -> None:
    g = graphs.graph("weighted", num_nodes=7)
    grads = []
    for stored in (lambda t: t, lambda t: t.t().contiguous().t()):
        y = leaf(7, 2)
        out = ops.plap_solve(stored(y), g, 1.5, 0.7, warmup=0, steps=steps, grad="implicit")
        grads.append(torch.autograd.grad(out.square().sum(), y)[0])
    assert torch.equal(*grads)


@pytest.mark.parametrize("penalty", ["power", "rtv"])
def test_irls_solve_in_every_argument(penalty: str) -> None:
    g = graphs.graph("self_loops", num_nodes=7)
    assert gradcheck(
        lambda y, p, mu: ops.plap_solve(y, g, p, mu, penalty, warmup=0, steps=2, solver="irls"),
        (leaf(7, 2, 2), exponents(1.4, 2.3), exponents(0.5, 1.5)),
    )


@pytest.mark.parametrize("kind", ["self_loops", "isolated", "directed_weighted_loops"])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_implicit_gradient_is_that_of_a_long_unrolled_iteration(penalty: str, kind: str) -> None:
    g = graphs.graph(kind)
    y, p, mu = leaf(11, 2, 2), exponents(1.5, 2.0), exponents(1.0, 1.5)
    unrolled = ops.plap_solve(y, g, p, mu, penalty, warmup=0, steps=400)
    grad = torch.randn_like(unrolled)
    expected = torch.autograd.grad(unrolled, (y, p, mu), grad)
    implicit = ops.plap_solve(y, g, p, mu, penalty, warmup=400, steps=1, grad="implicit")
    for a, b in zip(expected, torch.autograd.grad(implicit, (y, p, mu), grad), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


def test_implicit_gradient_at_the_fixed_point_of_irls() -> None:
    g = graphs.graph("weighted")
    y = leaf(11, 2)
    grads = [
        torch.autograd.grad(
            ops.plap_solve(y, g, 1.4, 1.0, warmup=n, tol=1e-14, solver=solver, grad="implicit").square().sum(), y
        )[0]
        for solver, n in (("jacobi", 2000), ("irls", 200))
    ]
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-9)


def check_small_mu(g: Graph, p: float, mu: float, penalty: str, solver: Literal["jacobi", "irls"], steps: int) -> None:
    """The gradient is 2 mu H^-1 grad, with H the Hessian of the energy.

    The step contracts by about 1 - mu: a fixed number of iterations would fall short, with a warning that is an error
    here.
    """
    y = leaf(9, 2)

    def energy(f: Tensor) -> Tensor:
        return ops.plap_energy(f.view(9, 2), y.detach(), g, p, mu, penalty)

    out = ops.plap_solve(y, g, p, mu, penalty, warmup=steps, steps=1, tol=1e-15, solver=solver, grad="implicit")
    hessian = torch.autograd.functional.hessian(energy, out.detach().flatten())
    grad = torch.randn(9, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    (got,) = torch.autograd.grad(out, y, grad)
    torch.testing.assert_close(got.flatten(), 2 * mu * torch.linalg.solve(hessian, grad.flatten()), rtol=1e-8, atol=0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("p", "mu"), [(2.0, 0.001), (1.5, 0.01), (2.5, 0.05)])
@pytest.mark.parametrize("penalty", ["power", "tikhonov", "rtv"])
def test_implicit_gradient_for_small_mu_is_that_of_the_minimiser(penalty: str, p: float, mu: float) -> None:
    check_small_mu(graphs.graph("weighted", num_nodes=9), p, mu, penalty, "irls", 200)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("p", "mu"), [(2.0, 0.005), (1.7, 0.03), (2.2, 0.02)])
def test_implicit_gradient_for_small_mu_after_many_steps(p: float, mu: float) -> None:
    check_small_mu(graphs.graph("weighted", num_nodes=9), p, mu, "power", "jacobi", 10_000)


def test_implicit_gradient_where_there_is_no_fixed_point_says_so() -> None:
    # Two strongly tied nodes and p = 4: the Jacobi step overshoots and swaps them for ever.
    g = Graph(torch.tensor([[0, 1], [1, 0]]))
    y = torch.tensor([[30.0], [-30.0]], dtype=torch.float64, requires_grad=True)
    out = ops.plap_solve(y, g, 4.0, 0.01, warmup=3, steps=1, grad="implicit")
    with pytest.warns(UserWarning, match=r"of a fixed point, but another step changes the signal by 2\.0e\+00"):
        out.sum().backward()


@pytest.mark.filterwarnings("ignore:plap_solve. the implicit gradient is that of a fixed point")
def test_implicit_gradient_that_does_not_converge_says_so() -> None:
    # Directed, which conjugate gradients do not take.
    g = Graph(torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]]))
    y = torch.tensor([[30.0], [-30.0], [10.0]], dtype=torch.float64, requires_grad=True)
    out = ops.plap_solve(y, g, 4.0, 0.01, warmup=3, steps=1, grad="implicit")
    with pytest.warns(UserWarning, match="the implicit gradient .* stands at"):
        out.sum().backward()


def test_implicit_gradient_of_a_penalty_that_is_not_convex() -> None:
    g = graphs.graph("weighted", num_nodes=9)
    y, mu = leaf(9, 2), 0.05
    solve: dict[str, Any] = {"penalty": Penalty("nldiff", 0.3), "warmup": 1000, "steps": 1}
    grad = torch.randn(9, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    (implicit,) = torch.autograd.grad(ops.plap_solve(y, g, 2.0, mu, grad="implicit", **solve), y, grad)
    (unrolled,) = torch.autograd.grad(ops.plap_solve(y, g, 2.0, mu, **(solve | {"steps": 1000})), y, grad)
    torch.testing.assert_close(implicit, unrolled, rtol=1e-8, atol=1e-10)


def test_warmup_carries_no_gradient() -> None:
    g = graphs.graph("weighted")
    y = leaf(11, 2)
    out = ops.plap_solve(y, g, 1.5, 0.7, warmup=5, steps=1)
    grad = torch.randn_like(out)
    (with_warmup,) = torch.autograd.grad(out, y, grad)
    start = ops.plap_solve(y.detach(), g, 1.5, 0.7, warmup=4, steps=1)
    (by_hand,) = torch.autograd.grad(ops.plap_step(start, y, g, 1.5, 0.7), y, grad)
    assert torch.equal(with_warmup, by_hand)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 2.5])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_equal_neighbours_have_a_finite_gradient_of_the_defined_value(penalty: str, p: float) -> None:
    # Nodes 0 and 1 are equal and of equal degree: their edge gradient is 0, and so is, by definition, the
    # derivative of its norm. What is left is the derivative with M held fixed.
    w = torch.zeros(4, 4, dtype=torch.float64)
    for i, j in [(0, 1), (0, 2), (1, 3)]:
        w[i, j] = w[j, i] = 1.0
    g = graphs.from_dense(w)
    f = torch.tensor([[1.0, 2.0], [1.0, 2.0], [-1.0, 0.5], [0.3, 0.1]], dtype=torch.float64)
    assert torch.equal(ops.edge_gradient(f, g)[0], torch.zeros(2).double())

    inputs = f.clone().requires_grad_(), leaf(4, 2), exponents(p), exponents(0.7)
    out = ops.plap_step(*inputs[:2], g, *inputs[2:], penalty)
    grads = torch.autograd.grad(out.square().sum(), inputs)
    assert all(torch.isfinite(t).all() for t in (out, *grads))

    # The same derivative without the edge {0, 1}'s norm: move that edge's ends together, so it stays 0.
    def moved(t: Tensor) -> Tensor:
        shifted = f + t * torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
        return ops.plap_step(shifted, inputs[1].detach(), g, p, 0.7, penalty).square().sum()

    h = 1e-6
    central = (moved(torch.tensor(h)) - moved(torch.tensor(-h))) / (2 * h)
    torch.testing.assert_close(grads[0][0, 0] + grads[0][1, 0], central, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 2.5])
def test_norm_and_power_of_a_zero_edge_have_derivative_zero(p: float) -> None:
    gradient = torch.zeros(2, 1, 3, dtype=torch.float64)
    gradient[1, 0, 0] = 2.0
    gradient.requires_grad_()
    p_ = exponents(p)
    n, zero = reference._norms(gradient, 0.0)
    q = reference._powers(n, zero, p_)
    assert zero.flatten().tolist() == [True, False]
    assert q.flatten().tolist() == pytest.approx([float(p == 2), 2.0 ** (p - 2)])
    dg, dp = torch.autograd.grad(q.sum(), (gradient, p_))
    assert torch.equal(dg[0], torch.zeros(1, 3).double())
    assert float(dg[1, 0, 0]) == pytest.approx((p - 2) * 2.0 ** (p - 3))
    assert float(dp) == pytest.approx(2.0 ** (p - 2) * 0.6931471805599453)


def test_defined_value_of_the_derivative_at_a_zero_edge_is_zero() -> None:
    # Two equal nodes and nothing else: for p < 2 the edge carries weight 0, and its derivative is 0 too.
    g = Graph(torch.tensor([[0, 1], [1, 0]]))
    f = torch.ones(2, 1, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([[1.0], [3.0]], dtype=torch.float64)
    for p in (1.0, 1.5):
        out = ops.plap_step(f, y, g, p, 0.5)
        assert torch.equal(out, y)
        assert torch.equal(torch.autograd.grad(out.sum(), f)[0], torch.zeros(2, 1).double())


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 2.5])
def test_constant_signal_has_no_nan_anywhere(p: float) -> None:
    # Every edge of a regular graph is at zero gradient at once.
    ring = torch.arange(6)
    g = Graph(
        torch.cat((torch.stack((ring, ring.roll(1))), torch.stack((ring.roll(1), ring)), torch.stack((ring, ring))), 1)
    )
    for solver, grad in (("jacobi", "unroll"), ("irls", "unroll"), ("jacobi", "implicit")):
        y = torch.ones(6, 3, dtype=torch.float64, requires_grad=True)
        p_, mu = exponents(p), exponents(0.5)
        out = ops.plap_solve(y, g, p_, mu, warmup=2, steps=2, solver=solver, grad=grad)
        torch.testing.assert_close(out, torch.ones_like(out))
        for t in torch.autograd.grad(out.square().sum(), (y, p_, mu)):
            assert torch.isfinite(t).all()


def test_gradients_that_nobody_asked_for_are_not_kept() -> None:
    g = graphs.graph("weighted")
    y = leaf(11, 2).detach()
    assert not ops.plap_solve(y, g, 1.5, 1.0).requires_grad
    p = exponents(1.5)
    assert ops.plap_solve(y, g, p, 1.0).requires_grad


@pytest.mark.parametrize("p", [1.0, 1.5, 2.5])
def test_small_signals_have_finite_gradients_in_single_precision(p: float) -> None:
    # Powers as low as n^-2 of norms down to where their squares underflow.
    g = graphs.graph("self_loops").to(torch.float32)
    weight, dinv, _ = g.values(torch.float32)
    edges = reference.Edges.from_csr(g.rowptr, g.col, weight, dinv)
    signal = torch.randn(11, 1, 3)
    for scale in 10.0 ** -torch.arange(0, 38, 1.5):
        f = (scale * signal).requires_grad_()
        p_, mu = torch.tensor([p]), torch.tensor([0.5])
        out = reference.step(f, f.detach(), edges, p_, mu, Penalty("power"), 0.0)
        (grad,) = torch.autograd.grad(out.sum(), f)
        assert torch.isfinite(grad).all(), scale
        written = reference.step_backward(
            torch.ones_like(out), f.detach(), f.detach(), edges, p_, mu, Penalty("power"), 0.0
        )
        torch.testing.assert_close(written[0], grad, rtol=1e-3, atol=1e-3)
