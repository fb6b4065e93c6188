"""The p-Laplacian operators: one step, the whole iteration, its objective, and the gradient they are made of."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ... import checks, extension, penalties
from ...graph import Graph
from ...penalties import Penalty
from ..backend import TRITON_MISSING, Backend, BackendError, check_name, choose, refuse_without_rule
from ..sums import working_type
from . import reference, register, solvers
from .reference import Edges

if extension.loaded():
    register.attach("plufg")
if TRITON_MISSING is None:
    from . import triton as triton

Exponent: TypeAlias = float | Tensor
Solver: TypeAlias = Literal["jacobi", "irls"]
Gradient: TypeAlias = Literal["unroll", "implicit"]
Mode: TypeAlias = Literal["paper", "released", "pgnn"]

__all__ = ["SolveInfo", "divergence", "edge_gradient", "plap_energy", "plap_solve", "plap_step"]


class SolveInfo(NamedTuple):
    """How a solve went; tensors, so that reading them is the caller's choice."""

    steps: Tensor  # int64 scalar on the device of the signal: steps taken, with those that carry gradient
    residual: Tensor  # scalar: relative change of the last step, of the band that changed most


def plap_step(
    f: Tensor,
    y: Tensor,
    g: Graph,
    p: Exponent,
    mu: Exponent,
    penalty: str | Penalty = "power",
    eps: float = 0.0,
    backend: Backend = "auto",
) -> Tensor:
    r"""One step of the p-Laplacian iteration, :math:`F' = \alpha D^{-1/2} M D^{-1/2} F + \beta Y`.

    Args:
        f: current signal, ``[N, C]`` or ``[N, B, C]``.
        y: source signal, of the same shape.
        g: the graph.
        p: exponent, at least 1 (above 0 with ``eps > 0``): a number, or a tensor with one value or one per band.
        mu: weight of the source term, above 0: likewise.
        penalty: name of the penalty, or a `Penalty` with its parameter.
        eps: smoothing of the edge norms, ``sqrt(n^2 + eps^2)``.
        backend: ``"auto"``, ``"reference"``, ``"cpp"`` or ``"triton"``.

    Returns:
        The next signal, like ``f``. Differentiable in ``f``, ``y`` and tensor ``p`` and ``mu``; where an edge
        gradient is zero the derivative of its norm is defined as 0.
    """
    call = _Call("plap_step", y, g, p, mu, penalty, eps, backend, signals=(f,))
    f = call.signal("f", f)
    return call.finish(call.problem().step(f, call.y))


