"""What torch has to know of the compiled ``plufg::cheb_step`` beyond its kernels: its shape and its gradient.

To be imported only where the extension is loaded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import extension

if not extension.loaded():
    raise ImportError(f"plufg::cheb_step does not exist: {extension.why_not()}")


def _fake(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _x, _prev, *graph, alpha, beta, gamma = inputs
    ctx.save_for_backward(*graph)
    ctx.coefficients = alpha, beta, gamma


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The step is linear in x and prev, so its gradient is the step of the transposed operator.

    Graph, weights and scalings are constants: they get no gradient.
    """
    rowptr, col, weight, rowptr_t, col_t, weight_t, left, right, diag = ctx.saved_tensors
    alpha, beta, gamma = ctx.coefficients
    grad_x: Tensor | None = None
    grad_prev: Tensor | None = None
    if ctx.needs_input_grad[0]:
        grad_x = torch.ops.plufg.cheb_step(
            grad.contiguous(),
            None,
            *(rowptr_t, col_t, weight_t),
            *(rowptr, col, weight),
            *(right, left, diag),
            *(alpha, beta, 0.0),
        )
    if ctx.needs_input_grad[1]:
        grad_prev = gamma * grad
    return grad_x, grad_prev, *[None] * 12


torch.library.register_fake("plufg::cheb_step", _fake)
torch.library.register_autograd("plufg::cheb_step", _backward, setup_context=_setup_context)
