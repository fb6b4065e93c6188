"""Framelet filters: analysis and synthesis on every backend that serves this machine."""

import pytest
import torch
from power_law import power_law

from plufg_fast import ops
from plufg_fast.ops import backend

SERVING = [name for name, devices in backend.available().items() if "cheb" in devices["cpu"]]


@pytest.mark.parametrize("name", SERVING)
@pytest.mark.parametrize("channels", [32, 64])
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "both"])
def test_analysis_and_synthesis(benchmark, backward: bool, channels: int, name: str) -> None:
    g = power_law(2_000, 20_000)
    x, coeffs = torch.randn(g.num_nodes, channels, requires_grad=backward), torch.randn(3, 4)

    def run() -> None:
        out = ops.cheb_synthesis(ops.cheb_analysis(x, g, coeffs, backend=name), g, coeffs, backend=name)
        if backward:
            torch.autograd.grad(out.sum(), x)

    benchmark(run)
