"""Polynomial filters of the Laplacian against dense matrices, and analysis against synthesis."""

import math

import graphs
import pytest
import scipy.special
import torch
from torch import Tensor
from torch.autograd import gradcheck

from plufg_fast import Graph, ops
from plufg_fast.ops import backend

BACKENDS = [
    pytest.param("reference"),
    pytest.param(
        "cpp",
        marks=pytest.mark.skipif("cheb" not in backend.available()["cpp"]["cpu"], reason="the extension is not built"),
    ),
]


def dense_filters(lap: Tensor, coeffs: Tensor, scale: float) -> Tensor:
    """``[R, N, N]`` the filters as explicit matrices."""
    eye = torch.eye(lap.size(0), dtype=lap.dtype)
    shifted = 2 / math.pi * scale * lap - eye
    terms = [eye, shifted]
    while len(terms) < coeffs.size(1):
        terms.append(2 * shifted @ terms[-1] - terms[-2])
    weights = coeffs.clone()
    weights[:, 0] /= 2
    return torch.einsum("rk,kij->rij", weights, torch.stack(terms[: coeffs.size(1)]))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("degree", [0, 1, 2, 5])
@pytest.mark.parametrize("kind", graphs.ALL)
def test_matches_explicit_matrix_polynomials(kind: str, degree: int, backend: str) -> None:
    w = graphs.dense(kind)
    g = graphs.from_dense(w)
    coeffs = torch.randn(3, degree + 1, dtype=torch.float64)
    filters = dense_filters(graphs.laplacian(w), coeffs, 1.3)
    x = torch.randn(11, 4, dtype=torch.float64)
    z = ops.cheb_analysis(x, g, coeffs, 1.3, backend=backend)
    torch.testing.assert_close(z, torch.einsum("rij,jc->irc", filters, x), rtol=1e-12, atol=1e-12)

    z = torch.randn_like(z)
    parts = torch.einsum("rji,jrc->irc", filters, z)
    out = ops.cheb_synthesis(z, g, coeffs, 1.3, backend=backend)
    torch.testing.assert_close(out, parts.sum(1), rtol=1e-12, atol=1e-12)
    out = ops.cheb_synthesis(z, g, coeffs, 1.3, sum_bands=False, backend=backend)
    torch.testing.assert_close(out, parts, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", graphs.ALL)
def test_synthesis_is_the_adjoint_of_analysis(kind: str, backend: str) -> None:
    g = graphs.graph(kind)
    coeffs = torch.randn(3, 8, dtype=torch.float64)
    x = torch.randn(11, 2, 3, dtype=torch.float64)
    z = torch.randn(11, 3, 2, 3, dtype=torch.float64)
    left = (ops.cheb_analysis(x, g, coeffs, 0.9, backend=backend) * z).sum()
    right = (ops.cheb_synthesis(z, g, coeffs, 0.9, backend=backend) * x).sum()
    torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)


def test_the_transposed_graph_gives_the_forward_operator() -> None:
    g = graphs.graph("directed_weighted_loops")
    coeffs = torch.randn(1, 5, dtype=torch.float64)
    x = torch.randn(11, 3, dtype=torch.float64)
    forward = ops.cheb_synthesis(x.unsqueeze(1), g.transpose(), coeffs)
    torch.testing.assert_close(forward, ops.cheb_analysis(x, g, coeffs)[:, 0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("recurrence", "values"),
    [
        (ops.chebyshev_recurrence(6), lambda k, x: scipy.special.eval_chebyt(k, x)),
        (ops.monomial_recurrence(6), lambda k, x: x**k),
        (ops.jacobi_recurrence(6, 0.5, 1.5), lambda k, x: scipy.special.eval_jacobi(k, 0.5, 1.5, x)),
        (ops.jacobi_recurrence(6, 0.0, 0.0), lambda k, x: scipy.special.eval_legendre(k, x)),
    ],
    ids=["chebyshev", "monomial", "jacobi", "legendre"],
)
def test_recurrences_make_the_polynomials_they_are_named_after(recurrence, values) -> None:
    w = graphs.dense("weighted")
    eigenvalues, vectors = torch.linalg.eigh(2 / math.pi * graphs.laplacian(w) - torch.eye(11).double())
    x = torch.randn(11, 2, dtype=torch.float64)
    z = ops.poly_analysis(x, graphs.from_dense(w), torch.eye(7, dtype=torch.float64), recurrence)
    for k in range(7):
        gains = torch.as_tensor(values(k, eigenvalues.numpy()))
        torch.testing.assert_close(z[:, k], vectors @ (gains[:, None] * (vectors.T @ x)), rtol=1e-10, atol=1e-10)


def test_monomials_of_the_normalised_adjacency() -> None:
    # What SGC, APPNP and GPR filters are made of.
    w = graphs.dense("weighted")
    adjacency = torch.eye(11).double() - graphs.laplacian(w)
    x = torch.randn(11, 2, dtype=torch.float64)
    weights = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64)
    z = ops.poly_analysis(x, graphs.from_dense(w), weights, ops.monomial_recurrence(2, -1.0), math.pi / 2)
    expected = 0.5 * x + 0.3 * adjacency @ x + 0.2 * adjacency @ adjacency @ x
    torch.testing.assert_close(z[:, 0], expected, rtol=1e-12, atol=1e-12)


