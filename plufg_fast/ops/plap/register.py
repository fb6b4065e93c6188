"""What torch has to know of the compiled ``plufg::plap_step`` beyond its kernels: shapes and gradients.

To be imported only where the extension is loaded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import extension

if not extension.loaded():
    raise ImportError(f"plufg::plap_step does not exist: {extension.why_not()}")


def _fake(f: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(f, memory_format=torch.contiguous_format), f.new_empty(f.shape[:2])


def _fake_backward(grad: Tensor, f: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    rows = f.size(0) if rest[-1] else 0
    return torch.empty_like(f, memory_format=torch.contiguous_format), f.new_empty(rows, f.size(1))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.eps = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, grad_a: Tensor | None) -> tuple[Tensor | None, ...]:
    f, y, *graph, dinv, p, mu, out, a = ctx.saved_tensors
    if grad is None:
        return (None,) * len(ctx.needs_input_grad)
    df, dy, dp, dmu = step_backward(grad, f, y, graph, dinv, p, mu, out, a, ctx.eps, ctx.needs_input_grad)
    return df, dy, *[None] * len(graph), None, dp, dmu, None


def step_backward(
    grad: Tensor,
    f: Tensor,
    y: Tensor,
    graph: list[Tensor | None],
    dinv: Tensor,
    p: Tensor,
    mu: Tensor,
    out: Tensor,
    a: Tensor,
    eps: float,
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """The derivatives by f, y, p and mu, each only if it is needed; `needs` is in the order of the op's arguments."""
    needs_f, needs_y, needs_p, needs_mu = needs[0], needs[1], needs[-3], needs[-2]
    df = dy = dp = dmu = None
    if needs_f or needs_p:
        df, rows = torch.ops.plufg.plap_step_backward(grad.contiguous(), f, out, a, *graph, dinv, p, eps, needs_p)
        dp = rows.sum(0) if needs_p else None
    if needs_y:
        dy = (2 * mu * a).unsqueeze(-1) * grad
    if needs_mu:
        dmu = 2 * (a * (grad * (y - out)).sum(-1)).sum(0)
    return df, dy, dp, dmu


torch.library.register_fake("plufg::plap_step", _fake)
torch.library.register_fake("plufg::plap_step_backward", _fake_backward)
torch.library.register_autograd("plufg::plap_step", _backward, setup_context=_setup_context)
