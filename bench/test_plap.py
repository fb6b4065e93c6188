"""The p-Laplacian step and its solver: forward, and forward with backward."""

import pytest
import torch
from power_law import power_law

from plufg_fast import ops
from plufg_fast.ops import backend

SERVING = [name for name, devices in backend.available().items() if "plap" in devices["cpu"]]


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("channels", [32, 64])
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "both"])
@pytest.mark.parametrize("name", SERVING)
def test_step(benchmark, name: str, backward: bool, channels: int, p: float) -> None:
    g = power_law(2_000, 20_000)
    y = torch.randn(g.num_nodes, channels, requires_grad=backward)

    def run() -> None:
        out = ops.plap_step(y, y, g, p, 1.0, backend=name)
        if backward:
            torch.autograd.grad(out.sum(), y)

    benchmark(run)


@pytest.mark.parametrize("bands", [1, 3])
@pytest.mark.parametrize("name", SERVING)
def test_solve(benchmark, name: str, bands: int) -> None:
    g = power_law(2_000, 20_000)
    y = torch.randn(g.num_nodes, bands, 32)
    benchmark(lambda: ops.plap_solve(y, g, 1.5, 1.0, backend=name))
