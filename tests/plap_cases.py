"""The p-step with all its gradients, beside the reference: cases for every device that has kernels for it."""

from typing import Any

import graphs
import pytest
import torch
from torch import Tensor

import plufg_fast.graph
from plufg_fast import Graph, ops
from plufg_fast.penalties import FORMULAS

# Relative to the largest entry, or to 1 where that is smaller; measured at most 5e-7 for value and y, 1.1e-5 for f (as
# far off as the reference in float32: close neighbours), 2.3e-5 for p and mu (sums over all nodes of terms of
# either sign); in float64 6e-14.
TOLERANCE = {
    torch.float32: {"value": 1e-6, "y": 1e-6, "f": 2e-5, "p": 5e-5, "mu": 5e-5},
    torch.float64: dict.fromkeys(("value", "y", "f", "p", "mu"), 1e-12),
}
EXPONENTS = [1.0, 1.37, 1.5, 2.0, 2.5, 3.0]
PENALTIES = list(FORMULAS)
KINDS = ["unweighted", "self_loops", "directed", "directed_weighted_loops"]
NODES = 90


def graph(kind: str, index: torch.dtype, monkeypatch: pytest.MonkeyPatch, nodes: int = NODES) -> Graph:
    """Short rows, a row of more edges than kernels take at a time, a row without edges; self-loops if asked for."""
    if index == torch.int64:
        monkeypatch.setattr(plufg_fast.graph, "_INT32_MAX", 1)
    w = graphs.dense(kind, nodes)
    thin = torch.rand(nodes, nodes, generator=torch.Generator().manual_seed(1)) < 0.3
    w = w * (thin if kind.startswith("directed") else (thin & thin.T) | torch.eye(nodes, dtype=torch.bool))
    w[0] = torch.where(torch.arange(nodes) > 0, 1.0, w[0, 0])
    if not kind.startswith("directed"):
        w[:, 0] = w[0]
    w[5] = 0
    w[:, 5] = 0
    g = graphs.from_dense(w)
    assert g.col.dtype == index
    degrees = g.rowptr.diff()
    assert degrees.max() > 0.7 * nodes > 0.2 * nodes > degrees.median() > 1
    assert (g.weight is None) == (kind in ("unweighted", "directed"))
    return g


def results(name: str, inputs: tuple[Tensor, ...], g: Graph, grad: Tensor, **options: Any) -> list[Tensor]:
    """The step, and the gradients of f, y, p and mu."""
    f, y, p, mu = inputs
    out = ops.plap_step(f, y, g, p, mu, backend=name, **options)
    return [out.detach(), *torch.autograd.grad(out, inputs, grad)]


def error(expected: Tensor, actual: Tensor) -> float:
    return float((expected - actual).abs().max() / expected.abs().max().clamp(min=1))


def inputs(bands: int, width: int, dtype: torch.dtype, nodes: int = NODES) -> tuple[Tensor, ...]:
    """A signal with some equal neighbours, a source, and an exponent and a mu for every band."""
    f, y = (torch.randn(nodes, bands, width, dtype=dtype) for _ in range(2))
    f[10:20] = 0
    p = torch.tensor(EXPONENTS, dtype=dtype).roll(-2)[:bands]
    return tuple(t.requires_grad_() for t in (f, y, p, torch.linspace(0.5, 2, bands, dtype=dtype)))


def assert_parity(g: Graph, width: int, dtype: torch.dtype, penalty: str, device: str = "cpu") -> None:
    """Value and gradients of the compiled step on a device, against the reference in float64 of the same numbers."""
    # One band of every exponent that has its own path; two to five bands go through the CPU's kernel together.
    for bands, eps in ((6, 0.0), (1, 0.3), (2, 0.0)):
        args = inputs(bands, width, dtype, g.num_nodes)
        grad = torch.randn(g.num_nodes, bands, width, dtype=dtype)
        options = {"penalty": penalty, "eps": eps}
        there = tuple(t.detach().to(device).requires_grad_() for t in args)
        actual = results("cpp", there, g.to(device), grad.to(device), **options)
        exact = results(
            "reference", tuple(t.detach().double().requires_grad_() for t in args), g, grad.double(), **options
        )
        for name, a, b in zip(("value", "f", "y", "p", "mu"), exact, actual, strict=True):
            assert error(a, b.cpu()) < TOLERANCE[dtype][name], name


def assert_parity_at_ties(name: str, dtype: torch.dtype, penalty: str, device: str = "cpu") -> None:
    """Value and gradients where all edges of some nodes are at zero gradient: two nodes that have each other alone."""
    g = Graph(torch.tensor([[0, 1, 2, 3, 3, 4], [1, 0, 3, 2, 4, 3]]), 5)
    rng = torch.Generator().manual_seed(0)
    f, y, grad = torch.randn(3, 5, 2, 3, generator=rng, dtype=dtype)
    f[1] = f[0]
    args = (f, y, torch.tensor([2.0, 1.5], dtype=dtype), torch.tensor([0.5, 2.0], dtype=dtype))
    there, exact = ([t.to(*where).requires_grad_() for t in args] for where in ((device,), (torch.float64,)))
    actual = results(name, tuple(there), g.to(device), grad.to(device), penalty=penalty)
    expected = results("reference", tuple(exact), g, grad.double(), penalty=penalty)
    for what, a, b in zip(("value", "f", "y", "p", "mu"), expected, actual, strict=True):
        assert error(a, b.cpu()) < TOLERANCE[dtype][what], what