def test_poly_synthesis_is_the_adjoint_of_poly_analysis() -> None:
    g = graphs.graph("directed_weighted_loops")
    recurrence, weights = ops.jacobi_recurrence(4, 0.3, -0.4), torch.randn(3, 5, dtype=torch.float64)
    x, z = torch.randn(11, 2, dtype=torch.float64), torch.randn(11, 3, 2, dtype=torch.float64)
    left = (ops.poly_analysis(x, g, weights, recurrence) * z).sum()
    torch.testing.assert_close(left, (ops.poly_synthesis(z, g, weights, recurrence) * x).sum(), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["self_loops", "directed_weighted_loops"])
def test_gradients_of_general_recurrences(kind: str, backend: str) -> None:
    g, recurrence = graphs.graph(kind, num_nodes=7), ops.jacobi_recurrence(3, 0.3, -0.2)
    x = torch.randn(7, 2, dtype=torch.float64, requires_grad=True)
    z = torch.randn(7, 2, 2, dtype=torch.float64, requires_grad=True)
    w = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, w: ops.poly_analysis(x, g, w, recurrence, 1.2, backend), (x, w))
    assert gradcheck(lambda z, w: ops.poly_synthesis(z, g, w, recurrence, 1.2, True, backend), (z, w))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["self_loops", "directed_weighted_loops"])
def test_gradients_in_signal_and_coefficients(kind: str, backend: str) -> None:
    g = graphs.graph(kind, num_nodes=7)
    x = torch.randn(7, 2, dtype=torch.float64, requires_grad=True)
    z = torch.randn(7, 2, 2, dtype=torch.float64, requires_grad=True)
    c = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, c: ops.cheb_analysis(x, g, c, 1.2, backend), (x, c))
    for sum_bands in (True, False):
        assert gradcheck(lambda z, c, s=sum_bands: ops.cheb_synthesis(z, g, c, 1.2, s, backend), (z, c))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 3, 17, 32])
def test_backends_agree(width: int, dtype: torch.dtype) -> None:
    if "cheb" not in backend.available()["cpp"]["cpu"]:
        pytest.skip("the extension is not built")
    g = graphs.graph("hub", num_nodes=150)
    x, c = torch.randn(150, width, dtype=dtype), torch.randn(3, 6, dtype=dtype)
    a, b = (ops.cheb_analysis(x, g, c, backend=name) for name in ("reference", "cpp"))
    # Measured worst relative error: 3e-7 (float32), 6e-16 (float64).
    tolerance = 2e-6 if dtype == torch.float32 else 1e-14
    assert float((a - b).norm() / a.norm()) < tolerance


@pytest.mark.parametrize("backend", BACKENDS)
def test_compiles_as_one_graph_forward_and_backward(backend: str) -> None:
    g = graphs.graph("directed_weighted_loops")
    x = torch.randn(11, 3, dtype=torch.float64, requires_grad=True)
    c = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)

    def run(x: Tensor, c: Tensor) -> Tensor:
        return ops.cheb_synthesis(ops.cheb_analysis(x, g, c, 1.1, backend).relu(), g, c, 1.1, True, backend)

    eager, compiled = run(x, c), torch.compile(run, fullgraph=True, backend="aot_eager")(x, c)
    torch.testing.assert_close(eager, compiled, rtol=1e-12, atol=1e-12)
    grad = torch.randn_like(eager)
    for a, b in zip(torch.autograd.grad(eager, (x, c), grad), torch.autograd.grad(compiled, (x, c), grad), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("backend", BACKENDS)
def test_isolated_nodes_see_the_identity_row(backend: str) -> None:
    w = torch.zeros(3, 3, dtype=torch.float64)
    w[0, 1] = w[1, 0] = 1
    w[2, 2] = 5.0  # a self-loop alone leaves a node isolated for the Laplacian
    coeffs = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    x = torch.ones(3, 1, dtype=torch.float64)
    z = ops.cheb_analysis(x, graphs.from_dense(w), coeffs, math.pi / 2, backend=backend)
    torch.testing.assert_close(z.flatten(), torch.tensor([-1.0, -1.0, 0.0], dtype=torch.float64))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(0, 4), (5, 0)])
def test_empty_signals(shape: tuple[int, int], backend: str) -> None:
    g = Graph(torch.empty(2, 0, dtype=torch.int64), shape[0])
    z = ops.cheb_analysis(torch.randn(shape), g, torch.randn(2, 3), backend=backend)
    assert z.shape == (shape[0], 2, shape[1])
    assert ops.cheb_synthesis(z, g, torch.randn(2, 3), backend=backend).shape == shape


def test_half_precision_is_storage_only() -> None:
    g, c = graphs.graph("weighted"), torch.randn(2, 4)
    x = torch.randn(11, 3).bfloat16()
    z = ops.cheb_analysis(x, g, c)
    assert z.dtype == torch.bfloat16
    assert torch.equal(z, ops.cheb_analysis(x.float(), g, c).bfloat16())


def test_forward_mode_is_right_or_refused() -> None:
    g, x = graphs.graph("weighted"), torch.randn(2, 11, 3, dtype=torch.float64)
    coeffs = torch.randn(2, 4, dtype=torch.float64)
    _, tangent = torch.func.jvp(lambda x: ops.cheb_analysis(x, g, coeffs), (x[0],), (x[1],))
    # Linear in the signal.
    torch.testing.assert_close(tangent, ops.cheb_analysis(x[1], g, coeffs))
    if "cheb" in backend.available()["cpp"]["cpu"]:
        with pytest.raises(backend.BackendError, match=r"no rules for the transforms of torch\.func"):
            torch.func.jvp(lambda x: ops.cheb_analysis(x, g, coeffs, backend="cpp"), (x[0],), (x[1],))
