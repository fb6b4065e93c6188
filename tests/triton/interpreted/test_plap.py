"""The p-step's Triton kernels against the reference: the parity grid of the CPU kernels on small graphs."""

from typing import Any

import graphs
import plap_cases as grid
import pytest
import torch
import triton_forms
from torch import Tensor

import plufg_fast.graph
from plufg_fast import Graph, ops
from plufg_fast.ops import triton_rows
from plufg_fast.penalties import FORMULAS

# A unit in the last of eight bits.
BFLOAT16 = {"rtol": 2**-7, "atol": 2**-7}
NODES = 11
WIDTHS = [1, 3, 8, 17, 33, 130]
KINDS = ["unweighted", "self_loops", "directed", "directed_weighted_loops"]
BANDS = [(1, 0.0), (1, 0.3), (2, 0.0)]


def graph(kind: str) -> Graph:
    """Short rows, a row that goes on in another window, a row without edges."""
    w = graphs.dense(kind, NODES)
    loop = w[0, 0].item()
    w[0] = 1 if kind in ("unweighted", "directed") else w[0] + 0.3
    w[0, 0] = loop
    w[5] = 0
    w[:, 5] = 0
    if not kind.startswith("directed"):
        w[:, 0] = w[0]
    g = graphs.from_dense(w)
    assert g.rowptr.diff().max() > triton_rows.LIMIT
    assert (g.weight is None) == (kind in ("unweighted", "directed"))
    return g


def inputs(bands: int, width: int, dtype: torch.dtype, nodes: int = NODES) -> tuple[Tensor, ...]:
    """A signal with some equal neighbours, a source, and an exponent and a mu for every band."""
    f, y = (torch.randn(nodes, bands, width, dtype=dtype) for _ in range(2))
    f[6:9] = 0
    p = torch.tensor(grid.EXPONENTS, dtype=dtype).roll(-2)[:bands]
    return tuple(t.requires_grad_() for t in (f, y, p, torch.linspace(0.5, 2, bands, dtype=dtype)))


def check(g: Graph, bands: int, width: int, dtype: torch.dtype, penalty: str, eps: float) -> None:
    args = inputs(bands, width, dtype, g.num_nodes)
    grad = torch.randn(g.num_nodes, bands, width, dtype=dtype)
    options = {"penalty": penalty, "eps": eps}
    actual = grid.results("triton", args, g, grad, **options)
    wide = tuple(t.detach().double().requires_grad_() for t in args)
    exact = grid.results("reference", wide, g, grad.double(), **options)
    for name, a, b in zip(("value", "f", "y", "p", "mu"), exact, actual, strict=True):
        assert b.dtype == dtype
        assert grid.error(a, b) < grid.TOLERANCE[dtype][name], name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "penalty"), list(enumerate(FORMULAS)))
@pytest.mark.parametrize(("m", "kind"), list(enumerate(KINDS)))
def test_parity_of_values_and_gradients(m, kind, n, penalty, dtype) -> None:
    # All widths and numbers of bands take turns over graphs and penalties.
    bands, eps = BANDS[(m + n) % 3]
    check(graph(kind), bands, WIDTHS[(m + 2 * n + (dtype == torch.float32)) % 5], dtype, penalty, eps)


