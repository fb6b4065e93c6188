"""The compiled p-step against the reference, and what torch expects of an operator.

The oracles of test_plap_oracles.py and test_plap_gradients.py speak to it as well.
"""

import graphs
import pytest
import torch
from plap_cases import (
    KINDS,
    NODES,
    PENALTIES,
    TOLERANCE,
    assert_parity,
    assert_parity_at_ties,
    error,
    graph,
    inputs,
    results,
)

from plufg_fast import Graph, Penalty, ops
from plufg_fast.ops import backend
from plufg_fast.ops.sums import sum_over_nodes

pytestmark = pytest.mark.skipif("plap" not in backend.available()["cpp"]["cpu"], reason="the extension is not built")


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parity_at_nodes_whose_edges_are_all_ties(dtype, penalty) -> None:
    assert_parity_at_ties("cpp", dtype, penalty)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("width", [1, 3, 8, 17, 32, 33, 64, 130])
@pytest.mark.parametrize("kind", KINDS)
def test_parity_of_values_and_gradients(kind, width, index, dtype, penalty, monkeypatch) -> None:
    g = graph(kind, index, monkeypatch)
    assert g.rowptr.diff().max() > 64  # more than a piece
    assert_parity(g, width, dtype, penalty)


@pytest.mark.parametrize(
    "penalty",
    [
        *[Penalty(name) for name in ("power", "tikhonov", "tv")],
        *[Penalty(name, parameter) for name in ("rtv", "nldiff") for parameter in (0.3, 2.5)],
    ],
    ids=repr,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bands", [1, 2])
def test_parity_below_p_1_and_of_penalties_with_their_parameters(
    bands: int, dtype: torch.dtype, penalty: Penalty, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = graph("self_loops", torch.int32, monkeypatch)
    f, y, _, mu = inputs(bands, 17, dtype)
    args = (f, y, torch.tensor([0.5, 0.83], dtype=dtype)[:bands].requires_grad_(), mu)
    grad = torch.randn(NODES, bands, 17, dtype=dtype)
    exact = tuple(t.detach().double().requires_grad_() for t in args)
    expected = results("reference", exact, g, grad.double(), penalty=penalty, eps=0.3)
    actual = results("cpp", args, g, grad, penalty=penalty, eps=0.3)
    for name, a, b in zip(("value", "f", "y", "p", "mu"), expected, actual, strict=True):
        assert error(a, b) < TOLERANCE[dtype][name], name


@pytest.mark.parametrize("penalty", ["power", "rtv"])
@pytest.mark.parametrize("width", [1, 17, 32])
@pytest.mark.parametrize("bands", [1, 3])
def test_parity_of_bfloat16_storage_with_float32(bands: int, width: int, penalty: str, monkeypatch) -> None:
    g = graph("self_loops", torch.int32, monkeypatch)
    full = inputs(bands, width, torch.float32)
    half = tuple(t.detach().bfloat16().requires_grad_() for t in full[:2]) + full[2:]
    full = tuple(t.detach().float().requires_grad_() for t in half[:2]) + full[2:]
    grad = torch.randn(NODES, bands, width).bfloat16()
    a, b = (results("cpp", args, g, grad.to(args[0].dtype), penalty=penalty) for args in (full, half))
    assert torch.equal(a[0].bfloat16(), b[0])  # computed in float32, rounded once
    assert [t.dtype for t in b] == [torch.bfloat16] * 3 + [torch.float32] * 2
    for expected, actual in zip(a, b, strict=True):
        # The gradients see the rounded result of the step: half a unit in the last of eight bits.
        assert error(expected, actual) < 1e-2


@pytest.mark.parametrize("penalty", ["power", "rtv"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_parity_without_channels(dtype: torch.dtype, penalty: str, monkeypatch) -> None:
    # Such a signal has no memory at all; only `make sanitize` sees it touched.
    g = graph("self_loops", torch.int32, monkeypatch)
    f, y, p, mu = inputs(2, 0, torch.promote_types(dtype, torch.float32))
    args = (f.detach().to(dtype).requires_grad_(), y.detach().to(dtype).requires_grad_(), p, mu)
    actual = results("cpp", args, g, torch.zeros(NODES, 2, 0, dtype=dtype), penalty=penalty)
    assert [t.numel() for t in actual] == [0, 0, 0, 2, 2]
    assert all((t == 0).all() for t in actual)


@pytest.mark.parametrize("penalty", ["power", "nldiff"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_parity_of_many_steps_in_one_call_with_single_steps(dtype: torch.dtype, penalty: str, monkeypatch) -> None:
    g = graph("self_loops", torch.int32, monkeypatch)
    y = torch.randn(NODES, 2, 19, dtype=dtype)
    work = y.to(torch.promote_types(dtype, torch.float32))
    p = torch.tensor([1.5, 1.2]).to(work)
    f = work
    for _ in range(5):
        f = ops.plap_step(f, work, g, p, 1.0, penalty=penalty, backend="cpp")
    problem = {"penalty": penalty, "warmup": 4, "steps": 1, "backend": "cpp"}
    if dtype != torch.bfloat16:
        assert torch.equal(ops.plap_solve(y, g, p, 1.0, **problem), f)
    else:
        torch.testing.assert_close(ops.plap_solve(y, g, p, 1.0, **problem).float(), f, rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize("tol", [0.3, 1e-2, 1e-4])
def test_early_stop_inside_the_call_is_that_of_the_reference(tol: float) -> None:
    g = graphs.graph("isolated")
    y = torch.randn(11, 2, 5, dtype=torch.float64)
    options = {"warmup": 200, "steps": 1, "tol": tol, "return_info": True}
    (f, expected), (h, actual) = (ops.plap_solve(y, g, 1.5, 0.3, backend=b, **options) for b in ("reference", "cpp"))
    assert actual.steps == expected.steps
    assert 2 < int(actual.steps) < 200
    torch.testing.assert_close(h, f, rtol=1e-12, atol=1e-12)
    y[0, 0] = torch.nan  # the first band never settles, whatever the second one does
    assert [int(ops.plap_solve(y, g, 1.5, 0.3, backend=b, **options)[1].steps) for b in ("reference", "cpp")] == [
        201,
        201,
    ]


def test_large_results_keep_their_values_while_others_come_and_go() -> None:
    # Their memory is kept for later results, once they are gone.
    g = graphs.graph("hub", num_nodes=200)
    make = [lambda f: ops.plap_step(f, f, g, 1.5, 1.0), lambda f: ops.cheb_analysis(f, g, torch.ones(2, 3))]
    signals = [torch.randn(200, 4000) for _ in range(3)]
    held = [(f, run, run(f)) for f in signals for run in make]
    copies = [out.clone() for _, _, out in held]
    for f, run, out in held[::-1]:
        assert torch.equal(run(f), out)
    assert all(torch.equal(out, copy) for (_, _, out), copy in zip(held, copies, strict=True))
    assert len({out.data_ptr() for _, _, out in held}) == len(held)


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


@pytest.mark.parametrize("num_nodes", [50, 100_000])  # memory to work in comes in pages of two megabytes
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_many_steps_of_several_bands_stay_in_their_memory_and_are_steps_one_after_another(steps, num_nodes) -> None:
    ring = torch.arange(num_nodes)
    g = Graph(torch.stack((ring, ring.roll(1))), num_nodes)
    y = torch.randn(num_nodes, 3, 33, generator=torch.Generator().manual_seed(0))
    p, mu = torch.tensor([1.0, 1.5, 2.0]), 0.7
    expected = y
    for _ in range(steps):
        expected = ops.plap_step(expected, y, g, p, mu, backend="cpp")
    found = ops.plap_solve(y, g, p, mu, warmup=0, steps=steps, backend="cpp")
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


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


def test_gradients_of_p_and_mu_are_the_same_bits_for_any_number_of_threads() -> None:
    num_nodes = 40001
    ring = torch.arange(num_nodes)
    g = Graph(torch.stack((ring, ring.roll(1))), num_nodes)
    y = torch.randn(num_nodes, 3, generator=torch.Generator().manual_seed(0))
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            p, mu = torch.tensor(1.3, requires_grad=True), torch.tensor(0.7, requires_grad=True)
            out = ops.plap_solve(y, g, p, mu, warmup=0, steps=2, backend="cpp")
            found.append(torch.autograd.grad(out.square().sum(), (p, mu)))
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1]
    rows = torch.randn(num_nodes, 3, dtype=torch.float64)
    torch.testing.assert_close(sum_over_nodes(rows), rows.sum(0), rtol=1e-12, atol=1e-9)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_not_a_number_does_not_vanish(dtype: torch.dtype) -> None:
    # A training that has diverged must show, whatever p is.
    g = graphs.graph("weighted")
    f = torch.randn(11, 40, generator=torch.Generator().manual_seed(0)).to(dtype)
    f[3, 2] = torch.nan
    near = torch.cat((torch.tensor([3]), g.col[g.rowptr[3] : g.rowptr[4]]))
    for p in (1.0, 1.3, 1.5, 1.7, 2.5, 3.0, 3.3):
        out = ops.plap_step(f, torch.zeros_like(f), g, p, 0.7)
        assert out[near, 2].isnan().all(), p
