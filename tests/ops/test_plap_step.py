"""The compiled p-step against the reference, and what torch expects of an operator.

The oracles of test_plap_oracles.py and test_plap_gradients.py speak to it as well.
"""

import graphs
import pytest
import torch
from torch import Tensor

import plufg_fast.graph
from plufg_fast import Graph, ops
from plufg_fast.ops import backend

pytestmark = pytest.mark.skipif("plap" not in backend.available()["cpp"]["cpu"], reason="the extension is not built")

# Relative to the largest entry, or to 1 where that is smaller (sums of many terms of either sign).
TOLERANCE = {torch.float32: 5e-6, torch.float64: 1e-12}
EXPONENTS = [1.0, 1.37, 1.5, 2.0, 2.5, 3.0]


def graph(kind: str, index: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """Rows of more than two blocks of edges, self-loops and isolated nodes among them."""
    if index == torch.int64:
        monkeypatch.setattr(plufg_fast.graph, "_INT32_MAX", 1)
    w = graphs.dense(kind, num_nodes=40)
    w[0] = w[0] + (torch.arange(40) > 0)
    if kind != "directed_weighted_loops":
        w[:, 0] = w[0]
    w[5] = 0
    w[:, 5] = 0
    g = graphs.from_dense(w)
    assert g.col.dtype == index
    return g


def results(name: str, inputs: tuple[Tensor, ...], g: Graph, eps: float, grad: Tensor) -> list[Tensor]:
    f, y, p, mu = inputs
    out = ops.plap_step(f, y, g, p, mu, eps=eps, backend=name)
    return [out, *torch.autograd.grad(out, inputs, grad)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("width", [1, 3, 4, 8, 17, 32, 33, 64, 130])
@pytest.mark.parametrize("kind", ["unweighted", "self_loops", "directed_weighted_loops"])
def test_parity_of_values_and_gradients(kind, width, index, dtype, monkeypatch) -> None:
    g = graph(kind, index, monkeypatch)
    for bands, eps in ((len(EXPONENTS), 0.0), (1, 0.3)):
        p = torch.tensor(EXPONENTS[:bands], dtype=dtype, requires_grad=True)
        mu = torch.linspace(0.5, 2, bands, dtype=dtype).requires_grad_()
        f, y = (torch.randn(40, bands, width, dtype=dtype, requires_grad=True) for _ in range(2))
        grad = torch.randn(40, bands, width, dtype=dtype)
        inputs = (f, y, p, mu)
        reference, actual = (results(name, inputs, g, eps, grad) for name in ("reference", "cpp"))
        exact = results("reference", tuple(t.detach().double().requires_grad_() for t in inputs), g, eps, grad.double())
        for name, a, b, c in zip(("value", "f", "y", "p", "mu"), exact, reference, actual, strict=True):
            scale = a.abs().max().clamp(min=1)
            # Where neighbours are close, their difference has few bits and no method can do much better than another:
            # measured at most 2.8 times the reference's own error in that precision.
            bound = max(TOLERANCE[dtype], 4 * float((a - b).abs().max() / scale))
            assert float((a - c).abs().max() / scale) < bound, name


@pytest.mark.parametrize("e", [-0.5, -0.315, 0.2, 1.5])
def test_general_power_in_single_precision(e: float) -> None:
    # Two nodes at distance d: M can be read off the step, over the whole range of norms.
    g = Graph(torch.tensor([[0, 1], [1, 0]]))
    p = 2 * e + 2 + 1e-6  # never one of the exponents that take roots
    for d in 10.0 ** torch.linspace(-15, 5, 41, dtype=torch.float64):
        f = torch.tensor([[0.0], [float(d)]], dtype=torch.float32)
        y = torch.zeros_like(f)
        single, double = (ops.plap_step(t, y.to(t), g, p, 1.0, backend="cpp") for t in (f, f.double()))
        torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-35)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_same_bits_for_every_run_and_number_of_threads(dtype: torch.dtype) -> None:
    rng = torch.Generator().manual_seed(0)
    ends = torch.randint(0, 3000, (2, 20_000), generator=rng)
    ends[0, :8000] = 7  # a hub
    g = Graph(torch.cat((ends, ends.flip(0)), 1), 3000)
    y = torch.randn(3000, 2, 33, dtype=dtype, requires_grad=True)
    p = torch.tensor([1.5, 1.37], dtype=dtype, requires_grad=True)
    runs, threads = [], torch.get_num_threads()
    try:
        for n in (1, 2, 2, 1):
            torch.set_num_threads(n)
            out = ops.plap_solve(y, g, p, 1.0, warmup=2, steps=2, backend="cpp")
            runs.append((out, *torch.autograd.grad(out.square().sum(), (y, p))))
    finally:
        torch.set_num_threads(threads)
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], other, strict=True))