def plap_solve(
    y: Tensor,
    g: Graph,
    p: Exponent,
    mu: Exponent,
    penalty: str | Penalty = "power",
    warmup: int = 10,
    steps: int = 4,
    tol: float | None = None,
    solver: Solver = "jacobi",
    grad: Gradient = "unroll",
    mode: Mode = "paper",
    return_info: bool = False,
    eps: float = 0.0,
    backend: Backend = "auto",
) -> Any:
    r"""Minimise :math:`\frac12 \sum_i \phi(N_i) + \mu \|F - Y\|^2` by iterating from :math:`F = Y`.

    Args:
        y: source signal, ``[N, C]`` or ``[N, B, C]``.
        g: the graph.
        p: exponent, as for `plap_step`. Far above 2 the iteration may swing instead of settling: see
            ``SolveInfo.residual``.
        mu: weight of the source term, as for `plap_step`.
        penalty: name of the penalty, or a `Penalty` with its parameter.
        warmup: steps without gradient (``grad="unroll"``).
        steps: steps with gradient, at least 1.
        tol: end the steps without gradient once the relative change falls below this; refused where there are none.
            Changes below 1e-6 are rounding in single precision.
        solver: ``"jacobi"``: `plap_step`. ``"irls"``: freeze M, solve the linear system by conjugate gradients,
            weigh anew; few and expensive steps, undirected graphs only, the choice for p near 1, where it needs
            ``eps`` > 0: the weight of an edge that closes has no bound.
        grad: ``"unroll"``: through the last ``steps`` steps. ``"implicit"``: of the fixed point, in memory
            independent of the number of steps; all ``warmup + steps`` then count towards reaching it, so give
            enough of them and a ``tol``. It has no second derivative.
        mode: ``"paper"``, or ``"released"`` / ``"pgnn"`` for parity with those codes (power penalty, Jacobi,
            unrolled).
        return_info: also return a `SolveInfo`.
        eps: smoothing of the edge norms.
        backend: ``"auto"``, ``"reference"``, ``"cpp"`` or ``"triton"``.

    Returns:
        The signal like ``y``, or a pair of it and a `SolveInfo`.
    """
    where = "plap_solve"
    check_solver(where, penalty, warmup, steps, tol, solver, grad, mode)
    for option, value in (("solver", solver), ("grad", grad)):
        if value in ("irls", "implicit"):
            # torch would take the tangents of what they solve for zero.
            refuse_without_rule(where, f"{option} {value!r}", y, p, mu)
    call = _Call(where, y, g, p, mu, penalty, eps, backend, mode, solver, grad)
    if solver == "irls" and not g.is_undirected:
        raise checks.wrong_value(where, "g", "undirected for solver 'irls' (a symmetric system)", checks.Shown(g))

    problem, y = call.problem(), call.y
    if not call.steps_apart and (grad, tol, return_info) == ("unroll", None, False):
        # Without a gradient all steps are alike, and many in one call are faster.
        return call.finish(solvers.iterate(y, problem, warmup + steps, None)[0])
    silent = warmup if grad == "unroll" else warmup + steps - 1
    f, taken = solvers.iterate(y, problem, silent, tol) if silent else (y, y.new_zeros((), dtype=torch.int64))
    if grad == "unroll":
        # The last step by itself where somebody asks how much it changed.
        apart = 1 if return_info else steps
        if apart < steps:
            f = problem.steps(f, y, steps - apart)
        before, f = f, problem.steps(f, y, apart)
    else:
        steps, before = 1, f.detach()
        # Differentiating through the Jacobi step is right whatever solver found its fixed point.
        last = problem._replace(solver="jacobi")
        f = solvers.differentiate_implicitly(last.step(before, y), before, y, last)
    if not return_info:
        return call.finish(f)
    residual = solvers.relative_change(f.detach(), before.detach())
    return call.finish(f), SolveInfo(taken + steps, residual)


def plap_energy(
    f: Tensor,
    y: Tensor,
    g: Graph,
    p: Exponent,
    mu: Exponent,
    penalty: str | Penalty = "power",
    eps: float = 0.0,
    backend: Backend = "auto",
) -> Tensor:
    r"""The objective :math:`\frac12 \sum_i \phi(N_i) + \mu \|F - Y\|^2`, summed over bands; a scalar.

    Arguments as for `plap_step`.
    """
    _reference_serves("plap_energy", backend)
    call = _Call("plap_energy", y, g, p, mu, penalty, eps, "reference")
    f = call.signal("f", f)
    # Not in half precision: a sum over all nodes may be beyond it.
    return reference.energy(f, call.y, call.edges, call.p, call.mu, call.penalty, eps)


def edge_gradient(f: Tensor, g: Graph, backend: Backend = "auto") -> Tensor:
    r"""Edge gradients :math:`\sqrt{w_{ij}} (f_j / \sqrt{d_j} - f_i / \sqrt{d_i})`, one row per stored edge.

    Args:
        f: node signal, ``[N, ...]``.
        g: the graph; ``result[g.edge_slot]`` is in the order of the edges it was built from.
        backend: ``"auto"`` or ``"reference"``.

    Returns:
        ``[E, ...]``.
    """
    _reference_serves("edge_gradient", backend)
    _check_rows("edge_gradient", "f", f, g, "num_nodes")
    work = working_type(f)
    return reference.edge_gradient(f.to(work), _edges(g, work)).to(f.dtype)


def divergence(u: Tensor, g: Graph, backend: Backend = "auto") -> Tensor:
    r"""Divergence of an edge signal: the negative adjoint of `edge_gradient`.

    :math:`\langle \nabla f, u \rangle = -\langle f, \mathrm{div}\, u \rangle`.

    Args:
        u: edge signal, ``[E, ...]``, one row per stored edge.
        g: the graph.
        backend: ``"auto"`` or ``"reference"``.

    Returns:
        ``[N, ...]``.
    """
    _reference_serves("divergence", backend)
    _check_rows("divergence", "u", u, g, "num_edges")
    work = working_type(u)
    return reference.divergence(u.to(work), _edges(g, work)).to(u.dtype)


