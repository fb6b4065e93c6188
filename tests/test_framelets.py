"""The framelet transform against eigendecompositions, tightness, and the figures the docs state."""

import gc
import math
import pickle
import weakref
from typing import Any, Literal

import graphs
import matplotlib
import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx

from plufg_fast import Framelet, Graph
from plufg_fast.framelets import BANKS, Method, chebyshev_coefficients, dense_laplacian, estimate_lambda_max

SMOOTH = ["haar", "linear", "quadratic"]


def spectral_bands(lap: Tensor, x: Tensor, bank: str, scales: list[float]) -> Tensor:
    """``[N, B, C]`` from the definition W_{r,l} = g_r(s_l L) g_0(s_{l-1} L) ... g_0(s_0 L)."""
    eigenvalues, vectors = np.linalg.eigh(lap.numpy())
    eigenvalues[np.abs(eigenvalues) < 1e-13] = 0  # exact zeros, one per component
    filters = BANKS[bank]()

    def apply(gain: np.ndarray) -> Tensor:
        return torch.from_numpy(vectors @ (gain[:, None] * (vectors.T @ x.numpy())))

    low, bands = np.ones_like(eigenvalues), []
    for scale in scales:
        bands += [apply(low * g(scale * eigenvalues)) for g in filters[1:]]
        low = low * filters[0](scale * eigenvalues)
    return torch.stack([apply(low), *bands], dim=1)


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("bank", SMOOTH)
@pytest.mark.parametrize("kind", ["weighted", "self_loops", "isolated"])
def test_high_degree_matches_the_eigendecomposition(kind: str, bank: str, levels: int) -> None:
    w = graphs.dense(kind)
    g, x = graphs.from_dense(w), torch.randn(11, 3, dtype=torch.float64)
    framelet = Framelet(bank, levels=levels, degree=24)
    scales = [math.pi / 2 * 2.0**-level for level in range(levels)]
    expected = spectral_bands(graphs.laplacian(w), x, bank, scales)
    torch.testing.assert_close(framelet.analysis(x, g), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("bank", list(BANKS))
def test_exact_method_is_the_definition_and_a_tight_frame(bank: str, levels: int) -> None:
    w = graphs.dense("weighted")
    g, x = graphs.from_dense(w), torch.randn(11, 3, dtype=torch.float64)
    framelet = Framelet(bank, levels=levels, method="exact", dilation=1.5)
    scales = [math.pi / 2 * 1.5**-level for level in range(levels)]
    z = framelet.analysis(x, g)
    torch.testing.assert_close(z, spectral_bands(graphs.laplacian(w), x, bank, scales), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(framelet.synthesis(z, g), x, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(z.square().sum(), x.square().sum())
    assert framelet.frame_error() < 1e-14


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("method", ["chebyshev", "exact"])
def test_synthesis_is_the_adjoint_and_the_sum_of_its_parts(method: str, levels: int) -> None:
    g = graphs.graph("self_loops")
    framelet = Framelet("quadratic", levels=levels, degree=4, method=method, reconstruct="adjoint")
    x = torch.randn(11, 3, dtype=torch.float64)
    z = torch.randn(11, framelet.num_bands, 3, dtype=torch.float64)
    out = framelet.synthesis(z, g)
    torch.testing.assert_close((framelet.analysis(x, g) * z).sum(), (out * x).sum(), rtol=1e-12, atol=1e-12)
    parts = framelet.synthesis(z, g, sum_bands=False)
    torch.testing.assert_close(parts.sum(1), out, rtol=1e-12, atol=1e-12)
    for b in range(framelet.num_bands):
        alone = torch.zeros_like(z)
        alone[:, b] = z[:, b]
        torch.testing.assert_close(parts[:, b], framelet.synthesis(alone, g), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("bank", "percent"), [("haar", 0.4), ("linear", 2.8), ("sigmoid", 24)])
def test_frame_error_at_degree_3_is_the_documented_one(bank: str, percent: float) -> None:
    shown = 100 * Framelet(bank, degree=3).frame_error()
    assert f"{shown:.2g}" in {f"{percent:.2g}", f"{percent}"} or round(shown, 1) == percent


def test_entropy_bank_never_converges() -> None:
    assert all(Framelet("entropy", degree=n).frame_error() > 0.1 for n in (3, 7, 31))
    assert Framelet("haar", degree=7).frame_error() < 1e-7


@pytest.mark.parametrize("levels", [1, 2])
def test_frame_error_bounds_what_reconstruction_loses(levels: int) -> None:
    g, x = graphs.graph("hub"), torch.randn(11, 3, dtype=torch.float64)
    framelet = Framelet("sigmoid", levels=levels, degree=3)
    again = framelet.synthesis(framelet.analysis(x, g), g)
    assert float((again - x).norm()) <= framelet.frame_error() * float(x.norm()) * (1 + 1e-12)


@pytest.mark.parametrize("bank", list(BANKS))
def test_banks_are_partitions_of_unity_from_low_to_high(bank: str) -> None:
    x = np.linspace(0, math.pi, 1001)
    gains = np.stack([g(x) for g in BANKS[bank]()])
    np.testing.assert_allclose((gains**2).sum(0), 1, rtol=0, atol=1e-14)
    assert gains[0, 0] > 0.99
    assert gains[-1, -1] > 0.99


@pytest.mark.parametrize("degree", [2, 3, 7])
def test_coefficients_are_those_of_numpys_fit(degree: int) -> None:
    # Interpolation at many nodes and cutting the series agrees with our quadrature.
    expected = np.polynomial.chebyshev.chebinterpolate(lambda t: np.cos((t + 1) * math.pi / 4), 40)[: degree + 1]
    expected[0] *= 2
    np.testing.assert_allclose(chebyshev_coefficients(BANKS["haar"]()[0], degree), expected, rtol=0, atol=1e-14)


def test_directed_graph_is_reconstructed_by_applying_the_filters_again() -> None:
    g = graphs.graph("directed_weighted_loops")
    x = torch.randn(11, 3, dtype=torch.float64)
    forward = Framelet("linear", levels=2, degree=20)
    torch.testing.assert_close(forward.synthesis(forward.analysis(x, g), g), x, rtol=1e-8, atol=1e-8)
    adjoint = Framelet("linear", levels=2, degree=20, reconstruct="adjoint")
    assert float((adjoint.synthesis(adjoint.analysis(x, g), g) - x).norm()) > 1e-2


def test_adjoint_and_forward_are_one_on_an_undirected_graph() -> None:
    g, x = graphs.graph("weighted"), torch.randn(11, 5, 3, dtype=torch.float64)
    kinds = (Framelet("linear", levels=2, reconstruct=kind).synthesis(x, g) for kind in ("adjoint", "forward"))
    assert torch.equal(*kinds)


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"scale": "fit"}, math.pi / 2),
        ({"scale": "none"}, 1.0),
        ({"scale": "dyadic"}, 1.0),
        ({"scale": "dyadic", "lambda_max": 7.0}, 0.25),
        ({"scale": "dyadic", "lambda_max": math.pi / 4}, 4.0),
        ({"scale": "dyadic", "dilation": 3.0, "lambda_max": 7.0}, 1 / 3),
        ({"scale": "fit", "lambda_max": 1.5}, math.pi / 1.5),
    ],
)
def test_scales_of_the_levels(options: dict[str, object], first: float) -> None:
    framelet = Framelet("haar", levels=2, **options)
    assert framelet._level_scales(framelet._known_lambda_max()) == pytest.approx([first, first / framelet.dilation])


