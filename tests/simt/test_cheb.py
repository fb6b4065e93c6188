"""The CUDA kernels of the recurrence, emulated: the cases of the CPU kernels, and the order of threads."""

from types import ModuleType

import graphs
import pytest
import torch
from cheb_cases import (
    KINDS,
    adjacency,
    analysis,
    assert_same,
    check_against_reference,
    exact,
    operator,
    recurrence,
    synthesis,
)

from plufg_fast.ops import cheb
from plufg_fast.ops.cheb.reference import Laplacian

DTYPES, INDICES = (torch.float32, torch.float64), (torch.int32, torch.int64)


@pytest.mark.parametrize("degree", range(8))
@pytest.mark.parametrize("kind", KINDS)
def test_parity_on_every_graph_and_degree(emulated, kind: str, degree: int) -> None:
    for dtype in DTYPES:
        for index in INDICES:
            check_against_reference(operator(kind, dtype, index), 9, 3, recurrence(degree), dtype)


@pytest.mark.parametrize("filters", [1, 2, 4, 9])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 17, 32, 33, 64, 130, 300])
def test_parity_of_every_width_and_number_of_filters(emulated, channels: int, filters: int) -> None:
    for dtype in DTYPES:
        for index in INDICES:
            lap = operator("directed_weighted_loops", dtype, index, n=11)
            check_against_reference(lap, channels, filters, recurrence(4, "chebyshev"), dtype)


@pytest.mark.parametrize("missing", [("left",), ("right",), ("diag",), ("weight", "weight_t"), Laplacian._fields[6:]])
@pytest.mark.parametrize("degree", [1, 3])
def test_parity_without_optional_arguments(emulated, degree: int, missing: tuple[str, ...]) -> None:
    lap = operator("mute", scaled=True)._replace(**dict.fromkeys(missing))
    check_against_reference(lap, 5, 2, recurrence(degree))


@pytest.mark.parametrize("chunk", [1, 7, 16, 512])
@pytest.mark.parametrize("channels", [3, 8, 40])
def test_parity_wherever_a_long_row_is_cut(emulated, channels: int, chunk: int) -> None:
    # A first and a last row that are long, two that follow each other, rows without edges behind one.
    w = adjacency("unweighted", 40)
    w[[0, 20, 21, 39]] = 1
    w[22:24] = 0
    emulated.set_chunk_edges(chunk)
    lap = cheb.laplacian(graphs.from_dense(w), torch.float64)
    check_against_reference(lap, channels, 3, recurrence(5, "chebyshev"))


@pytest.mark.parametrize(("n", "channels"), [(0, 4), (5, 0), (0, 0), (1, 1)])
def test_parity_of_empty_signals(emulated, n: int, channels: int) -> None:
    for degree in (0, 1, 4):
        check_against_reference(operator("no_edges", n=n), channels, 2, recurrence(degree))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [1, 9, 32, 33, 64])
def test_parity_of_a_single_step(emulated, channels: int, dtype: torch.dtype) -> None:
    lap = operator("mute", dtype, torch.int32, scaled=True)
    x, prev = torch.randn(2, 23, channels, dtype=dtype)
    for before in (prev, None):
        got = torch.ops.plufg.cheb_step(x, before, *lap, 1.7, -0.3, -0.9)
        assert_same(got, cheb.reference.step(x.double(), exact(before), Laplacian(*map(exact, lap)), 1.7, -0.3, -0.9))


def test_self_loop_of_an_infinite_node_is_not_multiplied(emulated) -> None:
    lap = cheb.laplacian(graphs.from_dense(torch.diag(torch.tensor([1.0, 0.0]).double())), torch.float64)
    x = torch.tensor([[float("inf")], [1.0]], dtype=torch.float64)
    assert analysis(x, lap, torch.ones(1, 2, dtype=torch.float64), [(1.0, 0.0, 0.0)])[0] == float("inf")


@pytest.mark.parametrize("channels", [4, 33, 64])
def test_parity_of_signals_that_are_not_aligned_to_a_vector(emulated, channels: int) -> None:
    lap, weights, steps, both = operator("self_loops", torch.float32), torch.randn(3, 6), recurrence(5), []
    for shift in (0, 1):
        rng = torch.Generator().manual_seed(0)
        x, z = (torch.empty(23 * k * channels + shift)[shift:].normal_(generator=rng) for k in (1, 3))
        parts = [synthesis(z.view(23, 3, channels), lap, weights, steps, s) for s in (True, False)]
        both.append([analysis(x.view(23, channels), lap, weights, steps), *parts])
    # Each channel is summed in the same order, whichever vector it is part of.
    assert all(torch.equal(a, b) for a, b in zip(*both, strict=True))


@pytest.mark.parametrize("kind", ["unweighted", "mute"])
def test_gradients_first_and_second(emulated, kind: str) -> None:
    n, steps = 8, recurrence(2)
    lap = operator(kind, index=torch.int32, scaled=True, n=n)
    x = torch.randn(n, 2, dtype=torch.float64, requires_grad=True)
    w = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: analysis(x, lap, w, steps), (x, w))
    assert torch.autograd.gradgradcheck(lambda x, w: analysis(x, lap, w, steps), (x, w))


@pytest.mark.parametrize("channels", [3, 64])
def test_same_bits_in_any_order_of_threads_and_blocks(emulated: ModuleType, channels: int) -> None:
    lap, weights, steps, runs = operator("hub", torch.float32, n=40), torch.randn(3, 6), recurrence(5), []
    x, z = torch.randn(40, channels), torch.randn(40, 3, channels)
    for seed in range(3):
        emulated.seed(seed)
        parts = [synthesis(z, lap, weights, steps, s) for s in (True, False)]
        runs.append([analysis(x, lap, weights, steps), *parts])
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], other, strict=True))
