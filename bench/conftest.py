"""What the microbenchmarks share: graphs, and the three things that can be timed of a differentiable operator."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor

from plufg_fast import Graph
from plufg_fast.bench.graphs import KINDS

Timed = Callable[..., None]


@pytest.fixture(scope="session")
def make_graph() -> Callable[[str, int, int], Graph]:
    return cache(lambda kind, nodes, edges: KINDS[kind](nodes, edges))


@pytest.fixture(params=["forward", "backward", "both"])
def timed(request: pytest.FixtureRequest, benchmark: Callable[..., object]) -> Timed:
    """Benchmark an operator: its value, its gradients by all inputs, or one after the other."""

    def run(operator: Callable[..., Tensor], *inputs: Tensor) -> None:
        if request.param == "forward":
            benchmark(operator, *inputs)
            return
        leaves = [value.clone().requires_grad_() for value in inputs]
        out = operator(*leaves)
        grad = torch.randn_like(out)
        if request.param == "backward":
            benchmark(lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True))
        else:
            benchmark(lambda: torch.autograd.grad(operator(*leaves), leaves, grad))

    return run