def check_solver(
    where: str,
    penalty: str | Penalty,
    warmup: int,
    steps: int,
    tol: float | None,
    solver: str,
    grad: str,
    mode: str,
) -> None:
    """Refuse options of `plap_solve` that no signal and no graph could make right."""
    checks.count(where, "warmup", warmup)
    checks.count(where, "steps", steps, least=1)
    if tol is not None:
        checks.number(where, "tol", tol, above=0.0)
        if grad == "unroll" and warmup == 0:
            raise checks.wrong_value(where, "tol", "None where no step is without gradient (grad='unroll')", tol)
    checks.one_of(where, "solver", solver, ("jacobi", "irls"))
    checks.one_of(where, "grad", grad, ("unroll", "implicit"))
    checks.one_of(where, "mode", mode, ("paper", "released", "pgnn"))
    name = penalties.resolve(where, penalty).name
    if mode != "paper" and (solver, grad, name) != ("jacobi", "unroll", "power"):
        raise ValueError(
            f"{where}: mode {mode!r} must be used with solver 'jacobi', grad 'unroll' and penalty 'power', "
            f"got {solver!r}, {grad!r} and {name!r}"
        )


class _Call:
    """The checked arguments of one call, in the shapes and precision the kernels take."""

    def __init__(
        self,
        where: str,
        y: Tensor,
        g: Graph,
        p: Exponent,
        mu: Exponent,
        penalty: str | Penalty,
        eps: float,
        backend: str,
        mode: str = "paper",
        solver: str = "jacobi",
        grad: str = "unroll",
        signals: tuple[Tensor, ...] = (),
    ) -> None:
        self.where = where
        if not isinstance(g, Graph):
            raise checks.wrong_type(where, "g", "a plufg_fast.Graph", g)
        self.graph = g
        checks.floating_tensor(where, "y", y)
        self.shape, self.dtype = y.shape, y.dtype
        self.penalty = penalties.resolve(where, penalty)
        self.mode, self.solver = mode, solver
        self.serving = _serving(where, backend, g.device.type, mode, solver, (*signals, y, p, mu))
        self.work = working_type(y)
        # Kernels read and write 16 bits themselves, on the CPU bfloat16; a fixed point is not to be had in so few.
        on_cpu = (self.serving, g.device.type) == ("cpp", "cpu")
        half = (torch.bfloat16,) if on_cpu else (torch.bfloat16, torch.float16)
        kept = self.serving != "reference" and grad == "unroll" and y.dtype in half
        self.storage = y.dtype if kept else self.work
        self.y = self.signal("y", y)
        checks.number(where, "eps", eps, least=0.0)
        if 0 < eps < torch.finfo(self.work).tiny ** 0.5:
            raise checks.wrong_value(where, "eps", f"0, or large enough that its square is a {self.work}", eps)
        self.eps = eps
        bands = self.y.size(1)
        least = "at least 1" if eps == 0 else "above 0"
        self.p = _per_band(where, "p", p, bands, self.work, g.device, least)
        self.mu = _per_band(where, "mu", mu, bands, self.work, g.device, "above 0")

    def signal(self, name: str, value: Tensor) -> Tensor:
        """A node signal as ``[N, B, C]``, as the backend reads it."""
        where, g = self.where, self.graph
        checks.floating_tensor(where, name, value)
        if value.dim() not in (2, 3) or value.size(0) != g.num_nodes:
            raise checks.wrong_value(where, name, f"of shape [{g.num_nodes}, C] or [{g.num_nodes}, B, C]", value)
        if value.shape != self.shape:
            raise checks.wrong_value(where, name, f"of the shape of y {tuple(self.shape)}", value)
        if value.dtype != self.dtype:
            raise checks.wrong_type(where, name, f"of the type of y ({self.dtype})", value)
        checks.same_device(where, name, value, "the graph", g.device)
        value = value.to(self.storage)
        return value if value.dim() == 3 else value.unsqueeze(1)

    @property
    def steps_apart(self) -> bool:
        """Whether steps may have to be told apart: autograd follows them, or they are rounded to half precision.

        The reference serves all other transforms, which give no sign of themselves.
        """
        tracked = torch.is_grad_enabled() and any(t.requires_grad for t in (self.y, self.p, self.mu))
        return tracked or self.storage != self.work or self.serving == "reference"

    def finish(self, f: Tensor) -> Tensor:
        """A result in the shape and precision of the input."""
        return f.reshape(self.shape).to(self.dtype)

    @property
    def edges(self) -> Edges:
        """The graph as the reference functions take it."""
        return _edges(self.graph, self.work)

    def problem(self) -> solvers.Problem:
        """The arguments as the solvers take them."""
        g, t = self.graph, self.graph.transpose()
        weight, dinv, _ = g.values(self.work)
        return solvers.Problem(
            g.rowptr,
            g.col,
            weight,
            t.rowptr,
            t.col,
            weight if t is g else t.values(self.work)[0],
            t is g,
            dinv,
            self.p,
            self.mu,
            self.penalty.name,
            self.penalty.parameter,
            self.eps,
            self.mode,
            self.solver,
            self.serving,
        )


