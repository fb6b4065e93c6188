"""The p-Laplacian step and its solver."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from plufg_fast import Graph, ops
from plufg_fast.ops import backend

SERVING = [name for name, devices in backend.available().items() if "plap" in devices["cpu"]]


@dataclass(frozen=True)
class Case:
    """One setting; what a case does not name is that of the base."""

    kind: str = "power law"
    nodes: int = 8_000
    edges: int = 100_000
    bands: int = 1
    channels: int = 32
    p: float = 1.5


CASES = {
    "base": Case(),
    "10k-edges": Case(nodes=800, edges=10_000),
    "1M-edges": Case(nodes=80_000, edges=1_000_000),
    "C=7": Case(channels=7),
    "C=64": Case(channels=64),
    "3-bands": Case(bands=3),
    "p=1": Case(p=1.0),
    "p=1.37": Case(p=1.37),
    "p=2": Case(p=2.0),
    "p=2.5": Case(p=2.5),
    "regular": Case(kind="regular"),
    "grid": Case(kind="grid"),
}
# The reference is slow and tells little about sizes and shapes.
STEPS = [("cpp", case) for case in CASES] + [("reference", "base")]


def signal(case: Case, g: Graph) -> torch.Tensor:
    return torch.randn(g.num_nodes, case.bands, case.channels)


@pytest.mark.parametrize(("name", "setting"), [pair for pair in STEPS if pair[0] in SERVING])
def test_step(timed: Callable[..., None], make_graph: Callable[..., Graph], name: str, setting: str) -> None:
    case = CASES[setting]
    g = make_graph(case.kind, case.nodes, case.edges)
    timed(lambda f, y: ops.plap_step(f, y, g, case.p, 1.0, backend=name), signal(case, g), signal(case, g))


@pytest.mark.parametrize("setting", ["base", "3-bands", "regular"])
@pytest.mark.parametrize("name", [name for name in SERVING if name != "reference"])
def test_solve(timed: Callable[..., None], make_graph: Callable[..., Graph], name: str, setting: str) -> None:
    case = CASES[setting]
    g = make_graph(case.kind, case.nodes, case.edges)
    timed(lambda y: ops.plap_solve(y, g, case.p, 1.0, backend=name), signal(case, g))
