r"""Graph framelets: filter banks, their Chebyshev approximation, and the multi-level transform.

A bank :math:`g_0, \dots, g_R` on :math:`[0, \pi]` with :math:`\sum_r g_r^2 = 1` splits a signal into bands. Level l
applies it to :math:`L s^{-(m+l)}`, and each level splits the low-pass band of the one before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from . import checks, ops
from .graph import Graph, expand_rows, may_keep
from .ops.backend import Backend, check_name
from .ops.sums import working_type

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array: TypeAlias = NDArray[np.float64]
Filter: TypeAlias = Callable[[Array], Array]
Scale: TypeAlias = Literal["fit", "none", "dyadic"]
Method: TypeAlias = Literal["chebyshev", "exact"]
Reconstruct: TypeAlias = Literal["adjoint", "forward"]

# Nodes of the quadrature for Chebyshev coefficients; exact for polynomial banks, converged for the smooth ones.
_ESTIMATE: Final = 1e-4
"""Relative accuracy of an estimated eigenvalue, by which it is raised to be a bound."""
_NODES: Final = 4096


def _haar() -> list[Filter]:
    return [lambda x: np.cos(x / 2), lambda x: np.sin(x / 2)]


def _linear() -> list[Filter]:
    return [
        lambda x: np.cos(x / 2) ** 2,
        lambda x: np.sin(x) / math.sqrt(2),
        lambda x: np.sin(x / 2) ** 2,
    ]


def _quadratic() -> list[Filter]:
    return [
        lambda x: np.cos(x / 2) ** 3,
        lambda x: math.sqrt(3) * np.sin(x / 2) * np.cos(x / 2) ** 2,
        lambda x: math.sqrt(3) * np.sin(x / 2) ** 2 * np.cos(x / 2),
        lambda x: np.sin(x / 2) ** 3,
    ]


def _sigmoid(sharpness: float = 20.0) -> list[Filter]:
    def high(x: Array) -> Array:
        return 1 / (1 + np.exp(-sharpness * (x / math.pi - 0.5)))

    return [lambda x: np.sqrt(1 - high(x)), lambda x: np.sqrt(high(x))]


def _entropy(height: float = 0.5) -> list[Filter]:
    def middle(x: Array) -> Array:
        t = x / math.pi
        return 4 * height * t * (1 - t)

    return [
        lambda x: np.sqrt(1 - middle(x)) * (x <= math.pi / 2),
        lambda x: np.sqrt(middle(x)),
        lambda x: np.sqrt(1 - middle(x)) * (x > math.pi / 2),
    ]


BANKS: Final[dict[str, Callable[[], list[Filter]]]] = {
    "haar": _haar,
    "linear": _linear,
    "quadratic": _quadratic,
    "sigmoid": _sigmoid,
    "entropy": _entropy,
}


def chebyshev_coefficients(function: Filter, degree: int) -> Array:
    r"""Coefficients of the Chebyshev series of a function on :math:`[0, \pi]`, cut at `degree`.

    The series is :math:`c_0/2 + \sum_{k \ge 1} c_k T_k(2x/\pi - 1)`.
    """
    angle = (np.arange(_NODES) + 0.5) * math.pi / _NODES
    values = np.asarray(function(math.pi / 2 * (np.cos(angle) + 1)), dtype=np.float64)
    coefficients: Array = 2 / _NODES * np.cos(np.outer(np.arange(degree + 1), angle)) @ values
    return coefficients


class Framelet:
    r"""A framelet transform of graph signals.

    Args:
        bank: ``"haar"``, ``"linear"``, ``"quadratic"``, ``"sigmoid"``, ``"entropy"``, or two or more functions of
            a numpy array on :math:`[0, \pi]`, low-pass first, whose squares sum to 1.
        levels: how many times the low-pass band is split (the paper's J + 1).
        degree: degree of the Chebyshev approximation.
        dilation: the base s > 1 by which the scale of the Laplacian falls from level to level.
        scale: ``"fit"`` maps ``lambda_max`` to pi, ``"none"`` leaves L as it is, ``"dyadic"`` divides it by the
            smallest integer power of ``dilation`` that brings ``lambda_max`` to pi or below.
        method: ``"chebyshev"``, or ``"exact"`` by eigendecomposition (undirected graphs, small ones).
        lambda_max: bound of the Laplacian's spectrum; 2 always holds for undirected graphs; ``"estimate"``
            computes the largest eigenvalue of each (undirected) graph, outside of compiled code: call it once
            with a graph before you compile.
        reconstruct: what `synthesis` applies: ``"adjoint"`` W^T, or ``"forward"`` W again, which reconstructs on a
            directed graph too. On undirected graphs they are the same.
        backend: ``"auto"``, ``"reference"``, ``"cpp"`` or ``"triton"``.
    """

    def __init__(
        self,
        bank: str | Sequence[Filter] = "linear",
        levels: int = 1,
        degree: int = 3,
        dilation: float = 2.0,
        scale: Scale = "fit",
        method: Method = "chebyshev",
        lambda_max: float | Literal["estimate"] = 2.0,
        reconstruct: Reconstruct = "forward",
        backend: Backend = "auto",
    ) -> None:
        where = "Framelet"
        checks.count(where, "levels", levels, least=1)
        checks.count(where, "degree", degree, least=1)
        checks.number(where, "dilation", dilation, above=1.0)
        checks.one_of(where, "scale", scale, ("fit", "none", "dyadic"))
        checks.one_of(where, "method", method, ("chebyshev", "exact"))
        checks.one_of(where, "reconstruct", reconstruct, ("adjoint", "forward"))
        check_name(where, backend)
        if lambda_max != "estimate":
            checks.number(where, "lambda_max", lambda_max, above=0.0)
        self.name = bank if isinstance(bank, str) else "custom"
        filters = _checked_bank(bank)
        # Named banks are looked up by name, so that a layer with one can be pickled.
        self._own_filters = None if isinstance(bank, str) else filters
        self.levels, self.degree, self.dilation = levels, degree, float(dilation)
        self.scale, self.method, self.lambda_max = scale, method, lambda_max
        self.reconstruct, self.backend = reconstruct, backend
        #: ``[R, degree + 1]`` Chebyshev coefficients of the bank, float64.
        self.coeffs = torch.from_numpy(np.stack([chebyshev_coefficients(g, degree) for g in filters]))
        #: ``(r, l)`` of every band, in the order of the transform: low-pass first, then by level.
        self.bands = [(0, levels - 1)] + [(r, level) for level in range(levels) for r in range(1, len(filters))]
        self.forget()

    def forget(self) -> None:
        """Drop what is kept for the last graph: its spectrum, and coefficients where signals were."""
        self._last: tuple[Graph | None, dict[Any, Any]] = None, {}
        self._kept: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        # A file or a copy of a network is not the place for a graph.
        return {**self.__dict__, "_last": (None, {}), "_kept": {}}

    @property
    def filters(self) -> list[Filter]:
        """The functions of the bank, low-pass first."""
        return BANKS[self.name]() if self._own_filters is None else self._own_filters

    @property
    def num_bands(self) -> int:
        """Number of bands B."""
        return len(self.bands)

    def analysis(self, x: Tensor, g: Graph) -> Tensor:
        """Split a signal into bands: ``[N, C] -> [N, B, C]``."""
        self._check("analysis", "x", x, g, 2)
        if self.method == "exact":
            vectors, gains = self._exact(g, x)  # [N, N], [N, B, 1]
            with torch.autocast(x.device.type, enabled=False):
                spectrum = (vectors.T @ x.to(gains)).unsqueeze(1)  # [N, 1, C]
                return (vectors @ (gains * spectrum).flatten(1)).view(-1, self.num_bands, x.size(1)).to(x)
        low, bands, coeffs = x, [], self._coeffs_for(x)
        for scale in self._scales(g):
            z = ops.cheb_analysis(low, g, coeffs, scale, self.backend)
            low = z[:, 0]
            bands.append(z[:, 1:])
        # The bands of a single level are in order already; joined anew they would be copied, as would their gradients.
        return torch.cat((low.unsqueeze(1), *bands), dim=1) if self.levels > 1 else z

    def synthesis(self, z: Tensor, g: Graph, sum_bands: bool = True) -> Tensor:
        """Put bands together again: ``[N, B, C] -> [N, C]``; without the sum, each band's part ``[N, B, C]``."""
        self._check("synthesis", "z", z, g, 3)
        if self.method == "exact":
            vectors, gains = self._exact(g, z)
            with torch.autocast(z.device.type, enabled=False):
                spectrum = gains * (vectors.T @ z.to(gains).flatten(1)).view(z.shape)
                spectrum = spectrum.sum(1, keepdim=True) if sum_bands else spectrum
                parts = (vectors @ spectrum.flatten(1)).view(spectrum.shape)
                return (parts.squeeze(1) if sum_bands else parts).to(z)
        # The synthesis operator is the adjoint; on the transposed graph its adjoint is the analysis operator.
        target = g if self.reconstruct == "adjoint" else g.transpose()
        coeffs = self._coeffs_for(z)
        high = coeffs.size(0) - 1
        # Deepest level first: what comes out of it is the low-pass input of the level above.
        low = z[:, :1]
        for level in range(self.levels - 1, -1, -1):
            bands = torch.cat((low, z[:, 1 + level * high :][:, :high]), dim=1) if self.levels > 1 else z
            # Without the sum, all bands from below pass the low-pass filter, each for itself.
            filters = torch.cat((coeffs[:1].expand(low.size(1), -1), coeffs[1:])) if low.size(1) > 1 else coeffs
            scale = self._scales(g)[level]
            low = ops.cheb_synthesis(bands, target, filters, scale, sum_bands, self.backend)
            low = low.unsqueeze(1) if sum_bands else low
        if sum_bands:
            return low.squeeze(1)
        return torch.cat([low[:, i : i + 1] for i in self._unfold_order()], dim=1) if self.levels > 1 else low

    def _unfold_order(self) -> list[int]:
        """Where each band of `bands` stands after the levels were gone through from the deepest up."""
        high = self.coeffs.size(0) - 1
        deepest_up = [(0, self.levels - 1)] + [
            (r, level) for level in range(self.levels - 1, -1, -1) for r in range(1, high + 1)
        ]
        return [deepest_up.index(band) for band in self.bands]

    def responses(self, eigenvalues: Array, lambda_max: float | None = None) -> Array:
        """``[B, K]`` the gain of every band at eigenvalues of L, as the chosen method applies it."""
        scales = self._level_scales(self._known_lambda_max() if lambda_max is None else lambda_max)
        low: Array = np.ones_like(eigenvalues)
        high: list[Array] = []
        for scale in scales:
            gains = self._bank_at(scale * eigenvalues)
            high.extend(low * gain for gain in gains[1:])
            low = low * gains[0]
        return np.stack([low, *high])

    def frame_error(self) -> float:
        """``max |sum_b W_b^2 - 1|`` over the spectrum: how far synthesis after analysis is from the identity."""
        spectrum = np.linspace(0, self._known_lambda_max(), 10_001)
        return float(np.abs((self.responses(spectrum) ** 2).sum(0) - 1).max())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the gain of every band over the spectrum, the bank's filters dashed."""
        import matplotlib.pyplot as plt

        if ax is None:
            ax = plt.subplots(layout="constrained")[1]
        top = self._known_lambda_max()
        spectrum = np.linspace(0, top, 501)
        exact = Framelet.__new__(Framelet)
        exact.__dict__.update(self.__dict__, method="exact")
        for (r, level), gain, ideal in zip(
            self.bands, self.responses(spectrum), exact.responses(spectrum), strict=True
        ):
            (line,) = ax.plot(spectrum, gain, label=f"r = {r}, level {level}")
            ax.plot(spectrum, ideal, "--", color=line.get_color(), linewidth=0.8)
        ax.set(xlabel="eigenvalue of L", ylabel="gain", xlim=(0, top))
        ax.set_title(f"{self.name}, degree {self.degree}: frame error {self.frame_error():.2g}")
        ax.legend()
        return ax

    def _bank_at(self, x: Array) -> list[Array]:
        if self.method == "exact":
            # Rounding may carry an eigenvalue a hair beyond the ends of the filters' interval.
            x = np.clip(x, 0.0, math.pi)
            return [np.asarray(g(x), dtype=np.float64) for g in self.filters]
        series = self.coeffs.numpy().copy()
        series[:, 0] /= 2
        return [np.polynomial.chebyshev.chebval(2 * x / math.pi - 1, c) for c in series]

    def _known_lambda_max(self) -> float:
        # Without a graph at hand "estimate" can only be bounded.
        return 2.0 if self.lambda_max == "estimate" else float(self.lambda_max)

    def _level_scales(self, lambda_max: float) -> list[float]:
        if self.scale == "fit":
            first = math.pi / lambda_max
        elif self.scale == "none":
            first = 1.0
        else:
            first = self.dilation ** -math.ceil(math.log(lambda_max / math.pi, self.dilation) - 1e-12)
        return [first * self.dilation**-level for level in range(self.levels)]

    def _scales(self, g: Graph) -> list[float]:
        if self.lambda_max != "estimate":
            return self._level_scales(self.lambda_max)
        return self._level_scales(self._remember(g, "lambda_max", estimate_lambda_max))

    def _coeffs_for(self, like: Tensor) -> Tensor:
        """`coeffs` where a signal is and as it is computed with, copied there once."""
        key = like.device, working_type(like)
        # What a compiler traces is no tensor to keep.
        if torch.compiler.is_compiling():
            return self.coeffs.to(*key)
        found = self._kept.get(key)
        if found is None:
            with torch.inference_mode(False):
                found = self.coeffs.to(*key)
            if may_keep():
                self._kept[key] = found
        return found

    def _exact(self, g: Graph, like: Tensor) -> tuple[Tensor, Tensor]:
        """Eigenvectors ``[N, N]`` and gains ``[N, B, 1]`` of a graph, where a signal is and as it is computed with."""
        to = like.device, working_type(like)

        def there(_: Graph) -> tuple[Tensor, Tensor]:
            values, vectors = self._remember(g, "eigh", _eigendecomposition)
            top = float(values[-1]) if self.lambda_max == "estimate" and values.numel() else None
            gains = torch.from_numpy(self.responses(values.numpy(), top)).T.unsqueeze(-1)
            return vectors.to(*to), gains.to(*to)

        found: tuple[Tensor, Tensor] = self._remember(g, to, there)
        return found

    def _remember(self, g: Graph, what: Any, compute: Callable[[Graph], Any]) -> Any:
        """A property of a graph's spectrum, computed once for the last graph."""
        graph, spectrum = self._last
        if graph is not g:
            spectrum = {}
            if may_keep():
                self._last = g, spectrum
        if what not in spectrum:
            # Training may follow a first call in inference mode.
            with torch.inference_mode(False):
                spectrum[what] = compute(g)
        return spectrum[what]

    def _check(self, method: str, name: str, value: Tensor, g: Graph, dims: int) -> None:
        where = f"Framelet.{method}"
        if not isinstance(g, Graph):
            raise checks.wrong_type(where, "g", "a plufg_fast.Graph", g)
        checks.floating_tensor(where, name, value)
        if value.dim() != dims or value.size(0) != g.num_nodes or (dims == 3 and value.size(1) != self.num_bands):
            shape = f"[{g.num_nodes}, C]" if dims == 2 else f"[{g.num_nodes}, {self.num_bands}, C]"
            raise checks.wrong_value(where, name, f"of shape {shape}", value)
        if self.method == "exact" and not g.is_undirected:
            raise checks.wrong_value(where, "g", "undirected for method 'exact'", checks.Shown(g))

    def __repr__(self) -> str:
        return (
            f"Framelet({self.name!r}, levels={self.levels}, degree={self.degree}, dilation={self.dilation:g}, "
            f"scale={self.scale!r}, method={self.method!r}, lambda_max={self.lambda_max!r}, "
            f"reconstruct={self.reconstruct!r}, backend={self.backend!r})"
        )


def _checked_bank(bank: Any) -> list[Filter]:
    if isinstance(bank, str):
        checks.one_of("Framelet", "bank", bank, BANKS)
        return BANKS[bank]()
    if not isinstance(bank, Sequence) or len(bank) < 2 or not all(callable(g) for g in bank):
        raise checks.wrong_type("Framelet", "bank", "a name or a sequence of two or more functions", bank)
    x = np.linspace(0, math.pi, 257)
    for r, g in enumerate(bank):
        values = np.asarray(g(x))
        if values.shape != x.shape or not np.isfinite(values).all():
            raise checks.wrong_value(
                "Framelet",
                f"bank[{r}]",
                "a function that maps an array on [0, pi] to finite values of its shape",
                checks.Shown(f"{values.dtype} values of shape {values.shape}"),
            )
    excess = float(np.abs(sum(np.asarray(g(x)) ** 2 for g in bank) - 1).max())
    if excess > 1e-6:
        raise checks.wrong_value(
            "Framelet", "bank", "functions whose squares sum to 1", checks.Shown(f"a sum that is off by {excess:.3g}")
        )
    return list(bank)


def dense_laplacian(g: Graph) -> Tensor:
    """``L`` as a dense float64 matrix on the CPU, for small graphs."""
    g = g.to("cpu")
    weight, _, dinv = g.values(torch.float64)
    adjacency = torch.zeros(g.num_nodes, g.num_nodes, dtype=torch.float64)
    row = expand_rows(g.rowptr, g.col)
    adjacency[row, g.col] = dinv.new_ones(g.num_edges) if weight is None else weight
    adjacency.fill_diagonal_(0)
    return torch.eye(g.num_nodes, dtype=torch.float64) - dinv.view(-1, 1) * adjacency * dinv


def _eigendecomposition(g: Graph) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(dense_laplacian(g))
    # Every component has an eigenvalue 0, which comes out as noise; a filter with a root there would amplify it.
    noise = 10 * max(g.num_nodes, 1) * torch.finfo(torch.float64).eps
    return torch.where(values.abs() < noise, 0, values), vectors


def estimate_lambda_max(g: Graph) -> float:
    """An upper bound of the largest eigenvalue of an undirected graph's Laplacian, by Lanczos iteration.

    It is above by 0.02 % at most; where the iteration does not get so far, as on long thin graphs, it is 2.
    """
    if not g.is_undirected:
        raise checks.wrong_value("Framelet", "lambda_max", "a number on a directed graph", "estimate")
    if g.num_nodes < 16:
        return float(_eigendecomposition(g)[0][-1]) if g.num_nodes else 2.0
    from scipy.sparse import csr_matrix
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    h = g.to("cpu")
    weight, _, dinv = h.values(torch.float64)
    row = expand_rows(h.rowptr, h.col)
    values = (1.0 if weight is None else weight) * dinv[row] * dinv[h.col]
    values[row == h.col] = 0
    if not bool(values.any()):
        return 1.0  # L is the identity
    adjacency = csr_matrix((values.numpy(), h.col.numpy(), h.rowptr.numpy()), shape=(h.num_nodes, h.num_nodes))
    # A fixed start makes the estimate the same on every run.
    start = np.random.default_rng(0).standard_normal(h.num_nodes)
    options = {"which": "SA", "v0": start, "tol": _ESTIMATE, "maxiter": 100, "return_eigenvectors": False}
    try:
        smallest = eigsh(adjacency, k=1, **options)[0]
    except ArpackNoConvergence:
        return 2.0
    return min(2.0, float(1 - smallest) * (1 + _ESTIMATE))
