"""What torch has to know of the ``plap_*`` operators beyond their kernels: shapes and gradients.

The compiled ones are ``plufg::plap_*``, those in Triton ``plufg_triton::plap_*``; both take and return the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..sums import sum_over_nodes


def attach(namespace: str) -> None:
    """Give the operators of a namespace their shapes and gradients."""
    kernels = getattr(torch.ops, namespace)

    def backward(ctx: Any, grad: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        # Read once: to `torch.utils.checkpoint` every reading is a recomputation, and the second one too many.
        saved = ctx.saved_tensors
        with torch.no_grad():
            found = _backward(kernels.plap_step_backward, ctx, saved, grad)
        return not_again(found, (grad, *saved))

    torch.library.register_fake(f"{namespace}::plap_step", _fake)
    torch.library.register_fake(f"{namespace}::plap_steps", _fake_steps)
    torch.library.register_fake(f"{namespace}::plap_step_backward", _fake_backward)
    torch.library.register_autograd(f"{namespace}::plap_step", backward, setup_context=_setup_context)


def _fake(f: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    p, penalty = rest[8], rest[11]
    a = p.new_empty(f.shape[:2])
    return _empty_like(f), a, p.new_empty(f.size(0) if penalty else 0, f.size(1))


def _fake_steps(y: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _empty_like(y), y.new_empty((), dtype=torch.int64)


def _fake_backward(grad: Tensor, f: Tensor, out: Tensor, a: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return _empty_like(f), a.new_empty(f.size(0) if rest[-1] else 0, f.size(1))


def _empty_like(f: Tensor) -> Tensor:
    return torch.empty_like(f, memory_format=torch.contiguous_format)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, eps, penalty, parameter = inputs
    ctx.penalty = eps, penalty, parameter
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)


def _backward(
    step_backward: Any, ctx: Any, saved: tuple[Tensor, ...], grad: Tensor | None
) -> tuple[Tensor | None, ...]:
    f, y, *graph, dinv, p, mu, out, a, norm = saved
    needs = ctx.needs_input_grad
    df = dy = dp = dmu = None
    if grad is not None:
        wanted = needs[0], needs[1], needs[-5], needs[-4]
        fixed = (*graph, dinv, p, *ctx.penalty)
        df, dy, dp, dmu = step_gradients(step_backward, grad, wanted, f, y, mu, out, a, norm, fixed)
    return df, dy, *[None] * len(graph), None, dp, dmu, None, None, None


class _NotAgain(torch.autograd.Function):
    """A derivative, tied to what it depends on so that differentiating it again does not give a wrong zero."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, *sources: Tensor | None) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise RuntimeError(
            "plap: kernels and implicit gradients cannot be differentiated twice; backend='reference' with "
            "grad='unroll' can"
        )


def not_again(found: Sequence[Tensor | None], sources: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    """First derivatives that refuse to be differentiated with respect to `sources`."""
    if not torch.is_grad_enabled():
        return tuple(found)
    return tuple(
        None if value is None else _NotAgain.apply(value, *sources)  # type: ignore[no-untyped-call]
        for value in found
    )


def step_gradients(
    step_backward: Any,
    grad: Tensor,
    wanted: tuple[bool, bool, bool, bool],
    f: Tensor,
    y: Tensor,
    mu: Tensor,
    out: Tensor,
    a: Tensor,
    norm: Tensor,
    fixed: tuple[Any, ...],
) -> list[Tensor | None]:
    """What a step passes on to f, y, p and mu, None where it is not wanted.

    Args:
        step_backward: the operator.
        grad: the gradient of ``out``.
        wanted: of which of the four.
        f: what the step started from.
        y: the source.
        mu: its weight.
        out: what the step returned, and with it
        a: the scale of every row and
        norm: the norms of the nodes.
        fixed: graph, degrees, p and penalty, as the operator takes them.
    """
    grad = grad.contiguous()
    df = dy = dp = dmu = None
    if wanted[0] or wanted[2]:
        df, rows = step_backward(grad, f, out, a, norm, *fixed, wanted[2])
        dp = sum_over_nodes(rows) if wanted[2] else None
    if wanted[1]:
        dy = ((2 * mu * a).unsqueeze(-1) * grad).to(y.dtype)
    if wanted[3]:
        dmu = 2 * sum_over_nodes(a * (grad.to(a.dtype) * (y.to(a.dtype) - out)).sum(-1))
    return [df, dy, dp, dmu]
