"""The compiled Chebyshev step against a dense computation, and what torch expects of an operator."""

from typing import Any

import pytest
import torch
from torch import Tensor

from plufg_fast import extension

pytestmark = pytest.mark.skipif(not extension.loaded(), reason=f"no extension: {extension.why_not()}")

# Relative to the largest entry. Measured worst of the parity cases, baseline and AVX2: 1.9e-7 and 3.5e-16.
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12}
NAMES = ("x", "prev", "rowptr", "col", "weight", "rowptr_t", "col_t", "weight_t", "left", "right", "diag")


def csr(adjacency: Tensor, index: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Row pointers, columns and weights of a dense matrix."""
    row, col = adjacency.nonzero(as_tuple=True)
    counts = torch.bincount(row, minlength=adjacency.size(0))
    rowptr = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
    return rowptr.to(index), col.to(index), adjacency[row, col].contiguous()


def random_adjacency(n: int, density: float = 0.2) -> Tensor:
    """Directed and weighted, with self-loops, an isolated node, and a node that hears every other one."""
    a = torch.rand(n, n, dtype=torch.float64) * (torch.rand(n, n) < density)
    if n > 2:
        a[0], a[:, 0] = 0, 0
        a[1] = torch.rand(n, dtype=torch.float64) + 0.1
        a[2, 2] = 1.5
    return a


def arguments(
    adjacency: Tensor,
    channels: int,
    dtype: torch.dtype = torch.float64,
    index: torch.dtype = torch.int64,
    weighted: bool = True,
    scaled: bool = True,
    prev: bool = True,
) -> dict[str, Any]:
    adjacency = adjacency.to(dtype)
    n = adjacency.size(0)
    rowptr, col, weight = csr(adjacency, index)
    rowptr_t, col_t, weight_t = csr(adjacency.t(), index)
    degree = adjacency.sum(1)
    left = torch.where(degree > 0, degree.clamp(min=1e-6).rsqrt(), 0)
    return {
        "x": torch.randn(n, channels, dtype=dtype),
        "prev": torch.randn(n, channels, dtype=dtype) if prev else None,
        "rowptr": rowptr,
        "col": col,
        "weight": weight if weighted else None,
        "rowptr_t": rowptr_t,
        "col_t": col_t,
        "weight_t": weight_t if weighted else None,
        "left": left if scaled else None,
        "right": torch.rand(n, dtype=dtype) if scaled else None,
        "diag": torch.rand(n, dtype=dtype) if scaled else None,
        "alpha": 1.7,
        "beta": -0.3,
        "gamma": -0.9,
    }


def step(args: dict[str, Any]) -> Tensor:
    return torch.ops.plufg.cheb_step(*args.values())


def dense_step(args: dict[str, Any], adjacency: Tensor) -> Tensor:
    """The definition, in double precision."""
    x = args["x"].double()
    ones = x.new_ones(x.size(0), 1)
    left, right, diag = (
        ones if args[name] is None else args[name].double().view(-1, 1) for name in ("left", "right", "diag")
    )
    a = adjacency.to(args["x"].dtype).double() if args["weight"] is not None else (adjacency != 0).double()
    a = a - torch.diag(a.diagonal())
    out = args["alpha"] * (diag * x - left * (a @ (right * x))) + args["beta"] * x
    return out if args["prev"] is None else out + args["gamma"] * args["prev"].double()


def assert_same(got: Tensor, expected: Tensor) -> None:
    scale = expected.abs().max().item() if expected.numel() else 1.0
    tolerance = TOLERANCE[got.dtype] * max(scale, 1.0)
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [1, 2, 3, 7, 17, 31, 32, 33, 64, 100, 130])
def test_parity_with_dense(channels, dtype, index, weighted):
    torch.manual_seed(channels)
    adjacency = random_adjacency(40)
    args = arguments(adjacency, channels, dtype, index, weighted)
    out = step(args)
    assert out.dtype == dtype
    assert_same(out, dense_step(args, adjacency))


@pytest.mark.parametrize("prev", [True, False])
@pytest.mark.parametrize("scaled", [True, False])
def test_parity_without_optional_arguments(scaled, prev):
    torch.manual_seed(0)
    adjacency = random_adjacency(25)
    args = arguments(adjacency, 9, scaled=scaled, prev=prev)
    assert_same(step(args), dense_step(args, adjacency))


def test_parity_with_nan_gamma_when_prev_is_missing():
    torch.manual_seed(0)
    adjacency = random_adjacency(10)
    args = arguments(adjacency, 4, prev=False) | {"gamma": float("nan")}
    assert_same(step(args), dense_step(args, adjacency))


@pytest.mark.parametrize("name", ["left", "right", "diag"])
def test_parity_with_one_scaling_alone(name):
    torch.manual_seed(0)
    adjacency = random_adjacency(25)
    args = arguments(adjacency, 9)
    args |= {other: None for other in ("left", "right", "diag") if other != name}
    assert_same(step(args), dense_step(args, adjacency))


@pytest.mark.parametrize(("n", "channels"), [(0, 5), (6, 0), (6, 5), (1, 1)])
def test_parity_without_edges(n, channels):
    adjacency = torch.zeros(n, n, dtype=torch.float64)
    args = arguments(adjacency, channels)
    out = step(args)
    assert out.shape == (n, channels)
    assert_same(out, dense_step(args, adjacency))


def test_parity_when_all_neighbours_are_self_loops():
    adjacency = torch.eye(5, dtype=torch.float64) * 3
    args = arguments(adjacency, 6) | {"diag": None}
    torch.testing.assert_close(step(args), 1.4 * args["x"] - 0.9 * args["prev"])


def test_self_loop_of_an_infinite_node_is_not_multiplied():
    adjacency = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    args = arguments(adjacency, 3, prev=False, scaled=False)
    args["x"][0] = float("inf")
    assert (step(args)[0] == float("inf")).all()


def test_isolated_node_gets_the_identity_row():
    adjacency = random_adjacency(12)
    args = arguments(adjacency, 5, prev=False) | {"diag": None, "alpha": 1.0, "beta": 0.0}
    assert args["left"][0] == 0
    assert torch.equal(step(args)[0], args["x"][0])


def test_input_that_is_not_aligned_to_a_vector():
    torch.manual_seed(0)
    adjacency = random_adjacency(20)
    args = arguments(adjacency, 33, torch.float32)
    for name in ("x", "prev"):
        shifted = torch.empty(args[name].numel() + 1)[1:].view_as(args[name])
        args[name] = shifted.copy_(args[name])
    assert_same(step(args), dense_step(args, adjacency))


def test_inputs_are_not_written():
    args = arguments(random_adjacency(20), 17)
    before = {name: value.clone() for name, value in args.items() if isinstance(value, Tensor)}
    step(args)
    assert all(torch.equal(args[name], value) for name, value in before.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_same_bits_for_any_number_of_threads_and_every_run(dtype):
    torch.manual_seed(0)
    # Large enough for several threads; the rows are as uneven as can be: one hub, many empty ones.
    n, edges = 3000, 60000
    row = torch.cat((torch.full((edges // 2,), n // 3), torch.randint(0, n // 2, (edges // 2,)))).sort().values
    col = torch.randint(0, n, (edges,))
    rowptr = torch.cat((torch.zeros(1, dtype=torch.int64), torch.bincount(row, minlength=n).cumsum(0)))
    weight = torch.rand(edges, dtype=dtype)
    x, prev = torch.randn(2, n, 33, dtype=dtype)
    graph = (rowptr, col, weight)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3, 1, 2):
            torch.set_num_threads(count)
            args = (x, prev, *graph, *graph, None, None, None, 2.0, -1.0, -1.0)
            results.append(torch.ops.plufg.cheb_step(*args))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(results[0], other) for other in results[1:])
    # Which is also right, not only repeatable.
    message = weight.double().view(-1, 1) * x.double()[col] * (row != col).view(-1, 1)
    expected = 2 * (x.double() - torch.zeros_like(x, dtype=torch.float64).index_add(0, row, message))
    # The hub sums 30000 terms in order: measured 6.7e-6 of the largest entry in float32, 3.0e-16 in float64.
    loose = {torch.float32: 2e-5, torch.float64: 1e-12}[dtype] * expected.abs().max().item()
    torch.testing.assert_close(results[0].double(), expected - x - prev, rtol=0, atol=loose)


def differentiable(**options: Any) -> dict[str, Any]:
    torch.manual_seed(3)
    args = arguments(random_adjacency(7, 0.4), 3, **options)
    for name in ("x", "prev"):
        if args[name] is not None:
            args[name].requires_grad_()
    return args


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_gradients_first_and_second(index, weighted):
    args = differentiable(index=index, weighted=weighted)

    def run(x: Tensor, prev: Tensor) -> Tensor:
        return step(args | {"x": x, "prev": prev})

    assert torch.autograd.gradcheck(run, (args["x"], args["prev"]))
    assert torch.autograd.gradgradcheck(run, (args["x"], args["prev"]))


def test_gradient_without_prev():
    args = differentiable(prev=False)
    assert torch.autograd.gradcheck(lambda x: step(args | {"x": x}), (args["x"],))


@pytest.mark.parametrize("wanted", ["x", "prev"])
def test_gradient_of_one_input_alone(wanted):
    args = differentiable()
    for name in ("x", "prev"):
        args[name].requires_grad_(name == wanted)
    # The gradient of a sum is expanded, not contiguous.
    step(args).sum().backward()
    assert (args["x"].grad is not None) == (wanted == "x")
    assert (args["prev"].grad is not None) == (wanted == "prev")


def test_opcheck():
    args = differentiable()
    torch.library.opcheck(torch.ops.plufg.cheb_step.default, tuple(args.values()))
    args = differentiable(prev=False, weighted=False, scaled=False)
    torch.library.opcheck(torch.ops.plufg.cheb_step.default, tuple(args.values()))


def test_compiled_graph_equals_eager():
    args = differentiable()

    def run(x: Tensor, prev: Tensor) -> Tensor:
        # Transposed, so that the operator's inputs and gradients arrive with other strides than eagerly.
        return step(args | {"x": (2 * x).t().contiguous().t().contiguous(), "prev": prev}).t().sin()

    x, prev = args["x"], args["prev"]
    eager = run(x, prev)
    eager_grads = torch.autograd.grad(eager.square().sum(), (x, prev))
    compiled = torch.compile(run, fullgraph=True)(x, prev)
    compiled_grads = torch.autograd.grad(compiled.square().sum(), (x, prev))
    torch.testing.assert_close(compiled, eager)
    torch.testing.assert_close(compiled_grads, eager_grads)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"x": torch.ones(6)}, r"x must have shape \[N, C\], got Float \[6\]"),
        ({"x": torch.ones(6, 4, dtype=torch.float16)}, "x must be float32 or float64, got Half"),
        ({"x": torch.ones(4, 6, dtype=torch.float64).t(), "prev": None}, "x must be contiguous"),
        (
            {"prev": torch.ones(6, 3, dtype=torch.float64)},
            r"prev must have .* Double \[6, 4\], got Double \[6, 3\]",
        ),
        ({"prev": torch.ones(6, 4)}, r"prev must have dtype and shape of x.* got Float \[6, 4\]"),
        ({"rowptr": torch.zeros(7)}, "rowptr must be int32 or int64, got Float"),
        ({"rowptr": torch.zeros(6, dtype=torch.int64)}, r"rowptr must be .* Long \[7\], got Long \[6\]"),
        (
            {"rowptr": torch.zeros(7, dtype=torch.int64)},
            "rowptr must start at 0 and end at the number of edges",
        ),
        ({"rowptr_t": torch.zeros(7, dtype=torch.int64)}, "rowptr_t must start at 0 and end at"),
        ({"col": torch.zeros(3, dtype=torch.int32)}, "col must be .* of the dtype of rowptr"),
        ({"col_t": torch.zeros(1, dtype=torch.int64)}, r"col_t must be .* got Long \[1\]"),
        ({"weight": torch.ones(2, dtype=torch.float64)}, "weight must hold one value .* per edge"),
        ({"weight_t": None}, "weight and weight_t must be given together .* got only weight"),
        (
            {"left": torch.ones(6)},
            r"left must hold one value of the dtype of x per node, Double \[6\], got Float",
        ),
        ({"right": torch.ones(5, dtype=torch.float64)}, r"right must hold .* got Double \[5\]"),
        ({"diag": torch.ones(12, dtype=torch.float64)[::2]}, "diag must be contiguous"),
    ],
)
def test_bad_argument_is_named(change, expected):
    torch.manual_seed(0)
    args = arguments(random_adjacency(6, 0.5), 4) | change
    with pytest.raises(RuntimeError, match=f"plufg::cheb_step: {expected}"):
        step(args)


def test_schema_names_its_arguments():
    schema = torch.ops.plufg.cheb_step.default._schema
    assert tuple(a.name for a in schema.arguments) == (*NAMES, "alpha", "beta", "gamma")