@pytest.mark.parametrize("penalty", [0, 3])
def test_operators_keep_their_contracts(penalty: int) -> None:
    g = graphs.graph("directed_weighted_loops", num_nodes=7)
    t = g.transpose()
    weight, dinv, _ = g.values(torch.float64)
    arrays = (g.rowptr, g.col, weight, t.rowptr, t.col, t.values(torch.float64)[0], dinv)
    f, y = (torch.randn(7, 2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    p, mu = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in ([1.4, 2.5], [0.5, 1.0]))
    ns = torch.ops.plufg
    torch.library.opcheck(ns.plap_step.default, (f, y, *arrays, p, mu, 0.0, penalty, 0.5))
    kept = [t.detach() for t in ns.plap_step(f, y, *arrays, p, mu, 0.0, penalty, 0.5)]
    for need_p in (True, False):
        args = (y.detach(), f.detach(), *kept, *arrays, p.detach(), 0.0, penalty, 0.5, need_p)
        torch.library.opcheck(ns.plap_step_backward.default, args)
    for tol in (None, 1e-3):
        torch.library.opcheck(ns.plap_steps.default, (y.detach(), *arrays, p, mu, 0.0, penalty, 0.5, 3, tol))


def test_bad_arguments_are_named_before_a_kernel_runs() -> None:
    g = graphs.graph("weighted", num_nodes=7)
    weight, dinv, _ = g.values(torch.float64)
    arrays = (g.rowptr, g.col, weight, g.rowptr, g.col, weight)
    f, p = torch.randn(7, 2, 3, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    step = torch.ops.plufg.plap_step
    cases = [
        ((f[:, 0], f, *arrays, dinv, p, p, 0.0, 0, 0.0), r"f must have shape \[N, B, C\]"),
        ((f, f.float(), *arrays, dinv, p, p, 0.0, 0, 0.0), "y must have dtype and shape of f"),
        ((f, f, *arrays, dinv[1:], p, p, 0.0, 0, 0.0), "dinv must hold one value of the dtype of f per node"),
        ((f, f, *arrays, dinv, p[:1], p, 0.0, 0, 0.0), "p must hold one value of the dtype of f per band"),
        ((f, f, g.rowptr[:-1], *arrays[1:], dinv, p, p, 0.0, 0, 0.0), "rowptr must be the row pointers"),
    ]
    for arguments, message in cases:
        with pytest.raises(RuntimeError, match=message):
            step(*arguments)


@pytest.mark.parametrize("options", [{"mode": "pgnn"}, {"solver": "irls"}])
def test_what_the_kernels_do_not_serve_is_refused_by_name_and_served_by_auto(options: dict[str, str]) -> None:
    g, y = graphs.graph("weighted"), torch.randn(11, 2, dtype=torch.float64)
    with pytest.raises(backend.BackendError, match="it has kernels for mode 'paper'"):
        ops.plap_solve(y, g, 1.5, 1.0, backend="cpp", **options)
    assert torch.equal(
        ops.plap_solve(y, g, 1.5, 1.0, **options), ops.plap_solve(y, g, 1.5, 1.0, backend="reference", **options)
    )
