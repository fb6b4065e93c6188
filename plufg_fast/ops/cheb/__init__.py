"""Polynomial filters of the graph Laplacian: analysis, synthesis, and the recurrences they run on."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ... import checks, extension
from ...graph import Graph
from ..backend import TRITON_MISSING, Backend, choose
from ..sums import working_type
from . import reference, register
from .reference import Laplacian, Recurrence, Step

if extension.loaded():
    register.compiled.attach()
if TRITON_MISSING is None:
    from . import triton as triton

__all__ = [
    "cheb_analysis",
    "cheb_synthesis",
    "chebyshev_recurrence",
    "jacobi_recurrence",
    "monomial_recurrence",
    "poly_analysis",
    "poly_synthesis",
]


def chebyshev_recurrence(degree: int) -> Recurrence:
    """Chebyshev polynomials of the first kind: ``T_1 = Lhat``, ``T_{k+1} = 2 Lhat T_k - T_{k-1}``."""
    checks.count("chebyshev_recurrence", "degree", degree)
    return [(1.0, 0.0, 0.0), *[(2.0, 0.0, -1.0)] * (degree - 1)][:degree]


def monomial_recurrence(degree: int, sign: float = 1.0) -> Recurrence:
    """Powers ``(sign * Lhat)^k``; with ``scale=pi/2`` and ``sign=-1`` those of ``D^-1/2 W D^-1/2``."""
    checks.count("monomial_recurrence", "degree", degree)
    return [(sign, 0.0, 0.0)] * degree


def jacobi_recurrence(degree: int, a: float, b: float) -> Recurrence:
    """Jacobi polynomials ``P_k^(a,b)(Lhat)``, a, b > -1."""
    checks.count("jacobi_recurrence", "degree", degree)
    checks.number("jacobi_recurrence", "a", a, above=-1.0)
    checks.number("jacobi_recurrence", "b", b, above=-1.0)
    steps = [((a + b + 2) / 2, (a - b) / 2, 0.0)]
    for k in range(2, degree + 1):
        s = 2 * k + a + b
        lead = 2 * k * (k + a + b) * (s - 2)
        steps.append(
            (
                (s - 1) * s * (s - 2) / lead,
                (s - 1) * (a * a - b * b) / lead,
                -2 * (k + a - 1) * (k + b - 1) * s / lead,
            )
        )
    return steps[:degree]


def cheb_analysis(x: Tensor, g: Graph, coeffs: Tensor, scale: float = 1.0, backend: Backend = "auto") -> Tensor:
    r"""Apply R filters :math:`c_{r,0}/2 + \sum_k c_{r,k} T_k(\hat L)`, :math:`\hat L = \frac{2}{\pi} s L - I`.

    One recurrence on the signal serves all filters: as many sparse products as the degree, no power of L.

    Args:
        x: signal, ``[N, C]`` or ``[N, B, C]``.
        g: the graph; self-loops do not enter its Laplacian.
        coeffs: ``[R, n + 1]`` Chebyshev coefficients on ``[0, pi]``.
        scale: the s above: filters are functions of ``s L``.
        backend: ``"auto"``, ``"reference"``, ``"cpp"`` or ``"triton"``.

    Returns:
        ``[N, R, C]``, or ``[N, R, B, C]``. Differentiable in ``x`` and ``coeffs``.
    """
    weights, recurrence = _chebyshev("cheb_analysis", coeffs)
    return _analysis("cheb_analysis", x, g, weights, recurrence, scale, backend)


def cheb_synthesis(
    z: Tensor,
    g: Graph,
    coeffs: Tensor,
    scale: float = 1.0,
    sum_bands: bool = True,
    backend: Backend = "auto",
) -> Tensor:
    r"""The adjoint of `cheb_analysis`: :math:`\sum_r p_r(\hat L)^\top z_r`, by one Clenshaw sweep.

    On a directed graph ``cheb_synthesis(z, g.transpose(), ...)`` applies the filters themselves instead.

    Args:
        z: bands, ``[N, R, C]`` or ``[N, R, B, C]``.
        g: the graph.
        coeffs: ``[R, n + 1]``, as for `cheb_analysis`.
        scale: as for `cheb_analysis`.
        sum_bands: sum over the R filters; otherwise keep each band's part.
        backend: ``"auto"``, ``"reference"``, ``"cpp"`` or ``"triton"``.

    Returns:
        ``[N, C]`` (``[N, B, C]``) when summed, else like ``z``. Differentiable in ``z`` and ``coeffs``.
    """
    weights, recurrence = _chebyshev("cheb_synthesis", coeffs)
    return _synthesis("cheb_synthesis", z, g, weights, recurrence, scale, sum_bands, backend)


def poly_analysis(
    x: Tensor,
    g: Graph,
    weights: Tensor,
    recurrence: Recurrence,
    scale: float = 1.0,
    backend: Backend = "auto",
) -> Tensor:
    r"""As `cheb_analysis`, for any three-term recurrence: filters :math:`\sum_k w_{r,k} T_k(\hat L)`.

    Args:
        x: signal, ``[N, C]`` or ``[N, B, C]``.
        g: the graph.
        weights: ``[R, n + 1]``; unlike Chebyshev coefficients, none is halved.
        recurrence: n triples ``(a_k, b_k, c_k)`` of ``T_{k+1} = (a_k Lhat + b_k) T_k + c_k T_{k-1}``.
        scale: the s of ``Lhat = 2/pi s L - I``.
        backend: ``"auto"``, ``"reference"``, ``"cpp"`` or ``"triton"``.

    Returns:
        ``[N, R, C]``, or ``[N, R, B, C]``.
    """
    return _analysis("poly_analysis", x, g, weights, recurrence, scale, backend)


def poly_synthesis(
    z: Tensor,
    g: Graph,
    weights: Tensor,
    recurrence: Recurrence,
    scale: float = 1.0,
    sum_bands: bool = True,
    backend: Backend = "auto",
) -> Tensor:
    """The adjoint of `poly_analysis`; arguments as there and for `cheb_synthesis`."""
    return _synthesis("poly_synthesis", z, g, weights, recurrence, scale, sum_bands, backend)


def _chebyshev(where: str, coeffs: Tensor) -> tuple[Tensor, Recurrence]:
    _check_weights(where, "coeffs", coeffs)
    # The zeroth coefficient of a Chebyshev series is halved by convention.
    weights = torch.cat((coeffs[:, :1] / 2, coeffs[:, 1:]), dim=1)
    return weights, chebyshev_recurrence(coeffs.size(1) - 1)


def _analysis(
    where: str, x: Tensor, g: Graph, weights: Tensor, recurrence: Recurrence, scale: float, backend: str
) -> Tensor:
    _check(where, g, "x", x, (2, 3), weights, recurrence, scale)
    work = working_type(x)
    lap, steps = laplacian(g, work), _shifted(recurrence, scale)
    gains = weights.to(x.device, work)
    kernels = _kernels(where, backend, x.device.type, x, weights)
    signal = (x if _reads_halves(kernels) else x.to(work)).flatten(1)
    if kernels is not None:
        z = kernels.analysis(signal, lap, gains, [number for step in steps for number in step])
    else:
        z = reference.analysis(signal, stepper(where, lap, "reference"), gains, steps)
    return z.view(x.size(0), weights.size(0), *x.shape[1:]).to(x.dtype)


def _synthesis(
    where: str,
    z: Tensor,
    g: Graph,
    weights: Tensor,
    recurrence: Recurrence,
    scale: float,
    sum_bands: bool,
    backend: str,
) -> Tensor:
    _check(where, g, "z", z, (3, 4), weights, recurrence, scale)
    if z.size(1) != weights.size(0):
        raise checks.wrong_value(where, "z", f"of shape [N, {weights.size(0)}, ...], a band per filter", z)
    work = working_type(z)
    lap, steps = laplacian(g, work).transpose(), _shifted(recurrence, scale)
    gains = weights.to(z.device, work)
    kernels = _kernels(where, backend, z.device.type, z, weights)
    bands = (z if _reads_halves(kernels) else z.to(work)).flatten(2)
    if kernels is not None:
        out = kernels.synthesis(bands, lap, gains, [number for step in steps for number in step], sum_bands)
    else:
        out = reference.synthesis(bands, stepper(where, lap, "reference"), gains, steps, sum_bands)
    return out.reshape(z.size(0), *z.shape[2 if sum_bands else 1 :]).to(z.dtype)


def laplacian(g: Graph, dtype: torch.dtype) -> Laplacian:
    """``L = I - D^-1/2 W D^-1/2`` of a graph, in the precision of a signal."""
    t = g.transpose()
    weight, _, dinv = g.values(dtype)
    weight_t = weight if t is g else t.values(dtype)[0]
    return Laplacian(g.rowptr, g.col, weight, t.rowptr, t.col, weight_t, dinv, dinv, None)


def stepper(where: str, lap: Laplacian, backend: str) -> Step:
    """One application of `lap` to an ``[N, ...]`` signal, on the backend that serves the call."""

    def apply(x: Tensor, prev: Tensor | None, alpha: float, beta: float, gamma: float) -> Tensor:
        kernels = _kernels(where, backend, lap.rowptr.device.type, x, prev)
        step = reference.step if kernels is None else kernels.step
        before = None if prev is None else prev.flatten(1)
        return step(x.flatten(1), before, lap, alpha, beta, gamma).view(x.shape)

    return apply


def _kernels(where: str, backend: str, device: str, *values: Tensor | None) -> register.Kernels | None:
    """The operators with kernels that serve a call; None where the reference does."""
    serving = choose(where, "cheb", backend, device, *values)
    if serving == "reference":
        return None
    return register.compiled if serving == "cpp" else triton.kernels


def _reads_halves(kernels: register.Kernels | None) -> bool:
    return kernels is not None and kernels is not register.compiled


def _shifted(recurrence: Recurrence, scale: float) -> Recurrence:
    """The recurrence in L instead of ``Lhat = 2/pi scale L - I``."""
    return [(2 / math.pi * scale * a, b - a, c) for a, b, c in recurrence]


def _check_weights(where: str, name: str, weights: Tensor) -> None:
    checks.floating_tensor(where, name, weights)
    if weights.dim() != 2 or weights.size(0) < 1 or weights.size(1) < 1:
        raise checks.wrong_value(where, name, "of shape [R, n + 1], R and n + 1 at least 1", weights)


def _check(
    where: str,
    g: Graph,
    name: str,
    signal: Tensor,
    dims: tuple[int, int],
    weights: Tensor,
    recurrence: Recurrence,
    scale: float,
) -> None:
    if not isinstance(g, Graph):
        raise checks.wrong_type(where, "g", "a plufg_fast.Graph", g)
    checks.floating_tensor(where, name, signal)
    if signal.dim() not in dims or signal.size(0) != g.num_nodes:
        shape = "[{0}, C] or [{0}, B, C]" if dims == (2, 3) else "[{0}, R, C] or [{0}, R, B, C]"
        raise checks.wrong_value(where, name, "of shape " + shape.format(g.num_nodes), signal)
    checks.same_device(where, name, signal, "the graph", g.device)
    _check_weights(where, "weights", weights)
    if not all(isinstance(step, tuple | list) and len(step) == 3 for step in recurrence):
        raise checks.wrong_value(where, "recurrence", "a list of triples (a, b, c)", checks.Shown(recurrence))
    for step in recurrence:
        for entry in step:
            checks.number(where, "every entry of recurrence", entry)
    if weights.size(1) != len(recurrence) + 1:
        raise checks.wrong_value(
            where,
            "weights",
            f"of shape [R, {len(recurrence) + 1}], one more than the recurrence has steps",
            weights,
        )
    checks.number(where, "scale", scale, above=0.0)
