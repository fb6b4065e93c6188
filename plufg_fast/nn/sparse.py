"""Sparse node features, such as bags of words: an input layer that takes them as they are.

Dense, the product of 18,333 nodes with 6,805 words of which they have under one in a hundred would take most of an
epoch. The networks of :mod:`plufg_fast.nn.models` take a sparse CSR matrix in place of ``x``.
"""

from __future__ import annotations

import warnings
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import Linear

from .. import checks

MAX_DENSITY: Final = 0.2
"""Above this share of non-zeros dense features are taken: an epoch is slower with sparse ones at 0.35 (Photo,
Computers) and faster at 0.10 (PubMed)."""


def sparse_features(x: Tensor) -> Tensor:
    """The matrix ``x`` in the layout, dense or sparse CSR, in which a linear layer on it is faster.

    Convert once and reuse the result: it also carries what the backward pass needs.
    """
    if x.layout != torch.strided or x.dim() != 2 or x.requires_grad or not x.is_floating_point():
        return x
    if torch.count_nonzero(x) > MAX_DENSITY * x.numel():
        return x
    with warnings.catch_warnings():
        # torch says once that the layout is new; what is used of it here is tested.
        warnings.filterwarnings("ignore", "Sparse CSR tensor support")
        csr = x.to_sparse_csr()
    # 32-bit indices are half the memory traffic, and what MKL takes as they are.
    small = max(csr.col_indices().numel(), *x.shape) < 2**31
    index = torch.int32 if small else torch.int64
    return _csr(csr.crow_indices().to(index), csr.col_indices().to(index), csr.values(), x.shape)


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Dropout of a dense tensor, or of the non-zeros of a sparse one: what is zero stays zero either way."""
    if not training or p == 0.0:
        return x
    if x.layout != torch.sparse_csr:
        # A compiler has no random bits, and makes dropout part of what is around it.
        return F.dropout(x, p) if torch.compiler.is_compiling() else x * _mask(x, p)
    values = x.values()
    dropped = _csr(x.crow_indices(), x.col_indices(), values * _mask(values, p), x.shape)
    _share_transpose(x, dropped)
    return dropped


def _mask(x: Tensor, p: float) -> Tensor:
    """What dropout multiplies ``x`` by, 0 or 1 / (1 - p).

    On the CPU torch's own dropout takes 20 ns a number; here 64 random bits serve four numbers, and p is a multiple of
    2**-16.
    """
    if x.device.type != "cpu":
        return F.dropout(torch.ones_like(x), p)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(torch.iinfo(torch.int64).min, None)
    dropped = min(round(p * 2**16), 2**16 - 1)
    kept = bits.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 2**15
    return kept.to(x.dtype).mul_(2**16 / (2**16 - dropped))


class InputLinear(Linear):  # type: ignore[misc]
    """:class:`torch_geometric.nn.Linear` that also takes a constant sparse CSR matrix."""

    def forward(self, x: Tensor) -> Tensor:
        """``[N, in_channels] -> [N, out_channels]``, dense."""
        if x.layout == torch.strided:
            out: Tensor = super().forward(x)
            return out
        if x.layout != torch.sparse_csr or x.requires_grad:
            raise checks.wrong_type("InputLinear", "x", "a dense tensor or a constant sparse CSR matrix", x)
        if x.dim() != 2 or x.size(1) != self.in_channels:
            raise checks.wrong_value("InputLinear", "x", f"of shape [N, {self.in_channels}]", x)
        product: Tensor = _Product.apply(x, self.weight)  # type: ignore[no-untyped-call]
        return product if self.bias is None else product + self.bias


class _Product(torch.autograd.Function):
    """``x @ weight.T`` of a sparse x; its gradient is a product with the transpose of x, which is kept sorted.

    Autocast passes it by: torch has no sparse products in half precision on the CPU.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.x = x
        with torch.autocast(x.device.type, enabled=False):
            return x @ weight.t()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        x: Tensor = ctx.x
        rowptr, col, order = _transpose(x)
        transposed = _csr(rowptr, col, x.values()[order], (x.size(1), x.size(0)))
        with torch.autocast(x.device.type, enabled=False):
            return None, (transposed @ grads[0]).t()


def _csr(rowptr: Tensor, col: Tensor, values: Tensor, shape: Any) -> Tensor:
    return torch.sparse_csr_tensor(rowptr, col, values, tuple(shape), check_invariants=False)


def _transpose(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Row pointers and columns of the transpose, and the order in which it has x's values.

    They hang on the tensor: a matrix of constant features is transposed once, however often it is used.
    """
    found: tuple[Tensor, Tensor, Tensor] | None = getattr(x, "_plufg_transpose", None)
    if found is None:
        rowptr, col = x.crow_indices(), x.col_indices()
        rows = torch.repeat_interleave(torch.arange(x.size(0), device=x.device, dtype=col.dtype), rowptr.diff())
        order = torch.sort(col, stable=True).indices
        ends = torch.bincount(col, minlength=x.size(1)).cumsum(0)
        found = F.pad(ends, (1, 0)).to(rowptr.dtype), rows[order], order
        x._plufg_transpose = found  # type: ignore[attr-defined]
    return found


def _share_transpose(x: Tensor, other: Tensor) -> None:
    """Give what :func:`_transpose` found to a matrix with the same non-zero places."""
    other._plufg_transpose = _transpose(x)  # type: ignore[attr-defined]
