r"""The penalties :math:`\phi` of the generalised p-Laplacian regulariser: one table that every backend follows.

The step needs :math:`z(x) = \phi'(x) / x^{p-1}` of a node's gradient norm x, its backward also
:math:`dz/dx` and :math:`dz/dp`. At x = 0 every edge norm of the node is 0 too. The weight of such an edge is
defined as 0 unless p = 2, where z takes its limit: a quadratic penalty weighs all edges alike. Derivatives are 0 there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import torch
from torch import Tensor

from . import checks

# (x, p, parameter) -> values; x > 0 is [N, B], p is [B].
Curve: TypeAlias = Callable[[Tensor, Tensor, float], Tensor]


class Formulas(NamedTuple):
    """What the kernels need to know of one penalty."""

    default: float | None  # value of the parameter, None if there is none
    phi: Curve
    z: Curve  # phi'(x) / x^(p-1)
    dz_dx: Curve
    depends_on_p: bool  # phi itself does; otherwise p enters z through x^(1-p) alone
    limit: Callable[[float], float]  # of z at x = 0 where p = 2, by the parameter; 0 if there is none

    def z_at_zero(self, p: Tensor, parameter: float) -> Tensor:
        """z where x = 0, ``[B]``."""
        return (p == 2).to(p.dtype) * self.limit(parameter)


FORMULAS: Final[dict[str, Formulas]] = {
    "power": Formulas(
        None,
        phi=lambda x, p, _: x**p,
        z=lambda x, p, _: p.expand_as(x),
        dz_dx=lambda x, p, _: torch.zeros_like(x),
        depends_on_p=True,
        limit=lambda _: 2.0,
    ),
    "tikhonov": Formulas(
        None,
        phi=lambda x, p, _: x * x,
        z=lambda x, p, _: 2 * x ** (2 - p),
        dz_dx=lambda x, p, _: 2 * (2 - p) * x ** (1 - p),
        depends_on_p=False,
        limit=lambda _: 2.0,
    ),
    "tv": Formulas(
        None,
        phi=lambda x, p, _: x,
        z=lambda x, p, _: x ** (1 - p),
        dz_dx=lambda x, p, _: (1 - p) * x**-p,
        depends_on_p=False,
        limit=lambda _: 0.0,
    ),
    "rtv": Formulas(
        0.01,
        phi=lambda x, p, e: (x * x + e * e).sqrt() - e,
        z=lambda x, p, e: x ** (2 - p) / (x * x + e * e).sqrt(),
        dz_dx=lambda x, p, e: ((2 - p) - x * x / (x * x + e * e)) * x ** (1 - p) / (x * x + e * e).sqrt(),
        depends_on_p=False,
        limit=lambda e: 1 / e,
    ),
    "nldiff": Formulas(
        1.0,
        phi=lambda x, p, r: r * r * torch.log1p(x * x / (r * r)),
        z=lambda x, p, r: 2 * x ** (2 - p) / (1 + x * x / (r * r)),
        dz_dx=lambda x, p, r: 2 * x ** (1 - p) / (1 + x * x / (r * r)) * ((2 - p) - 2 * x * x / (r * r + x * x)),
        depends_on_p=False,
        limit=lambda _: 2.0,
    ),
}


@dataclass(frozen=True)
class Penalty:
    r"""A penalty by name, with the value of its parameter.

    ==========  ============================================  ======================================
    name        :math:`\phi(x)`                               parameter
    ==========  ============================================  ======================================
    power       :math:`x^p`                                   none
    tikhonov    :math:`x^2`                                   none
    tv          :math:`x`                                     none
    rtv         :math:`\sqrt{x^2 + e^2} - e`                  e, 0.01 by default
    nldiff      :math:`r^2 \log(1 + x^2/r^2)`                 r, 1 by default
    ==========  ============================================  ======================================

    ``nldiff`` is not convex beyond x = r: there the iteration may settle in a local minimum.
    """

    name: str
    parameter: float | None = None

    def __post_init__(self) -> None:
        checks.one_of("Penalty", "name", self.name, FORMULAS)
        default = FORMULAS[self.name].default
        if self.parameter is None:
            object.__setattr__(self, "parameter", default)
        elif default is None:
            raise checks.wrong_value("Penalty", "parameter", f"None for {self.name!r}", self.parameter)
        else:
            checks.number("Penalty", "parameter", self.parameter, above=0.0)


def resolve(where: str, penalty: str | Penalty) -> Penalty:
    """A `Penalty` from its name, or the one given."""
    if isinstance(penalty, Penalty):
        return penalty
    checks.one_of(where, "penalty", penalty, FORMULAS)
    return Penalty(penalty)
