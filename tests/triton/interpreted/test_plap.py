"""The p-step's Triton kernels against the reference: the parity grid of the CPU kernels on small graphs."""

from typing import Any

import graphs
import pytest
import torch
import triton_forms
from ops import test_plap_step as grid
from torch import Tensor

from plufg_fast import Graph, ops
from plufg_fast.graph import _INT32_MAX
from plufg_fast.ops import backend, triton_rows
from plufg_fast.penalties import FORMULAS

NODES = 11
WIDTHS = [1, 3, 8, 17, 33, 130]
KINDS = ["unweighted", "self_loops", "directed", "directed_weighted_loops"]
BANDS = [(6, 0.0), (1, 0.3), (2, 0.0)]


def graph(kind: str) -> Graph:
    """Short rows, a row of several windows, a row without edges."""
    w = graphs.dense(kind, NODES)
    loop = w[0, 0].item()
    w[0] = 1 if kind in ("unweighted", "directed") else w[0] + 0.3
    w[0, 0] = loop
    w[5] = 0
    w[:, 5] = 0
    if not kind.startswith("directed"):
        w[:, 0] = w[0]
    g = graphs.from_dense(w)
    assert g.rowptr.diff().max() > triton_rows.LIMIT
    assert (g.weight is None) == (kind in ("unweighted", "directed"))
    return g


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "NODES", NODES)


def check(g: Graph, bands: int, width: int, dtype: torch.dtype, penalty: str, eps: float) -> None:
    args = grid.inputs(bands, width, dtype)
    grad = torch.randn(g.num_nodes, bands, width, dtype=dtype)
    options = {"penalty": penalty, "eps": eps}
    actual = grid.results("triton", args, g, grad, **options)
    wide = tuple(t.detach().double().requires_grad_() for t in args)
    exact = grid.results("reference", wide, g, grad.double(), **options)
    for name, a, b in zip(("value", "f", "y", "p", "mu"), exact, actual, strict=True):
        assert b.dtype == dtype
        assert grid.error(a, b) < grid.TOLERANCE[dtype][name], name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "penalty"), list(enumerate(FORMULAS)))
@pytest.mark.parametrize(("m", "kind"), list(enumerate(KINDS)))
def test_parity_of_values_and_gradients(m, kind, n, penalty, dtype) -> None:
    # All widths and numbers of bands take turns over graphs and penalties.
    bands, eps = BANDS[(m + n) % 3]
    check(graph(kind), bands, WIDTHS[(m + 2 * n + (dtype == torch.float32)) % 5], dtype, penalty, eps)


@pytest.mark.parametrize("penalty", ["power", "rtv"])
@pytest.mark.parametrize("width", [3, 130])
@pytest.mark.parametrize("kind", KINDS)
def test_parity_of_narrow_and_wide_signals(kind: str, width: int, penalty: str) -> None:
    check(graph(kind), 1, width, torch.float64 if kind.startswith("directed") else torch.float32, penalty, 0.0)
