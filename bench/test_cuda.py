"""The operators on a GPU, each with the bytes that the model of docs/gpu.md says it has to move."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from plufg_fast import Graph, ops
from plufg_fast.ops import backend

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(
        not torch.cuda.is_available() or backend.available()["cpp"]["cuda"] != ["plap", "cheb"],
        reason="no CUDA device, or an extension without CUDA kernels",
    ),
]
NODES, EDGES = 1_000_000, 16_000_000


@pytest.fixture(params=[32, 64, 128])
def channels(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def g(make_graph: Callable[..., Graph]) -> Graph:
    return make_graph("power law", NODES, EDGES).to("cuda")


def timed(benchmark: Any, run: Callable[[], Any], per_edge: int, per_node: int, g: Graph) -> None:
    """Time until the device is done; bytes over time is to be compared with what a copy on it reaches."""

    def done() -> None:
        run()
        torch.cuda.synchronize()

    benchmark.extra_info["bytes"] = per_edge * g.num_edges + per_node * g.num_nodes
    benchmark(done)


def signal(channels: int) -> Tensor:
    return torch.randn(NODES, channels, device="cuda")


def test_copy(benchmark: Any, g: Graph, channels: int) -> None:
    x, out = signal(channels), signal(channels)
    timed(benchmark, lambda: out.copy_(x), 0, 8 * channels, g)


@pytest.mark.parametrize("p", [1.37, 1.5, 2.0])
def test_step(benchmark: Any, g: Graph, channels: int, p: float) -> None:
    f, y = signal(channels), signal(channels)
    timed(benchmark, lambda: ops.plap_step(f, y, g, p, 1.0, backend="cpp"), 4 * channels + 8, 20 * channels, g)


def test_step_backward(benchmark: Any, g: Graph, channels: int) -> None:
    f, y = signal(channels).requires_grad_(), signal(channels)
    out = ops.plap_step(f, y, g, 1.5, 1.0, backend="cpp")
    grad = torch.randn_like(out)
    run = lambda: torch.autograd.grad(out, f, grad, retain_graph=True)  # noqa: E731
    timed(benchmark, run, 8 * channels + 8, 32 * channels, g)


def test_analysis(benchmark: Any, g: Graph, channels: int) -> None:
    x, coeffs = signal(channels), torch.randn(2, 4, device="cuda")
    run = lambda: ops.cheb_analysis(x, g, coeffs, backend="cpp")  # noqa: E731
    timed(benchmark, run, 3 * (4 * channels + 8) + 12, 4 * channels * (2 + 3 + 3 + 2), g)
