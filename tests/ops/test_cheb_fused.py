"""The compiled analysis and synthesis against the definition, and what torch expects of operators."""

from typing import Any

import graphs
import pytest
import torch
from cheb_cases import KINDS, adjacency, analysis, check_against_reference, flat, operator, recurrence, synthesis
from torch import Tensor

from plufg_fast import Graph, extension, ops
from plufg_fast.ops import cheb
from plufg_fast.ops.cheb.reference import Laplacian

pytestmark = pytest.mark.skipif(not extension.loaded(), reason=f"no extension: {extension.why_not()}")


@pytest.mark.parametrize("degree", range(8))
@pytest.mark.parametrize("kind", KINDS)
def test_parity_on_every_graph_and_degree(kind: str, degree: int) -> None:
    for dtype in (torch.float32, torch.float64):
        for index in (torch.int32, torch.int64):
            check_against_reference(operator(kind, dtype, index), 9, 3, recurrence(degree), dtype)


@pytest.mark.parametrize("filters", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("channels", [1, 2, 3, 7, 17, 32, 33, 64, 130, 515])
def test_parity_of_every_width_and_number_of_filters(channels: int, filters: int) -> None:
    for dtype in (torch.float32, torch.float64):
        lap = operator("directed_weighted_loops", dtype, torch.int32)
        check_against_reference(lap, channels, filters, recurrence(4, "chebyshev"), dtype)


@pytest.mark.parametrize("missing", [("left",), ("right",), ("diag",), ("weight", "weight_t"), Laplacian._fields[6:]])
@pytest.mark.parametrize("degree", [1, 3])
def test_parity_without_optional_arguments(degree: int, missing: tuple[str, ...]) -> None:
    lap = operator("mute", scaled=True)._replace(**dict.fromkeys(missing))
    check_against_reference(lap, 5, 2, recurrence(degree))


@pytest.mark.parametrize("kind", ["jacobi", "chebyshev", "monomial"])
def test_parity_of_general_recurrences(kind: str) -> None:
    check_against_reference(operator("mute", scaled=True), 6, 3, recurrence(6, kind))


def test_parity_of_a_hub_with_many_edges() -> None:
    # Rows longer than the distance neighbours are fetched ahead, and a last row that is one.
    w = adjacency("unweighted", 300)
    w[150, :], w[-1, :] = 1, 1
    lap = cheb.laplacian(graphs.from_dense(w), torch.float64)
    check_against_reference(lap, 40, 3, recurrence(5, "chebyshev"))


@pytest.mark.parametrize(("n", "channels"), [(0, 4), (5, 0), (0, 0), (1, 1)])
def test_parity_of_empty_signals(n: int, channels: int) -> None:
    for degree in (0, 1, 4):
        check_against_reference(operator("no_edges", n=n), channels, 2, recurrence(degree))


def test_node_that_does_not_receive_keeps_its_own_terms() -> None:
    # Its scaling is 0, so neighbours must not see it; its own row of L is the identity.
    lap, steps = operator("mute"), recurrence(5, "monomial")
    assert lap.right is not None
    assert lap.right[3] == 0
    x = torch.randn(23, 4, dtype=torch.float64)
    z = analysis(x, lap, torch.eye(6, dtype=torch.float64), steps)
    scale, shift, _ = steps[0]
    for k in range(6):
        torch.testing.assert_close(z[3, k], (scale + shift) ** k * x[3])
    loud = x.clone()
    loud[3] *= 1e6
    others = [i for i in range(23) if i != 3]
    assert torch.equal(analysis(loud, lap, torch.eye(6, dtype=torch.float64), steps)[others], z[others])


def test_self_loop_of_an_infinite_node_is_not_multiplied() -> None:
    lap = cheb.laplacian(graphs.from_dense(torch.diag(torch.tensor([1.0, 0.0]).double())), torch.float64)
    x = torch.tensor([[float("inf")], [1.0]], dtype=torch.float64)
    z = analysis(x, lap, torch.ones(1, 2, dtype=torch.float64), [(1.0, 0.0, 0.0)])
    assert z[0] == float("inf")


@pytest.mark.parametrize("kind", KINDS)
def test_synthesis_on_the_transpose_is_the_adjoint_of_analysis(kind: str) -> None:
    lap, steps, weights = operator(kind, scaled=True), recurrence(5), torch.randn(3, 6, dtype=torch.float64)
    x, z = torch.randn(23, 7, dtype=torch.float64), torch.randn(23, 3, 7, dtype=torch.float64)
    left = (analysis(x, lap, weights, steps) * z).sum()
    torch.testing.assert_close(left, (synthesis(z, lap.transpose(), weights, steps) * x).sum(), rtol=1e-11, atol=1e-11)


def test_inputs_are_not_written_and_need_no_alignment() -> None:
    lap, weights = operator("self_loops", torch.float32), torch.randn(3, 6)
    x, z = (torch.empty(23 * k * 33 + 1)[1:].view(23, k, 33).normal_() for k in (1, 3))
    copies = x.clone(), z.clone()
    analysis(x.view(23, 33), lap, weights, recurrence(5))
    for sum_bands in (True, False):
        synthesis(z, lap, weights, recurrence(5), sum_bands)
    assert torch.equal(x, copies[0])
    assert torch.equal(z, copies[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_same_bits_for_any_number_of_threads_and_every_run(dtype: torch.dtype) -> None:
    # Large enough for several threads, with one hub and many isolated nodes.
    sender = torch.randint(0, 1500, (30000,))
    receiver = torch.cat((torch.full((15000,), 700), torch.randint(0, 1500, (15000,))))
    lap = cheb.laplacian(Graph(torch.stack((sender, receiver)), 3000), dtype)
    x, z = torch.randn(3000, 33, dtype=dtype), torch.randn(3000, 3, 33, dtype=dtype)
    weights, steps = torch.randn(3, 6, dtype=dtype), recurrence(5)
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3, 1, 2):
            torch.set_num_threads(count)
            parts = (synthesis(z, lap, weights, steps, sum_bands) for sum_bands in (True, False))
            results.append((analysis(x, lap, weights, steps), *parts))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("degree", [0, 1, 4])
@pytest.mark.parametrize("kind", ["unweighted", "mute"])
def test_gradients_first_and_second(kind: str, degree: int) -> None:
    n, steps = 8, recurrence(degree)
    lap = operator(kind, index=torch.int32, scaled=True, n=n)
    x = torch.randn(n, 2, dtype=torch.float64, requires_grad=True)
    z = torch.randn(n, 2, 2, dtype=torch.float64, requires_grad=True)
    w = torch.randn(2, degree + 1, dtype=torch.float64, requires_grad=True)
    functions = [lambda x, w: analysis(x, lap, w, steps)]
    functions += [lambda z, w, s=s: synthesis(z, lap, w, steps, s) for s in (True, False)]
    for function, signal in zip(functions, (x, z, z), strict=True):
        assert torch.autograd.gradcheck(function, (signal, w))
        assert torch.autograd.gradgradcheck(function, (signal, w))


@pytest.mark.parametrize("wanted", ["signal", "weights"])
def test_gradient_of_one_input_alone(wanted: str) -> None:
    lap, steps = operator("weighted"), recurrence(2)
    for run, shape in ((analysis, (23, 4)), (synthesis, (23, 2, 4))):
        signal = torch.randn(shape, dtype=torch.float64, requires_grad=wanted == "signal")
        weights = torch.randn(2, 3, dtype=torch.float64, requires_grad=wanted == "weights")
        # The gradient of a sum is expanded, not contiguous.
        run(signal, lap, weights, steps).sum().backward()
        assert (signal.grad is not None) == (wanted == "signal")
        assert (weights.grad is not None) == (wanted == "weights")


@pytest.mark.parametrize("sparse", [True, False], ids=["optional_missing", "complete"])
def test_opcheck(sparse: bool) -> None:
    lap = operator("unweighted" if sparse else "mute", scaled=not sparse)
    lap = lap._replace(left=None, right=None) if sparse else lap
    weights = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    x = torch.randn(23, 3, dtype=torch.float64, requires_grad=True)
    z = torch.randn(23, 2, 3, dtype=torch.float64, requires_grad=True)
    steps = flat(recurrence(3))
    torch.library.opcheck(torch.ops.plufg.cheb_analysis.default, (x, *lap, weights, steps))
    for sum_bands in (True, False):
        torch.library.opcheck(torch.ops.plufg.cheb_synthesis.default, (z, *lap, weights, steps, sum_bands))


@pytest.mark.parametrize(("backend", "scales"), [("inductor", (1.1,)), ("aot_eager", (1.1, 0.7))])
def test_compiled_graph_equals_eager(backend: str, scales: tuple[float, ...]) -> None:
    g = graphs.graph("directed_weighted_loops")
    x = torch.randn(11, 2, 3, dtype=torch.float64, requires_grad=True)
    c = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)

    def run(x: Tensor, c: Tensor, scale: float) -> Tensor:
        # Transposed, so that inputs and gradients arrive with other strides than eagerly.
        z = ops.cheb_analysis((2 * x).transpose(1, 2).contiguous().transpose(1, 2), g, c, scale, "cpp")
        return ops.cheb_synthesis(z.sin(), g, c, scale, False, "cpp")

    compiled = torch.compile(run, fullgraph=True, backend=backend)
    for scale in scales:
        results = [f(x, c, scale) for f in (run, compiled)]
        grads = [torch.autograd.grad(out.square().sum(), (x, c)) for out in results]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*grads)


