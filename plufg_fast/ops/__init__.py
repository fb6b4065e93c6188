"""Operators on graph signals. Every one takes a `plufg_fast.Graph` and checks its arguments before it computes."""

from .cheb import (
    cheb_analysis,
    cheb_synthesis,
    chebyshev_recurrence,
    jacobi_recurrence,
    monomial_recurrence,
    poly_analysis,
    poly_synthesis,
)
from .plap import SolveInfo, divergence, edge_gradient, plap_energy, plap_solve, plap_step

__all__ = [
    "SolveInfo",
    "cheb_analysis",
    "cheb_synthesis",
    "chebyshev_recurrence",
    "divergence",
    "edge_gradient",
    "jacobi_recurrence",
    "monomial_recurrence",
    "plap_energy",
    "plap_solve",
    "plap_step",
    "poly_analysis",
    "poly_synthesis",
]