def _edges(g: Graph, dtype: torch.dtype) -> Edges:
    weight, dinv, _ = g.values(dtype)
    return Edges.from_csr(g.rowptr, g.col, weight, dinv)


def _serving(where: str, backend: str, device: str, mode: str, solver: str, values: tuple[Any, ...]) -> str:
    """The backend for these options: the compiled step is that of the paper."""
    compiled = (mode, solver) == ("paper", "jacobi")
    serving = choose(where, "plap", backend if compiled or backend != "auto" else "reference", device, *values)
    if serving != "reference" and not compiled:
        raise BackendError(
            f"{where}: backend {serving!r} cannot serve: it has kernels for mode 'paper' and solver 'jacobi', "
            f"not for {mode!r} and {solver!r}"
        )
    return serving


def _reference_serves(where: str, backend: str) -> None:
    """The diagnostics have no kernels of their own: they make the arrays over edges that kernels avoid."""
    check_name(where, backend)
    if backend not in ("auto", "reference"):
        raise BackendError(f"{where}: backend {backend!r} cannot serve: it has no kernel for this operator")


def _check_rows(where: str, name: str, value: Tensor, g: Graph, count: str) -> None:
    if not isinstance(g, Graph):
        raise checks.wrong_type(where, "g", "a plufg_fast.Graph", g)
    checks.floating_tensor(where, name, value)
    rows = getattr(g, count)
    if value.dim() < 1 or value.size(0) != rows:
        raise checks.wrong_value(where, name, f"of shape [{rows}, ...]", value)
    checks.same_device(where, name, value, "the graph", g.device)


def _as_many(bands: int) -> str:
    return "a number or a tensor of one value" + (f" or {bands}, one per band" if bands != 1 else "")


def _per_band(
    where: str, name: str, value: Exponent, bands: int, dtype: torch.dtype, device: torch.device, bound: str
) -> Tensor:
    """`value` as ``[B]``, refused unless every entry is finite and within `bound`."""
    exclusive = bound == "above 0"
    if not isinstance(value, Tensor):
        checks.number(where, name, value, **({"above": 0.0} if exclusive else {"least": 1.0}))
        limits = torch.finfo(dtype)
        # With room for 2 mu.
        if not limits.tiny <= value <= limits.max / 4:
            raise checks.wrong_value(where, name, f"within the range of {dtype}", value)
        return torch.full((bands,), value, dtype=dtype, device=device)
    checks.floating_tensor(where, name, value)
    if value.dim() > 1 or value.numel() not in (1, bands):
        raise checks.wrong_value(where, name, _as_many(bands), value)
    checks.same_device(where, name, value, "the signal", device)
    # As it is going to be used: a number of more bits may be none of fewer.
    value = value.to(dtype)
    inside = (value > 0 if exclusive else value >= 1) & value.isfinite()
    checks.all_true(where, name, f"finite and {bound}", inside, value)
    return value.reshape(-1).expand(bands)
