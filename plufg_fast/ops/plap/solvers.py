"""The iterations around the p-step, whichever backend takes it.

Whatever stops by looking at its values is an opaque dispatcher op, so that `torch.compile` sees one node instead
of a data-dependent loop: the iteration without gradient, the linear solve of `irls`, and the adjoint solve of
implicit differentiation.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from ...penalties import FORMULAS, Penalty
from . import reference
from .reference import Edges
from .register import not_again, step_gradients

# Bound of the inner iterations; those that are well posed end after a few dozen.
_MOST_STEPS: Final = 1000
# Conjugate gradients end at a residual of so many times the precision, relative to the right-hand side.
_GOAL: Final = 10
# The relative change beyond which a signal is no fixed point to anybody.
_AT_REST: Final = 0.01


class Problem(NamedTuple):
    """What stays the same during a solve; its fields are the trailing arguments of the ops below."""

    rowptr: Tensor
    col: Tensor
    weight: Tensor | None
    rowptr_t: Tensor
    col_t: Tensor
    weight_t: Tensor | None
    symmetric: bool  # the graph is its own transpose
    dinv: Tensor
    p: Tensor  # [B]
    mu: Tensor  # [B]
    penalty: str
    parameter: float | None
    eps: float
    mode: str
    solver: str
    backend: str

    @property
    def edges(self) -> Edges:
        """The graph, as the reference functions take it."""
        return Edges.from_csr(self.rowptr, self.col, self.weight, self.dinv)

    def detached(self) -> Problem:
        """The same problem, out of reach of autograd."""
        return self._replace(p=self.p.detach().contiguous(), mu=self.mu.detach().contiguous())

    @property
    def kernels(self) -> Any:
        """The operators of a backend that has kernels."""
        return torch.ops.plufg if self.backend == "cpp" else torch.ops.plufg_triton

    @property
    def graph(self) -> tuple[Tensor | None, ...]:
        """The graph, as operators with kernels take it."""
        return self[:6]

    @property
    def options(self) -> tuple[float, int, float]:
        """Smoothing and penalty, as operators with kernels take them."""
        return self.eps, list(FORMULAS).index(self.penalty), self.parameter or 0.0

    def pull_back(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
        """A Jacobi step at f, the a of its nodes ``[N, B]``, and its transposed derivative."""
        if self.backend == "reference":
            edges, rest = self.edges, (self.p, self.mu, Penalty(self.penalty, self.parameter), self.eps)
            a, out = reference.factors_and_step(f, y, edges, *rest)
            return out, a, lambda u: reference.step_backward(u, f, y, edges, *rest)[0]
        out, a, norm = self.kernels.plap_step(f, y, *self.graph, self.dinv, self.p, self.mu, *self.options)

        def compiled(u: Tensor) -> Tensor:
            kept = (u.contiguous(), f, out, a, norm)
            df: Tensor = self.kernels.plap_step_backward(*kept, *self.graph, self.dinv, self.p, *self.options, False)[0]
            return df

        return out, a, compiled

    def step(self, f: Tensor, y: Tensor) -> Tensor:
        """One differentiable step of the chosen solver and mode."""
        if self.backend != "reference":
            y, p, mu = y.contiguous(), self.p.contiguous(), self.mu.contiguous()
            out: Tensor = self.kernels.plap_step(f.contiguous(), y, *self.graph, self.dinv, p, mu, *self.options)[0]
            return out
        penalty = Penalty(self.penalty, self.parameter)
        if self.mode != "paper":
            factor = 4.0 if self.mode == "released" else 2.0
            return reference.step_as_released(f, y, self.edges, self.p, self.mu, self.eps, factor)
        if self.solver == "irls":
            m = reference.edge_coefficients(f, self.edges, self.p, penalty, self.eps)
            solved: Tensor = torch.ops.plufg.plap_linear(m, y, self.rowptr, self.col, self.dinv, self.mu)
            return solved
        return reference.step(f, y, self.edges, self.p, self.mu, penalty, self.eps)

    def steps(self, f: Tensor, y: Tensor, count: int) -> Tensor:
        """That many differentiable steps."""
        if self.backend == "reference" or torch.compiler.is_compiling():
            for _ in range(count):
                f = self.step(f, y)
            return f
        y, p, mu = y.contiguous(), self.p.contiguous(), self.mu.contiguous()
        out: Tensor = _Steps.apply(f.contiguous(), y, p, mu, self.detached(), count)  # type: ignore[no-untyped-call]
        return out


class _Steps(torch.autograd.Function):
    """Several steps as one node of autograd: on a small graph a node for each takes longer than the steps do.

    `torch.compile` makes one of its own out of single steps.
    """

    @staticmethod
    def forward(ctx: Any, f: Tensor, y: Tensor, p: Tensor, mu: Tensor, problem: Problem, count: int) -> Tensor:
        ctx.problem = problem
        kept: list[Tensor] = []
        for _ in range(count):
            out, a, norm = problem.kernels.plap_step(f, y, *problem.graph, problem.dinv, p, mu, *problem.options)
            if any(ctx.needs_input_grad):
                kept += [f, a, norm]
            f = out
        ctx.save_for_backward(y, p, mu, *kept, f)
        return f

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        with torch.no_grad():
            found = _Steps._backward(ctx, saved, grads[0])
        return not_again(found, (*grads, *saved))

    @staticmethod
    def _backward(ctx: Any, saved: tuple[Tensor, ...], grad: Any) -> tuple[Tensor | None, ...]:
        y, p, mu, *kept, out = saved
        problem: Problem = ctx.problem
        fixed = (*problem.graph, problem.dinv, p, *problem.options)
        needs_f, *needs = ctx.needs_input_grad[:4]
        sums: list[Any] = [None, None, None]  # of y, p and mu
        for k in range(len(kept) - 3, -1, -3):
            f, a, norm = kept[k : k + 3]
            wanted = (k > 0 or needs_f, *needs)
            arguments = (grad, wanted, f, y, mu, out, a, norm, fixed)
            grad, *parts = step_gradients(problem.kernels.plap_step_backward, *arguments)
            sums = [part if total is None else total.add_(part) for total, part in zip(sums, parts, strict=True)]
            out = f
        return grad, *sums, None, None


def _warn_unless(what: str, reached: float, goal: float) -> None:
    if not reached <= goal:
        warnings.warn(
            f"plap_solve: after {_MOST_STEPS} steps at most, {what} stands at {reached:.1e}; its goal is {goal:.1e}",
            UserWarning,
            stacklevel=2,
        )


def relative_change(new: Tensor, old: Tensor) -> Tensor:
    """``||new - old|| / ||old||`` of the band that changes most; 0 where nothing changes."""
    work = torch.promote_types(new.dtype, torch.float32)
    new, old = new.to(work), old.to(work)
    change, size = (new - old).norm(dim=(0, 2)), old.norm(dim=(0, 2))
    ratio = torch.where(change == 0, 0, change / size)
    return ratio.amax() if ratio.numel() else ratio.new_zeros(())


@torch.library.custom_op("plufg::plap_iterate", mutates_args=())
def _iterate(
    y: Tensor,
    steps: int,
    tol: float | None,
    rowptr: Tensor,
    col: Tensor,
    weight: Tensor | None,
    rowptr_t: Tensor,
    col_t: Tensor,
    weight_t: Tensor | None,
    symmetric: bool,
    dinv: Tensor,
    p: Tensor,
    mu: Tensor,
    penalty: str,
    parameter: float | None,
    eps: float,
    mode: str,
    solver: str,
    backend: str,
) -> tuple[Tensor, Tensor]:
    graph = (rowptr, col, weight, rowptr_t, col_t, weight_t, symmetric)
    problem = Problem(*graph, dinv, p, mu, penalty, parameter, eps, mode, solver, backend)
    f, taken = y, 0
    while taken < steps:
        new = problem.step(f, y)
        taken += 1
        done = tol is not None and bool(relative_change(new, f) < tol)
        f = new
        if done:
            break
    return (f.clone() if f is y else f), torch.tensor(taken, device=y.device)


@_iterate.register_fake
def _(y: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(y), y.new_empty((), dtype=torch.int64)


def iterate(y: Tensor, problem: Problem, steps: int, tol: float | None) -> tuple[Tensor, Tensor]:
    """Up to `steps` steps from y without gradient, ended early by a relative change below `tol`; and how many."""
    fixed = problem.detached()
    if fixed.backend != "reference":
        arguments = (*fixed.graph, fixed.dinv, fixed.p, fixed.mu, *fixed.options, steps, tol)
        f, taken = fixed.kernels.plap_steps(y.detach().contiguous(), *arguments)
    else:
        f, taken = _iterate(y.detach(), steps, tol, *fixed)
    return f, taken


def _conjugate_gradients(
    apply: Callable[[Tensor], Tensor], right: Tensor, inverse: Tensor, dims: tuple[int, ...]
) -> tuple[Tensor, float]:
    """Solve ``apply(x) = right``, symmetric and definite, and how far it came: ``max ||residual|| / ||right||``.

    `inverse` is that of the diagonal, which preconditions. What is not summed over `dims` are systems for themselves:
    each runs its own recurrence and rests once it has converged, or has met a direction of no positive curvature.
    """

    def dot(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(dims, keepdim=True)

    size = right.norm(dim=dims, keepdim=True)
    x = inverse * right
    residual = right - apply(x)
    scaled = inverse * residual
    direction, rho = scaled, dot(residual, scaled)
    definite = torch.ones_like(size, dtype=torch.bool)
    for _ in range(_MOST_STEPS):
        active = definite & (residual.norm(dim=dims, keepdim=True) > _GOAL * torch.finfo(right.dtype).eps * size)
        if not bool(active.any()):
            break
        image = apply(direction)
        curvature = dot(direction, image)
        definite = definite & (curvature > 0)
        length = torch.where(active & definite, rho / curvature, 0)
        x = x + length * direction
        residual = residual - length * image
        scaled = inverse * residual
        new_rho = dot(residual, scaled)
        direction = scaled + torch.where(active, new_rho / rho, 0) * direction
        rho = new_rho
    reached = torch.where(size > 0, residual.norm(dim=dims, keepdim=True) / size, 0)
    return x, float(reached.amax()) if reached.numel() else 0.0


def _apply_system(x: Tensor, m: Tensor, diagonal: Tensor, edges: Edges) -> Tensor:
    dinv = edges.dinv.view(-1, 1, 1)
    pulled = edges.sum_at_receivers(m.unsqueeze(-1) * (dinv * x).index_select(0, edges.col))
    return diagonal.unsqueeze(-1) * x - dinv * pulled


@torch.library.custom_op("plufg::plap_linear", mutates_args=())
def _linear(m: Tensor, y: Tensor, rowptr: Tensor, col: Tensor, dinv: Tensor, mu: Tensor) -> Tensor:
    """Solve ``(D^-1 sum M + 2 mu - D^-1/2 M D^-1/2) F = 2 mu Y`` by conjugate gradients, M symmetric.

    For p near 1 the M_ij span many orders of magnitude, and so does the diagonal. Columns, bands and channels, have
    nothing to do with each other.
    """
    edges = Edges.from_csr(rowptr, col, None, dinv)
    diagonal = dinv.view(-1, 1) ** 2 * edges.sum_at_receivers(m) + 2 * mu  # [N, B]
    right = 2 * mu.view(-1, 1) * y
    apply = partial(_apply_system, m=m, diagonal=diagonal, edges=edges)
    x, reached = _conjugate_gradients(apply, right, 1 / diagonal.unsqueeze(-1), (0,))
    _warn_unless("the residual of the linear system of 'irls'", reached, _GOAL * torch.finfo(y.dtype).eps)
    return x


@_linear.register_fake
def _(m: Tensor, y: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(y)


def _linear_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs, output)


def _linear_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    m, y, rowptr, col, dinv, mu, x = ctx.saved_tensors
    # The system is symmetric: dLoss/d(right-hand side) solves it with grad on the right.
    # The op multiplies its right-hand side by 2 mu, so its result already is dLoss/dY.
    dy = _linear(m, grad.contiguous(), rowptr, col, dinv, mu)
    adjoint = dy / (2 * mu.view(-1, 1))
    row = Edges.from_csr(rowptr, col, None, dinv).row
    h, k = dinv.view(-1, 1, 1) * x, dinv.view(-1, 1, 1) * adjoint
    dm = (k.index_select(0, row) * (h.index_select(0, col) - h.index_select(0, row))).sum(-1)
    dmu = 2 * (adjoint * (y - x)).sum((0, 2))
    return dm, dy, None, None, None, dmu


_linear.register_autograd(_linear_backward, setup_context=_linear_setup)


@torch.library.custom_op("plufg::plap_adjoint", mutates_args=())
def _adjoint(
    grad: Tensor,
    f: Tensor,
    y: Tensor,
    tol: float,
    rowptr: Tensor,
    col: Tensor,
    weight: Tensor | None,
    rowptr_t: Tensor,
    col_t: Tensor,
    weight_t: Tensor | None,
    symmetric: bool,
    dinv: Tensor,
    p: Tensor,
    mu: Tensor,
    penalty: str,
    parameter: float | None,
    eps: float,
    mode: str,
    solver: str,
    backend: str,
) -> Tensor:
    """Solve ``u = grad + J^T u`` with J the derivative of the step at the fixed point f.

    On a symmetric graph a step is ``F - a grad E(F)``, so that at its fixed point ``I - J^T`` is ``H diag(a)`` with H
    the Hessian of the energy: conjugate gradients need tens of steps where the iteration takes thousands, for small
    mu. The iteration serves directed graphs, and penalties that are not convex where the Hessian is not definite.
    """
    graph = (rowptr, col, weight, rowptr_t, col_t, weight_t, symmetric)
    out, a, pull_back = Problem(*graph, dinv, p, mu, penalty, parameter, eps, mode, solver, backend).pull_back(f, y)
    moved = float(relative_change(out, f))
    if not moved <= _AT_REST:
        warnings.warn(
            f"plap_solve: the implicit gradient is that of a fixed point, but another step changes the signal by "
            f"{moved:.1e} of its size; take more steps, or grad='unroll'",
            UserWarning,
            stacklevel=2,
        )
    if symmetric:
        a = a.unsqueeze(-1)
        v, reached = _conjugate_gradients(lambda v: v / a - pull_back(v / a), grad, a, (0, 2))
        if reached <= tol:
            return v / a
    u = grad
    for _ in range(_MOST_STEPS):
        new = grad + pull_back(u)
        change = float(relative_change(new, u))
        u = new
        if change < tol or not math.isfinite(change):
            break
    _warn_unless("the implicit gradient (where the iteration does not contract, use grad='unroll')", change, tol)
    return u


@_adjoint.register_fake
def _(grad: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(grad)


@torch.library.custom_op("plufg::plap_implicit", mutates_args=())
def _implicit(
    out: Tensor,
    f: Tensor,
    y: Tensor,
    tol: float,
    rowptr: Tensor,
    col: Tensor,
    weight: Tensor | None,
    rowptr_t: Tensor,
    col_t: Tensor,
    weight_t: Tensor | None,
    symmetric: bool,
    dinv: Tensor,
    p: Tensor,
    mu: Tensor,
    penalty: str,
    parameter: float | None,
    eps: float,
    mode: str,
    solver: str,
    backend: str,
) -> Tensor:
    return out.clone()


@_implicit.register_fake
def _(out: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(out)


def _implicit_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    tensors = [value for value in inputs[1:] if isinstance(value, Tensor)]
    ctx.layout = [None if isinstance(value, Tensor) else (value,) for value in inputs[1:]]
    ctx.save_for_backward(*tensors)


def _implicit_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    tensors = ctx.saved_tensors
    saved = iter(tensors)
    arguments = [next(saved) if item is None else item[0] for item in ctx.layout]
    with torch.no_grad():
        u = _adjoint(grad.contiguous(), *arguments)
    # The system that was solved depends on all of these, and so would a second derivative.
    return (*not_again([u], (grad, *tensors)), *[None] * len(arguments))


_implicit.register_autograd(_implicit_backward, setup_context=_implicit_setup)


def differentiate_implicitly(out: Tensor, f: Tensor, y: Tensor, problem: Problem) -> Tensor:
    """`out`, one recorded step away from the fixed point f, with the gradient of the infinite iteration.

    At a fixed point ``F = T(F, Y, p, mu)`` the gradient of F is that of the last step alone, applied to
    ``u = (I - J^T)^-1 grad`` in place of grad. Memory does not grow with the number of steps.
    """
    tol = 100 * torch.finfo(y.dtype).eps
    p, mu = problem.p.contiguous(), problem.mu.contiguous()
    result: Tensor = _implicit(out, f.contiguous(), y.contiguous(), tol, *problem._replace(p=p, mu=mu))
    return result