@pytest.mark.parametrize("filters", [1, 2])
def test_gradients_of_the_weights_are_the_same_bits_for_any_number_of_threads(filters: int) -> None:
    num_nodes = 40001
    ring = torch.arange(num_nodes)
    g = Graph(torch.stack((ring, ring.roll(1))), num_nodes)
    x = torch.randn(num_nodes, 3, generator=torch.Generator().manual_seed(0))
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            c = torch.full((filters, 4), 0.3, requires_grad=True)
            found += torch.autograd.grad(ops.cheb_analysis(x, g, c, backend="cpp").square().sum(), c)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*found)


def test_public_functions_use_the_fused_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    g, c = graphs.graph("weighted"), torch.randn(2, 4, dtype=torch.float64)
    x, z = torch.randn(11, 2, 3, dtype=torch.float64), torch.randn(11, 2, 2, 3, dtype=torch.float64)
    monkeypatch.setattr(cheb.register.compiled, "step", None)
    parts = [ops.cheb_synthesis(z, g, c, 1.2, sum_bands, "cpp") for sum_bands in (True, False)]
    expected = [ops.cheb_synthesis(z, g, c, 1.2, sum_bands, "reference") for sum_bands in (True, False)]
    parts.append(ops.cheb_analysis(x, g, c, 1.2, "cpp"))
    expected.append(ops.cheb_analysis(x, g, c, 1.2, "reference"))
    for a, b in zip(parts, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"signal": torch.ones(23)}, r"{0} must have shape {1}, got Float \[23\]"),
        ({"rowptr": torch.zeros(3, dtype=torch.int64)}, r"rowptr must be .* Long \[24\], got Long \[3\]"),
        ({"diag": torch.ones(23)}, "diag must hold one value of the dtype of {0} per node"),
        ({"weights": torch.ones(2, 4)}, r"weights must have dtype of {0} and shape \[R, n \+ 1\].* got Float \[2, 4\]"),
        ({"weights": torch.ones(4, dtype=torch.float64)}, r"weights must have .* got Double \[4\]"),
        ({"weights": torch.ones(0, 4, dtype=torch.float64)}, r"weights must have .* got Double \[0, 4\]"),
        ({"weights": torch.ones(4, 2, dtype=torch.float64).t()}, "weights must be contiguous"),
        ({"recurrence": [1.0] * 8}, "recurrence must hold three numbers for each of the n steps, 9, got 8"),
    ],
)
def test_bad_argument_is_named(change: dict[str, Any], expected: str) -> None:
    lap = operator("weighted")._asdict()
    rest = {"weights": torch.ones(2, 4, dtype=torch.float64), "recurrence": flat(recurrence(3))}
    for name, signal, shape in (("cheb_analysis", (23, 3), "x"), ("cheb_synthesis", (23, 2, 3), "z")):
        tail = {"sum_bands": True} if name == "cheb_synthesis" else {}
        args = {"signal": torch.ones(signal, dtype=torch.float64)} | lap | rest | tail | change
        brackets = r"\[N, C\]" if name == "cheb_analysis" else r"\[N, R, C\]"
        with pytest.raises(RuntimeError, match=f"plufg::{name}: {expected.format(shape, brackets)}"):
            getattr(torch.ops.plufg, name)(*args.values())


def test_bands_have_to_match_the_filters() -> None:
    z, weights = torch.ones(23, 3, 2, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)
    with pytest.raises(RuntimeError, match=r"z must have a band for each of the 2 filters, got Double \[23, 3, 2\]"):
        synthesis(z, operator("weighted"), weights, [])
