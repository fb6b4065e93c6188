"""The CUDA kernel of a Chebyshev step, emulated, against the reference in torch."""

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from plufg_fast.ops.cheb import reference

# Relative to the largest entry, as on the CPU. Measured worst of these cases: 2.1e-7 and 2.4e-16.
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12}
ALPHA, BETA, GAMMA = 1.7, -0.3, -0.9


def problem(
    channels: int, dtype: torch.dtype, index: torch.dtype, optional: bool = True
) -> tuple[Tensor, Tensor | None, reference.Laplacian]:
    """A node without edges, one that hears all others, a self-loop; with or without all that may be left out."""
    n = 43
    dense = torch.rand(n, n) * (torch.rand(n, n) < 0.1)
    dense[0] = 0
    dense[1] = torch.rand(n) + 0.1
    dense[2, 2] = 1.5
    row, col = dense.nonzero(as_tuple=True)
    rowptr = torch.cat((torch.zeros(1, dtype=torch.int64), torch.bincount(row, minlength=n).cumsum(0)))
    left, right, diag = torch.rand(3, n, dtype=dtype)
    weight = dense[row, col].to(dtype)
    x, prev = torch.randn(2, n, channels, dtype=dtype)
    csr = (rowptr.to(index), col.to(index), weight if optional else None)
    scaling = (left, right, diag) if optional else (None, None, None)
    return x, prev if optional else None, reference.Laplacian(*csr, *csr, *scaling)


def emulate(kernels: ModuleType, x: Tensor, prev: Tensor | None, lap: reference.Laplacian, seed: int = 0) -> Tensor:
    def pointer(tensor: Tensor | None) -> int:
        return 0 if tensor is None else tensor.data_ptr()

    out = torch.full_like(x, torch.nan)
    names = "_".join(str(dtype).removeprefix("torch.") for dtype in (x.dtype, lap.rowptr.dtype))
    tensors = (x, prev, lap.rowptr, lap.col, lap.weight, lap.left, lap.right, lap.diag, out)
    kernels.seed(seed)
    run: Any = getattr(kernels, f"cheb_step_{names}")
    run(*map(pointer, tensors), *x.shape, lap.col.numel(), ALPHA, BETA, GAMMA)
    return out


def assert_reference(got: Tensor, x: Tensor, prev: Tensor | None, lap: reference.Laplacian) -> None:
    def double(tensor: Tensor | None) -> Tensor | None:
        return tensor.double() if tensor is not None and tensor.is_floating_point() else tensor

    wide = reference.Laplacian(*map(double, lap))
    expected = reference.step(x.double(), double(prev), wide, ALPHA, BETA, GAMMA)
    atol = TOLERANCE[got.dtype] * expected.abs().max().item()
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [1, 3, 17, 33, 130])
def test_parity(kernels, channels, dtype, index):
    args = problem(channels, dtype, index)
    assert_reference(emulate(kernels, *args), *args)


@pytest.mark.parametrize("channels", [5, 40])
def test_parity_without_what_may_be_left_out(kernels, channels):
    args = problem(channels, torch.float64, torch.int64, optional=False)
    assert_reference(emulate(kernels, *args), *args)


def test_same_bits_in_any_order_of_threads_and_blocks(kernels):
    args = problem(33, torch.float32, torch.int32)
    results = [emulate(kernels, *args, seed=seed) for seed in range(3)]
    assert all(torch.equal(results[0], other) for other in results[1:])


def test_what_ran_is_told_with_its_template_arguments(kernels):
    before = kernels.launches()
    emulate(kernels, *problem(40, torch.float64, torch.int64))
    # As `cuobjdump -symbols` and c++filt name it.
    name = "void plufg::cuda::cheb_step_kernel<double, long, 2>(plufg::ChebStep<double, long>, int)"
    assert kernels.launches()[name] == before.get(name, 0) + 1
