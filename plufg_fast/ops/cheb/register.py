"""What torch has to know of the ``cheb_*`` operators beyond their kernels: shapes and gradients.

The compiled ones are ``plufg::cheb_*``, those in Triton ``plufg_triton::cheb_*``; both take and return the same. Graph,
edge weights and scalings are constants: they get no gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..sums import sum_over_nodes
from . import reference
from .reference import Laplacian

_SIZE = len(Laplacian._fields)


class Kernels:
    """The operators of a namespace, called like the functions of `reference`; a recurrence is flat."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.ops = getattr(torch.ops, namespace)

    def step(self, x: Tensor, prev: Tensor | None, lap: Laplacian, alpha: float, beta: float, gamma: float) -> Tensor:
        """`reference.step`."""
        before = None if prev is None else prev.contiguous()
        out: Tensor = self.ops.cheb_step(x.contiguous(), before, *lap, alpha, beta, gamma)
        return out

    def analysis(self, x: Tensor, lap: Laplacian, weights: Tensor, recurrence: list[float]) -> Tensor:
        """`reference.analysis`."""
        out: Tensor = self.ops.cheb_analysis(x.contiguous(), *lap, weights.contiguous(), recurrence)
        return out

    def synthesis(self, z: Tensor, lap: Laplacian, weights: Tensor, recurrence: list[float], sum_bands: bool) -> Tensor:
        """`reference.synthesis`."""
        out: Tensor = self.ops.cheb_synthesis(z.contiguous(), *lap, weights.contiguous(), recurrence, sum_bands)
        return out

    def attach(self) -> None:
        """Give the operators their shapes and gradients."""
        for name, fake, context, backward in (
            ("cheb_step", _step_fake, _step_setup, self._step_backward),
            ("cheb_analysis", _analysis_fake, _setup, self._analysis_backward),
            ("cheb_synthesis", _synthesis_fake, _setup, self._synthesis_backward),
        ):
            torch.library.register_fake(f"{self.namespace}::{name}", fake)
            torch.library.register_autograd(f"{self.namespace}::{name}", backward, setup_context=context)

    def _step_backward(self, ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The step is linear in x and prev, so its gradient is the step of the transposed operator."""
        alpha, beta, gamma = ctx.coefficients
        adjoint = Laplacian(*ctx.saved_tensors).transpose()
        grad_x = self.step(grad, None, adjoint, alpha, beta, 0.0) if ctx.needs_input_grad[0] else None
        grad_prev = gamma * grad if ctx.needs_input_grad[1] else None
        return grad_x, grad_prev, *[None] * (_SIZE + 3)

    def _analysis_backward(self, ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weights, *arrays = ctx.saved_tensors
        lap, recurrence = Laplacian(*arrays), ctx.recurrence
        grad_x = self.synthesis(grad, lap.transpose(), weights, recurrence, True) if ctx.needs_input_grad[0] else None
        grad_weights = None if x is None else self._products(grad, x.unsqueeze(1), lap, recurrence, weights)
        return grad_x, *[None] * _SIZE, grad_weights, None

    def _synthesis_backward(self, ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, weights, *arrays = ctx.saved_tensors
        lap, recurrence = Laplacian(*arrays), ctx.recurrence
        adjoint = lap.transpose()
        grad_z = grad_weights = None
        if ctx.sum_bands:
            if ctx.needs_input_grad[0]:
                grad_z = self.analysis(grad, adjoint, weights, recurrence)
            if z is not None:
                # One band through the transposed operator instead of all of them through the operator.
                grad_weights = self._products(z, grad.unsqueeze(1), adjoint, recurrence, weights)
        else:
            if ctx.needs_input_grad[0]:
                grad_z = self.synthesis(grad, adjoint, weights, recurrence, False)
            if z is not None:
                grad_weights = self._products(grad, z, lap, recurrence, weights)
        return grad_z, *[None] * _SIZE, grad_weights, None, None

    def _products(self, a: Tensor, b: Tensor, lap: Laplacian, recurrence: list[float], weights: Tensor) -> Tensor:
        """``[R, n + 1]`` the inner products of the bands ``a_r`` with ``T_k b_r``; b may be one band for all r."""
        triples = list(zip(recurrence[::3], recurrence[1::3], recurrence[2::3], strict=True))
        # In the precision of the weights: terms that are stored in half of it would not do for a recurrence.
        signal = b.flatten(1).to(weights.dtype)
        terms = reference.basis(signal, lambda x, prev, *abc: self.step(x, prev, lap, *abc), triples)
        return torch.stack([sum_over_nodes((a * term.view(b.shape)).sum(-1)) for term in terms], dim=1)


compiled = Kernels("plufg")


def _step_fake(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _step_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _x, _prev, *lap, alpha, beta, gamma = inputs
    ctx.save_for_backward(*lap)
    ctx.coefficients = alpha, beta, gamma


def _analysis_fake(x: Tensor, *rest: Any) -> Tensor:
    weights = rest[_SIZE]
    return x.new_empty(x.size(0), weights.size(0), x.size(1))


def _synthesis_fake(z: Tensor, *rest: Any) -> Tensor:
    return z.new_empty(z.size(0), z.size(2)) if rest[-1] else _step_fake(z)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    signal, *lap, weights, recurrence = inputs[: _SIZE + 3]
    ctx.recurrence, ctx.sum_bands = recurrence, inputs[-1]
    # The signal is read by the gradient of the weights alone.
    ctx.save_for_backward(signal if ctx.needs_input_grad[_SIZE + 1] else None, weights, *lap)
