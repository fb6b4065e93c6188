"""Polynomial filters and the framelet transform on them."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from plufg_fast import Framelet, Graph, ops
from plufg_fast.ops import backend

SERVING = [name for name, devices in backend.available().items() if "cheb" in devices["cpu"]]


@dataclass(frozen=True)
class Case:
    """One setting; what a case does not name is that of the base."""

    kind: str = "power law"
    nodes: int = 8_000
    edges: int = 100_000
    channels: int = 32
    degree: int = 3


CASES = {
    "base": Case(),
    "10k-edges": Case(nodes=800, edges=10_000),
    "1M-edges": Case(nodes=80_000, edges=1_000_000),
    "C=7": Case(channels=7),
    "C=64": Case(channels=64),
    "degree=7": Case(degree=7),
    "regular": Case(kind="regular"),
    "grid": Case(kind="grid"),
}
RUNS = [("cpp", case) for case in CASES] + [("reference", "base")]
FILTERS = 3

pytestmark = pytest.mark.parametrize(("name", "setting"), [pair for pair in RUNS if pair[0] in SERVING])


def test_analysis(timed: Callable[..., None], make_graph: Callable[..., Graph], name: str, setting: str) -> None:
    case = CASES[setting]
    g = make_graph(case.kind, case.nodes, case.edges)
    coeffs = torch.randn(FILTERS, case.degree + 1)
    timed(lambda x: ops.cheb_analysis(x, g, coeffs, backend=name), torch.randn(g.num_nodes, case.channels))


def test_synthesis(timed: Callable[..., None], make_graph: Callable[..., Graph], name: str, setting: str) -> None:
    case = CASES[setting]
    g = make_graph(case.kind, case.nodes, case.edges)
    coeffs = torch.randn(FILTERS, case.degree + 1)
    timed(lambda z: ops.cheb_synthesis(z, g, coeffs, backend=name), torch.randn(g.num_nodes, FILTERS, case.channels))


def test_framelet(timed: Callable[..., None], make_graph: Callable[..., Graph], name: str, setting: str) -> None:
    """There and back, on two levels."""
    case = CASES[setting]
    g = make_graph(case.kind, case.nodes, case.edges)
    framelet = Framelet("linear", levels=2, degree=case.degree, backend=name)
    timed(lambda x: framelet.synthesis(framelet.analysis(x, g), g), torch.randn(g.num_nodes, case.channels))