@pytest.mark.parametrize("method", ["chebyshev", "exact"])
@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"scale": "none"}, 1.0),
        ({"scale": "none", "lambda_max": 1.9}, 1.0),
        ({"scale": "dyadic", "dilation": 3.0, "lambda_max": 7.0}, 1 / 3),
        ({"scale": "dyadic", "lambda_max": 1.9, "dilation": 1.25}, 1.25**2),
        ({"scale": "fit", "lambda_max": 1.9}, math.pi / 1.9),
        ({"scale": "fit", "lambda_max": 3.0}, math.pi / 3),
    ],
)
def test_scale_and_lambda_max_reach_the_transform(options: dict[str, Any], first: float, method: Method) -> None:
    w = graphs.dense("weighted")
    g, x = graphs.from_dense(w), torch.randn(11, 3, dtype=torch.float64)
    # Within the filters' interval, where the series converges: the eigenvalues end at 1.70.
    assert first * torch.linalg.eigvalsh(graphs.laplacian(w))[-1] < math.pi
    framelet = Framelet("haar", levels=2, degree=24, method=method, **options)
    expected = spectral_bands(graphs.laplacian(w), x, "haar", [first, first / framelet.dilation])
    z = framelet.analysis(x, g)
    torch.testing.assert_close(z, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(framelet.synthesis(z, g), x, rtol=1e-10, atol=1e-10)


def test_bands_are_named_in_order() -> None:
    assert Framelet("linear", levels=1).bands == [(0, 0), (1, 0), (2, 0)]
    assert Framelet("haar", levels=3).bands == [(0, 2), (1, 0), (1, 1), (1, 2)]


def test_lambda_max_estimate_is_a_bound_close_to_the_largest_eigenvalue() -> None:
    for num_nodes in (11, 60):
        w = graphs.dense("self_loops", num_nodes)
        exact = float(torch.linalg.eigvalsh(graphs.laplacian(w))[-1])
        assert exact * (1 - 1e-12) <= estimate_lambda_max(graphs.from_dense(w)) <= exact * (1 + 2e-4)


def test_lambda_max_estimate_that_does_not_converge_is_the_bound_of_all_graphs() -> None:
    # The eigenvalues of a long path crowd at the ends.
    ends = torch.arange(5000)
    path = torch.stack((ends[:-1], ends[1:]))
    graph = Graph(torch.cat((path, path.flip(0)), dim=1))
    assert estimate_lambda_max(graph) == 2.0


def test_lambda_max_estimate_without_edges() -> None:
    assert estimate_lambda_max(Graph(torch.empty(2, 0, dtype=torch.int64), 20)) == 1.0
    assert estimate_lambda_max(Graph(torch.empty(2, 0, dtype=torch.int64), 3)) == pytest.approx(1.0)


def test_estimated_scale_follows_the_graph() -> None:
    x = torch.randn(11, 2, dtype=torch.float64)
    estimating, exact = (
        Framelet("haar", degree=24, lambda_max="estimate"),
        Framelet("haar", method="exact", lambda_max="estimate"),
    )
    for kind in ("weighted", "hub"):
        g = graphs.graph(kind)
        torch.testing.assert_close(estimating.analysis(x, g), exact.analysis(x, g), rtol=1e-9, atol=1e-9)


def test_users_own_bank() -> None:
    own = Framelet([lambda x: np.cos(x / 2), lambda x: np.sin(x / 2)], degree=5)
    g, x = graphs.graph("weighted"), torch.randn(11, 2, dtype=torch.float64)
    assert torch.equal(own.analysis(x, g), Framelet("haar", degree=5).analysis(x, g))
    assert own.name == "custom"


def test_gradient_flows_through_both_transforms() -> None:
    g = graphs.graph("directed_weighted_loops", num_nodes=7)
    framelet = Framelet("haar", levels=2)
    x = torch.randn(7, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: framelet.synthesis(framelet.analysis(x, g), g, sum_bands=False), (x,))
    exact = Framelet("haar", levels=2, method="exact")
    h = graphs.graph("weighted", num_nodes=7)
    assert torch.autograd.gradcheck(lambda x: exact.synthesis(exact.analysis(x, h), h), (x,))


def test_dense_laplacian_of_every_graph() -> None:
    for kind in graphs.ALL:
        w = graphs.dense(kind)
        torch.testing.assert_close(dense_laplacian(graphs.from_dense(w)), graphs.laplacian(w))
        out = dense_laplacian(graphs.from_dense(w, laplacian_degree="out"))
        torch.testing.assert_close(out, graphs.laplacian(w, "out"))


def test_plot_draws_every_band() -> None:
    matplotlib.use("Agg")
    framelet = Framelet("quadratic", levels=2)
    ax = framelet.plot()
    assert len(ax.lines) == 2 * framelet.num_bands
    assert "frame error" in ax.get_title()
    matplotlib.pyplot.close("all")


def test_plot_shows_what_is_applied_and_dashed_what_is_meant() -> None:
    matplotlib.use("Agg")
    framelet = Framelet("haar", degree=1)
    meant, applied = (np.asarray(line.get_ydata()) for line in framelet.plot().lines[1::-1])
    spectrum = np.linspace(0, 2, 501)
    ideal = np.cos(math.pi / 4 * spectrum)  # cos(x / 2), lambda_max at pi
    np.testing.assert_allclose(meant, ideal, atol=1e-14)
    # A line is far from a cosine: c_0 / 2 + c_1 (x - 1) of the series.
    nodes = np.cos((np.arange(40) + 0.5) * math.pi / 40)
    values = np.cos((nodes + 1) * math.pi / 4)
    line = values.mean() + 2 * (values * nodes).mean() * (spectrum - 1)
    np.testing.assert_allclose(applied, line, atol=1e-12)
    assert np.abs(line - ideal).max() > 0.05
    matplotlib.pyplot.close("all")


def test_repr_names_the_configuration() -> None:
    text = repr(Framelet("haar", levels=2, degree=5))
    assert text == (
        "Framelet('haar', levels=2, degree=5, dilation=2, scale='fit', method='chebyshev', lambda_max=2.0, "
        "reconstruct='forward', backend='auto')"
    )


@pytest.mark.parametrize("method", ["chebyshev", "exact"])
def test_half_precision_is_storage_only(method: str) -> None:
    g, framelet = graphs.graph("weighted").to(torch.float32), Framelet("haar", degree=7, method=method)
    x = torch.randn(11, 3).bfloat16()
    z = framelet.analysis(x, g)
    assert torch.equal(z, framelet.analysis(x.float(), g).bfloat16())
    for sum_bands in (True, False):
        expected = framelet.synthesis(z.float(), g, sum_bands).bfloat16()
        assert torch.equal(framelet.synthesis(z, g, sum_bands), expected)


@pytest.mark.parametrize("method", ["chebyshev", "exact"])
def test_autocast_leaves_the_transform_alone(method: Literal["chebyshev", "exact"]) -> None:
    g, x = graphs.graph("weighted"), torch.randn(11, 3, generator=torch.Generator().manual_seed(0))
    framelet = Framelet("linear", 2, method=method)
    z = framelet.analysis(x, g)
    back = framelet.synthesis(z, g)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(framelet.analysis(x, g), z)
        assert torch.equal(framelet.synthesis(z, g), back)


def test_nothing_of_a_graph_is_saved_or_left_after_forgetting() -> None:
    g = Graph(torch.randint(0, 300, (2, 900), generator=torch.Generator().manual_seed(0)), 300)
    g = Graph(torch.cat((g.edge_index, g.edge_index.flip(0)), 1), 300)
    framelet = Framelet("linear", method="exact")
    fresh = len(pickle.dumps(framelet))
    expected = framelet.analysis(torch.ones(300, 1), g)
    assert len(pickle.dumps(framelet)) == fresh
    assert torch.equal(pickle.loads(pickle.dumps(framelet)).analysis(torch.ones(300, 1), g), expected)
    watched = weakref.ref(g)
    del g
    assert watched() is not None
    framelet.forget()
    gc.collect()
    assert watched() is None


def test_coefficients_are_brought_to_the_signal_once_and_can_be_trained_through() -> None:
    g, framelet, x = graphs.graph("weighted"), Framelet("haar", levels=2), torch.randn(11, 3)
    with torch.inference_mode():
        expected = framelet.synthesis(framelet.analysis(x, g), g)
    kept = framelet._coeffs_for(x)
    assert kept is framelet._coeffs_for(x)
    assert framelet._coeffs_for(x.double()).dtype == torch.float64
    weight = torch.ones(3, requires_grad=True)
    out = framelet.synthesis(framelet.analysis(x * weight, g), g)
    assert torch.equal(out, expected)
    out.sum().backward()
    assert weight.grad is not None


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_what_is_traced_without_values_is_not_kept_for_later_calls(mode: str) -> None:
    g, framelet, x = graphs.graph("weighted"), Framelet("haar", levels=2), torch.randn(11, 3)
    make_fx(lambda x: framelet.analysis(x, g), tracing_mode=mode, _allow_non_fake_inputs=True)(x)
    found = framelet.analysis(x, g)
    assert not isinstance(found, FakeTensor)
    assert torch.equal(found, Framelet("haar", levels=2).analysis(x, graphs.graph("weighted")))
