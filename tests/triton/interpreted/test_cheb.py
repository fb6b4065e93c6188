"""The Triton kernel of recurrences against the definition: the parity grid of the CPU kernels on small graphs."""

from typing import Any

import cheb_cases as grid
import graphs
import pytest
import torch
import triton_forms
from torch import Tensor

from plufg_fast import ops
from plufg_fast.ops import cheb, triton_rows
from plufg_fast.ops.cheb import reference
from plufg_fast.ops.cheb.reference import Laplacian, Recurrence

NODES = 8


@pytest.fixture(autouse=True)
def _triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the grid of the CPU kernels calls."""

    def analysis(x: Tensor, lap: Laplacian, weights: Tensor, steps: Recurrence) -> Tensor:
        return torch.ops.plufg_triton.cheb_analysis(x, *lap, weights, grid.flat(steps))

    def synthesis(z: Tensor, lap: Laplacian, weights: Tensor, steps: Recurrence, sum_bands: bool = True) -> Tensor:
        return torch.ops.plufg_triton.cheb_synthesis(z, *lap, weights, grid.flat(steps), sum_bands)

    monkeypatch.setattr(grid, "analysis", analysis)
    monkeypatch.setattr(grid, "synthesis", synthesis)


def operator(kind: str, dtype: torch.dtype = torch.float64, **options: Any) -> Laplacian:
    return grid.operator(kind, dtype, n=NODES, **options)


@pytest.mark.parametrize(("m", "kind"), list(enumerate(grid.KINDS)))
def test_parity_on_every_graph(m: int, kind: str) -> None:
    for dtype in (torch.float32, torch.float64):
        index = (torch.int32, torch.int64)[m % 2]
        grid.check_against_reference(operator(kind, dtype, index=index), 5, 2, grid.recurrence(3), dtype)


@pytest.mark.parametrize("degree", range(8))
def test_parity_of_every_degree(degree: int) -> None:
    grid.check_against_reference(operator("mute"), 2, 3, grid.recurrence(degree))


@pytest.mark.parametrize("channels", [1, 2, 17, 33, 130])
def test_parity_of_every_width(channels: int) -> None:
    for filters, dtype in ((1, torch.float32), (4, torch.float64)):
        lap = operator("directed_weighted_loops", dtype, index=torch.int32)
        grid.check_against_reference(lap, channels, filters, grid.recurrence(2, "chebyshev"), dtype)


@pytest.mark.parametrize(
    "missing", [(), ("left",), ("right",), ("diag",), ("weight", "weight_t"), Laplacian._fields[6:]]
)
def test_parity_without_optional_arguments(missing: tuple[str, ...]) -> None:
    lap = operator("mute", scaled=True)._replace(**dict.fromkeys(missing))
    grid.check_against_reference(lap, 3, 2, grid.recurrence(2))


def test_parity_of_a_row_over_many_windows() -> None:
    # A window that the row before begins in, several whole ones, one that is cut.
    w = grid.adjacency("unweighted", 4 * triton_rows.LIMIT)
    w[2:], w[1, :] = 0, 1
    lap = cheb.laplacian(graphs.from_dense(w), torch.float64)
    grid.check_against_reference(lap, 2, 1, grid.recurrence(1))


@pytest.mark.parametrize(("n", "channels"), [(0, 4), (5, 0), (1, 1)])
def test_parity_of_empty_signals(n: int, channels: int) -> None:
    for degree in (0, 1, 4):
        grid.check_against_reference(grid.operator("no_edges", n=n), channels, 2, grid.recurrence(degree))


def test_self_loop_of_an_infinite_node_is_not_multiplied() -> None:
    lap = cheb.laplacian(graphs.from_dense(torch.diag(torch.tensor([1.0, 0.0]).double())), torch.float64)
    x = torch.tensor([[float("inf")], [1.0]], dtype=torch.float64)
    assert grid.analysis(x, lap, torch.ones(1, 2, dtype=torch.float64), [(1.0, 0.0, 0.0)])[0] == float("inf")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_parity_of_half_precision_storage_with_float32(dtype: torch.dtype) -> None:
    g = graphs.graph("directed_weighted_loops", NODES)
    c = torch.randn(2, 5, requires_grad=True)
    x, z = torch.randn(NODES, 3).to(dtype), torch.randn(NODES, 2, 3).to(dtype)
    for run, signal in ((ops.cheb_analysis, x), (ops.cheb_synthesis, z)):
        results = []
        for name, kind in (("reference", torch.float32), ("triton", dtype)):
            given = signal.to(kind).requires_grad_()
            out = run(given, g, c, 1.1, backend=name)
            results.append([out, *torch.autograd.grad(out.float().square().sum(), (given, c))])
        assert [t.dtype for t in results[1]] == [dtype, dtype, torch.float32]
        for expected, actual in zip(*results, strict=True):
            # One rounding of the result, and one of the gradient that comes back.
            assert (expected - actual).abs().max() <= 2**-6 * expected.abs().max()


@pytest.mark.parametrize("kind", ["weighted", "directed_weighted_loops"])
def test_parity_of_gradients(kind: str) -> None:
    g, c = graphs.graph(kind, NODES), torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    x, z = (torch.randn(NODES, *shape, dtype=torch.float64, requires_grad=True) for shape in ((3,), (2, 3)))
    runs = [(x, lambda name: ops.cheb_analysis(x, g, c, 1.2, name))]
    runs += [(z, lambda name, s=s: ops.cheb_synthesis(z, g, c, 1.2, s, name)) for s in (True, False)]
    for signal, run in runs:
        a, b = (torch.autograd.grad(run(name).sin().sum(), (signal, c)) for name in ("reference", "triton"))
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_single_step_and_its_gradient() -> None:
    lap = operator("directed_weighted_loops", scaled=True)
    x, prev = (torch.randn(NODES, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    for before in (None, prev):
        wanted = (x,) if before is None else (x, prev)
        steps = (apply(x, before, lap, 0.7, -0.3, 0.4) for apply in (reference.step, cheb.triton.kernels.step))
        a, b = ((out, *torch.autograd.grad(out.sin().sum(), wanted)) for out in steps)
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_opcheck() -> None:
    lap, steps = grid.operator("directed", scaled=True, n=2), grid.flat(grid.recurrence(1))
    x, z = (torch.randn(2, *shape, dtype=torch.float64, requires_grad=True) for shape in ((2,), (1, 2)))
    weights = torch.randn(1, 2, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(torch.ops.plufg_triton.cheb_step.default, (x, None, *lap, 0.5, 0.3, 0.0))
    torch.library.opcheck(torch.ops.plufg_triton.cheb_analysis.default, (x, *lap, weights, steps))
    torch.library.opcheck(torch.ops.plufg_triton.cheb_synthesis.default, (z, *lap, weights, steps, False))


def test_compiled_graph_equals_eager() -> None:
    g = graphs.graph("directed_weighted_loops", 5)
    x = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    c = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)

    def run(x: Tensor, c: Tensor) -> Tensor:
        z = ops.cheb_analysis((2 * x).transpose(1, 2).contiguous().transpose(1, 2), g, c, 1.1, "triton")
        return ops.cheb_synthesis(z.sin(), g, c, 1.1, False, "triton")

    results = []
    for function in (run, torch.compile(run, fullgraph=True, backend="aot_eager")):
        out = function(x, c)
        results.append((out, *torch.autograd.grad(out.square().sum(), (x, c))))
    torch.testing.assert_close(*results)


def test_no_form_of_the_kernel_was_left_out(launched: set[tuple[Any, ...]]) -> None:
    # Last in the file: what the tests before it have launched.
    assert not [form for form in triton_forms.forms("recur") if ("recur", *form.items()) not in launched]
    every = {
        (name, given, window) for name in triton_forms.SCALES for given in (True, False) for window in (True, False)
    }
    assert every <= launched
