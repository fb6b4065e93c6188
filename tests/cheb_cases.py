"""Analysis and synthesis beside the definition: cases for every device that has kernels for them."""

from typing import Any

import graphs
import torch
from torch import Tensor

from plufg_fast import ops
from plufg_fast.ops import cheb
from plufg_fast.ops.cheb import reference
from plufg_fast.ops.cheb.reference import Laplacian, Recurrence

# Relative to the largest entry. Measured worst of the parity cases, baseline and AVX2: 3.3e-7 and 8.3e-16.
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12}
KINDS = [*graphs.ALL, "mute", "no_edges"]


def adjacency(kind: str, n: int = 23) -> Tensor:
    """A dense weight matrix; "mute" nodes receive nothing and so have degree 0, but send."""
    if kind == "no_edges":
        return torch.zeros(n, n, dtype=torch.float64)
    w = graphs.dense("directed_weighted_loops" if kind == "mute" else kind, n)
    if kind == "mute":
        w[3], w[7] = 0, 0
    return w


def operator(
    kind: str, dtype: torch.dtype = torch.float64, index: torch.dtype = torch.int64, scaled: bool = False, n: int = 23
) -> Laplacian:
    """The normalised Laplacian of a graph; `scaled` puts three unrelated scalings into it."""
    lap = cheb.laplacian(graphs.from_dense(adjacency(kind, n)), dtype)
    if scaled:
        left, right, diag = torch.rand(3, n, dtype=dtype)
        lap = lap._replace(left=left, right=right, diag=diag)
    indices = {name: getattr(lap, name).to(index) for name in ("rowptr", "col", "rowptr_t", "col_t")}
    return lap._replace(**indices)


def recurrence(degree: int, kind: str = "jacobi") -> Recurrence:
    steps = {
        "jacobi": lambda: ops.jacobi_recurrence(degree, 0.3, -0.4),
        "chebyshev": lambda: ops.chebyshev_recurrence(degree),
        "monomial": lambda: ops.monomial_recurrence(degree, -1.0),
    }[kind]()
    return cheb._shifted(steps, 1.1)


def flat(steps: Recurrence) -> list[float]:
    return [number for step in steps for number in step]


def analysis(x: Tensor, lap: Laplacian, weights: Tensor, steps: Recurrence) -> Tensor:
    return torch.ops.plufg.cheb_analysis(x, *lap, weights, flat(steps))


def synthesis(z: Tensor, lap: Laplacian, weights: Tensor, steps: Recurrence, sum_bands: bool = True) -> Tensor:
    return torch.ops.plufg.cheb_synthesis(z, *lap, weights, flat(steps), sum_bands)


def exact(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def assert_same(got: Tensor, expected: Tensor) -> None:
    atol = TOLERANCE[got.dtype] * max(expected.abs().max().item() if expected.numel() else 0.0, 1e-3)
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=atol)


def check_against_reference(
    lap: Laplacian,
    channels: int,
    filters: int,
    steps: Recurrence,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
) -> None:
    """Analysis and both kinds of synthesis on a device, against the definition in double precision."""
    n = lap.rowptr.numel() - 1
    x, z = torch.randn(n, channels, dtype=dtype), torch.randn(n, filters, channels, dtype=dtype)
    weights = torch.randn(filters, len(steps) + 1, dtype=dtype)
    wide = Laplacian(*map(exact, lap))

    def apply(x: Tensor, prev: Tensor | None, alpha: float, beta: float, gamma: float) -> Tensor:
        return reference.step(x, prev, wide, alpha, beta, gamma)

    there = Laplacian(*(t if t is None else t.to(device) for t in lap))
    got = analysis(x.to(device), there, weights.to(device), steps).cpu()
    assert got.dtype == dtype
    assert got.shape == (n, filters, channels)
    assert_same(got, reference.analysis(x.double(), apply, weights.double(), steps))
    for sum_bands in (True, False):
        got = synthesis(z.to(device), there, weights.to(device), steps, sum_bands).cpu()
        assert got.dtype == dtype
        assert_same(got, reference.synthesis(z.double(), apply, weights.double(), steps, sum_bands))
