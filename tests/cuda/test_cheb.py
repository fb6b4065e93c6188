"""The CUDA kernels of the recurrence on a GPU: the cases of the CPU kernels, and what only a device can show."""

import graphs
import pytest
import torch
from cheb_cases import KINDS, analysis, check_against_reference, operator, recurrence, synthesis
from torch import Tensor

from plufg_fast import Framelet
from plufg_fast.ops import cheb
from plufg_fast.ops.cheb.reference import Laplacian

pytestmark = pytest.mark.cuda


def on(device: str, lap: Laplacian) -> Laplacian:
    return Laplacian(*(t if t is None else t.to(device) for t in lap))


def hub(n: int = 1200) -> Laplacian:
    """A row that takes several pieces."""
    return cheb.laplacian(graphs.graph("hub", n), torch.float32)


@pytest.mark.parametrize("degree", range(8))
@pytest.mark.parametrize("kind", KINDS)
def test_parity_on_every_graph_and_degree(device, kind: str, degree: int) -> None:
    for dtype in (torch.float32, torch.float64):
        for index in (torch.int32, torch.int64):
            check_against_reference(operator(kind, dtype, index), 9, 3, recurrence(degree), dtype, device)


@pytest.mark.parametrize("filters", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("channels", [1, 2, 3, 7, 17, 32, 33, 64, 130, 515])
def test_parity_of_every_width_and_number_of_filters(device, channels: int, filters: int) -> None:
    for dtype in (torch.float32, torch.float64):
        lap = operator("directed_weighted_loops", dtype, torch.int32)
        check_against_reference(lap, channels, filters, recurrence(4, "chebyshev"), dtype, device)


@pytest.mark.parametrize("channels", [3, 64])
def test_parity_of_a_long_row(device, channels: int) -> None:
    lap = hub()
    assert lap.rowptr.diff().max() > 1024
    check_against_reference(lap, channels, 3, recurrence(5, "chebyshev"), torch.float32, device)


@pytest.mark.parametrize("kind", ["unweighted", "mute"])
def test_gradients_first_and_second(device, kind: str) -> None:
    lap, steps = on(device, operator(kind, index=torch.int32, scaled=True, n=8)), recurrence(4)
    x = torch.randn(8, 2, dtype=torch.float64, device=device, requires_grad=True)
    z = torch.randn(8, 2, 2, dtype=torch.float64, device=device, requires_grad=True)
    w = torch.randn(2, 5, dtype=torch.float64, device=device, requires_grad=True)
    functions = [lambda x, w: analysis(x, lap, w, steps)]
    functions += [lambda z, w, s=s: synthesis(z, lap, w, steps, s) for s in (True, False)]
    for function, signal in zip(functions, (x, z, z), strict=True):
        assert torch.autograd.gradcheck(function, (signal, w))
        assert torch.autograd.gradgradcheck(function, (signal, w))


def both(x: Tensor, lap: Laplacian, weights: Tensor) -> list[Tensor]:
    z = analysis(x, lap, weights, recurrence(5))
    return [z, *(synthesis(z, lap, weights, recurrence(5), s) for s in (True, False))]


@pytest.mark.parametrize("channels", [3, 64])
def test_same_bits_for_every_run(device, channels: int) -> None:
    lap, weights = on(device, hub()), torch.randn(3, 6, device=device)
    x = torch.randn(1200, channels, device=device)
    runs = [both(x, lap, weights) for _ in range(5)]
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], other, strict=True))


def test_captured_graph_replays_with_other_values(device) -> None:
    lap, weights, x = on(device, hub()), torch.randn(3, 6, device=device), torch.randn(1200, 64, device=device)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        both(x, lap, weights)
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        out = both(x, lap, weights)
    for _ in range(2):
        values = torch.randn_like(x)
        x.copy_(values)
        captured.replay()
        assert all(torch.equal(a, b) for a, b in zip(both(values, lap, weights), out, strict=True))


def test_framelets_are_captured_once_their_coefficients_are_on_the_device(device) -> None:
    framelet, g, x = Framelet("haar", levels=2), graphs.graph("weighted").to(device), torch.randn(11, 3, device=device)

    def run(x: Tensor) -> Tensor:
        return framelet.synthesis(framelet.analysis(x, g).sin(), g, sum_bands=False)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run(x)
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        out = run(x)
    values = torch.randn_like(x)
    x.copy_(values)
    captured.replay()
    assert torch.equal(run(values), out)