@pytest.mark.parametrize("penalty", grid.PENALTIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parity_at_nodes_whose_edges_are_all_ties(dtype, penalty) -> None:
    grid.assert_parity_at_ties("triton", dtype, penalty)


@pytest.mark.parametrize("penalty", ["power", "rtv"])
@pytest.mark.parametrize("width", [3, 130])
@pytest.mark.parametrize("kind", KINDS)
def test_parity_of_narrow_and_wide_signals(kind: str, width: int, penalty: str) -> None:
    check(graph(kind), 1, width, torch.float64 if kind.startswith("directed") else torch.float32, penalty, 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_parity_of_the_gradient_of_the_signal_alone(kind: str) -> None:
    g, (f, y, p, mu) = graph(kind), inputs(1, 5, torch.float64)
    steps = (ops.plap_step(f, y.detach(), g, p.detach(), mu.detach(), backend=b) for b in ("reference", "triton"))
    torch.testing.assert_close(*(torch.autograd.grad(out.sin().sum(), f)[0] for out in steps), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("penalty", ["power", "tikhonov"])
def test_parity_of_every_exponent_with_64_bit_indices(penalty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plufg_fast.graph, "_INT32_MAX", 1)
    g = graph("self_loops")
    assert g.col.dtype == torch.int64
    check(g, len(grid.EXPONENTS), 2, torch.float64, penalty, 0.0)


@pytest.mark.parametrize("width", [2, 130])
def test_parity_of_a_row_over_many_windows(width: int) -> None:
    # Four windows, the first and the last of them cut; and many nodes that only the hub receives from.
    nodes = 4 * triton_rows.LIMIT
    w = torch.zeros(nodes, nodes, dtype=torch.float64)
    w[0, 1:3] = w[1, 3:] = 1
    g = graphs.from_dense(w)
    check(g, 1, width, torch.float64, "power", 0.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("kind", "width", "penalty"), [("self_loops", 5, "rtv"), ("directed", 130, "power")])
def test_parity_of_half_precision_storage_with_float32(kind: str, width: int, penalty: str, dtype: torch.dtype) -> None:
    g = graph(kind)
    f, y, p, mu = inputs(1, width, torch.float32)
    half = (*(t.detach().to(dtype).requires_grad_() for t in (f, y)), p, mu)
    full = (*(t.detach().float().requires_grad_() for t in half[:2]), p, mu)
    grad = torch.randn(NODES, 1, width).to(dtype)
    a, b = (grid.results("triton", args, g, grad.to(args[0].dtype), penalty=penalty) for args in (full, half))
    # Computed in float32, rounded once; the interpreter cuts off the bits of a bfloat16 where a GPU rounds.
    if dtype == torch.float16:
        assert torch.equal(a[0].to(dtype), b[0])
    else:
        torch.testing.assert_close(b[0].float(), a[0], rtol=2**-7, atol=0)
    assert [t.dtype for t in b] == [dtype] * 3 + [torch.float32] * 2
    for expected, actual in zip(a, b, strict=True):
        # The gradients see the rounded result of the step: half a unit in the last of eight bits, a whole one where
        # bits are cut off (measured: 1.2e-2).
        assert grid.error(expected, actual) < (1e-2 if dtype == torch.float16 else 2e-2)


@pytest.mark.parametrize("penalty", ["power", "rtv"])
@pytest.mark.parametrize(("nodes", "width"), [(NODES, 0), (0, 3)])
def test_signals_without_channels_or_nodes(nodes: int, width: int, penalty: str) -> None:
    g = graph("weighted") if nodes else Graph(torch.empty(2, 0, dtype=torch.int64), 0)
    args = inputs(2, width, torch.float64, nodes)
    actual = grid.results("triton", args, g, torch.zeros(nodes, 2, width, dtype=torch.float64), penalty=penalty)
    assert [t.numel() for t in actual] == [0, 0, 0, 2, 2]
    assert all((t == 0).all() for t in actual)
    assert ops.plap_solve(args[1].detach(), g, 1.5, 1.0, penalty=penalty, backend="triton").numel() == 0


def test_graph_without_edges_returns_the_source() -> None:
    g, f, y = Graph(torch.empty(2, 0, dtype=torch.int64), 3), torch.randn(3, 2), torch.randn(3, 2)
    torch.testing.assert_close(ops.plap_step(f, y, g, 1.5, 1.0, backend="triton"), y)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_many_steps_in_one_call_are_single_steps(dtype: torch.dtype) -> None:
    g, y = graph("self_loops"), torch.randn(NODES, 3, dtype=dtype)
    f = y.float()
    for _ in range(3):
        f = ops.plap_step(f, y.float(), g, 1.2, 1.0, penalty="nldiff", backend="triton")
    solved = ops.plap_solve(y, g, 1.2, 1.0, penalty="nldiff", warmup=2, steps=1, backend="triton")
    # The last step starts from what the others stored.
    torch.testing.assert_close(solved.float(), f, **({"rtol": 0, "atol": 0} if dtype == torch.float32 else BFLOAT16))


def test_early_stop_inside_the_call_is_that_of_the_reference() -> None:
    g, y = graphs.graph("isolated"), torch.randn(11, 2, 2, dtype=torch.float64)
    options: dict[str, Any] = {"warmup": 20, "steps": 1, "tol": 0.1, "return_info": True}
    results = [ops.plap_solve(y, g, 1.5, 0.3, backend=name, **options) for name in ("reference", "triton")]
    (f, expected), (h, actual) = results
    assert 2 < int(actual.steps) == int(expected.steps) < 20
    torch.testing.assert_close(h, f, rtol=1e-12, atol=1e-12)


def test_implicit_gradient_is_that_of_the_reference() -> None:
    g = graphs.graph("directed_weighted_loops", 5)
    y = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    options = {"warmup": 15, "tol": 1e-6, "grad": "implicit"}
    results = []
    for name in ("reference", "triton"):
        out = ops.plap_solve(y, g, 1.5, 8.0, backend=name, **options)
        results.append(torch.autograd.grad(out.square().sum(), y)[0])
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


def test_same_bits_on_every_run() -> None:
    g, args = graph("directed_weighted_loops"), inputs(1, 5, torch.float32)
    a, b = (grid.results("triton", args, g, torch.ones(NODES, 1, 5)) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_operators_keep_their_contracts() -> None:
    g, penalty = graphs.graph("directed_weighted_loops", num_nodes=3), 3
    t = g.transpose()
    weight, dinv, _ = g.values(torch.float64)
    arrays = (g.rowptr, g.col, weight, t.rowptr, t.col, t.values(torch.float64)[0], dinv)
    f, y = (torch.randn(3, 1, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    p, mu = (torch.tensor([v], dtype=torch.float64, requires_grad=True) for v in (1.4, 0.5))
    kernels = torch.ops.plufg_triton
    torch.library.opcheck(kernels.plap_step.default, (f, y, *arrays, p, mu, 0.0, penalty, 0.5))
    kept = [t.detach() for t in kernels.plap_step(f, y, *arrays, p, mu, 0.0, penalty, 0.5)]
    for need_p in (True, False):
        args = (y.detach(), f.detach(), *kept, *arrays, p.detach(), 0.0, penalty, 0.5, need_p)
        torch.library.opcheck(kernels.plap_step_backward.default, args)
    # The derivative by p of signals that take several blocks of channels comes by another way.
    wide = torch.randn(3, 1, 130, dtype=torch.float64)
    kept = kernels.plap_step(wide, wide, *arrays, p.detach(), mu.detach(), 0.0, 0, 0.0)
    args = (wide, wide, *kept, *arrays, p.detach(), 0.0, 0, 0.0, True)
    torch.library.opcheck(kernels.plap_step_backward.default, args)
    torch.library.opcheck(
        kernels.plap_steps.default, (y.detach(), *arrays, p.detach(), mu.detach(), 0.0, penalty, 0.5, 2, 1e-3)
    )


def test_compiled_graph_equals_eager() -> None:
    g = graphs.graph("weighted", 5)
    y = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    p = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)

    def run(y: Tensor, p: Tensor) -> Tensor:
        return ops.plap_solve((2 * y).t().contiguous().t(), g, p, 1.0, warmup=1, steps=2, backend="triton").sin()

    results = []
    for function in (run, torch.compile(run, fullgraph=True)):
        out = function(y, p)
        results.append((out, *torch.autograd.grad(out.square().sum(), (y, p))))
    torch.testing.assert_close(*results)


def test_no_form_of_a_kernel_was_left_out(launched: set[tuple[Any, ...]]) -> None:
    # Last in the file: what the tests before it have launched.
    missing = [
        (name, form)
        for name in triton_forms.FAMILY["plap"]
        for form in triton_forms.forms(name)
        if (name, *form.items()) not in launched
    ]
    assert not missing
