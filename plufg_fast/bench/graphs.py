"""Graphs to measure on: generated ones of any size, and two datasets or stand-ins of their size."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from .. import data as datasets
from ..graph import Graph


def power_law(num_nodes: int, num_edges: int, exponent: float = 0.8, seed: int = 0) -> Graph:
    """An undirected graph of about `num_edges` stored edges whose degrees fall off as a power of the node's rank."""
    rng = torch.Generator().manual_seed(seed)
    share = torch.arange(1, num_nodes + 1, dtype=torch.float64) ** -exponent
    ends = torch.multinomial(share, num_edges, replacement=True, generator=rng).view(2, -1)
    # Hubs must not all sit at the low indices, where they would share cache lines.
    ends = torch.randperm(num_nodes, generator=rng)[ends]
    return _undirected(ends, num_nodes)


def regular(num_nodes: int, num_edges: int, seed: int = 0) -> Graph:
    """An undirected graph of about `num_edges` stored edges, as many at every node and to neighbours far apart."""
    rng = torch.Generator().manual_seed(seed)
    pairs = max(num_edges // num_nodes // 2, 1)
    # Below half the nodes, so that no stride is the reverse of another.
    strides = 1 + torch.randperm((num_nodes - 1) // 2, generator=rng)[:pairs]
    nodes = torch.arange(num_nodes)
    ends = torch.stack([torch.stack((nodes, (nodes + stride) % num_nodes)) for stride in strides], dim=1)
    shuffled = torch.randperm(num_nodes, generator=rng)
    return _undirected(shuffled[ends.flatten(1)], num_nodes)


def grid(num_nodes: int, num_edges: int) -> Graph:
    """A square grid of about `num_nodes` nodes, joined to those within the square around them: neighbours are near."""
    side = max(round(num_nodes**0.5), 2)
    reach = max(round(((num_edges / num_nodes + 1) ** 0.5 - 1) / 2), 1)
    at = torch.arange(side * side).view(side, side)
    pairs = []
    for down in range(reach + 1):
        for right in range(-reach, reach + 1):
            if (down, right) > (0, 0):
                upper = at[: side - down, max(-right, 0) : side - max(right, 0)]
                lower = at[down:, max(right, 0) : side + min(right, 0)]
                pairs.append(torch.stack((upper.flatten(), lower.flatten())))
    return _undirected(torch.cat(pairs, dim=1), side * side)


def _undirected(ends: Tensor, num_nodes: int) -> Graph:
    """The graph of these edges and their reverses, each once and without self-loops."""
    ends = ends[:, ends[0] != ends[1]]
    both = torch.cat((ends, ends.flip(0)), dim=1)
    # One number per edge: sorting these is far cheaper than sorting columns.
    keys = torch.unique(both[0] * num_nodes + both[1])
    return Graph(torch.stack((keys // num_nodes, keys % num_nodes)), num_nodes)


KINDS: Final[dict[str, Callable[[int, int], Graph]]] = {"power law": power_law, "regular": regular, "grid": grid}


class Subject(NamedTuple):
    """A graph with a name that says what it is."""

    name: str
    graph: Graph


@cache
def subject(num_nodes: int, num_edges: int) -> Subject:
    """A power-law graph, named by the edges it came to have."""
    g = power_law(num_nodes, num_edges)
    return Subject(f"power law, {short_count(g.num_edges)} edges", g)


def short_count(count: int) -> str:
    """A number of edges, in thousands or millions."""
    number, unit = (count / 1e6, "M") if count >= 100_000 else (count / 1e3, "k")
    return f"{number:.2f}".rstrip("0").rstrip(".") + f" {unit}"


class _Sizes(NamedTuple):
    nodes: int
    edges: int  # to draw; duplicates and self-loops leave about as many stored as the dataset has
    features: int
    classes: int
    density: float  # share of non-zero features


_STAND_INS: Final = {
    "computers": _Sizes(13_752, 560_000, 767, 10, 0.35),
    "cora": _Sizes(2_708, 11_000, 1_433, 7, 0.013),
}
_TINY: Final = {"computers": _Sizes(400, 4_000, 24, 5, 0.35), "cora": _Sizes(200, 800, 64, 3, 0.05)}


@cache
def labelled(name: str, root: Path | None, tiny: bool) -> Data:
    """Computers or Cora from `root`; without one, a power-law graph of that size with random features and labels.

    Of the features as many are zero as in the dataset: all who take part get them as a sparse matrix where that is
    faster. What else features and labels say makes no difference to the time of an epoch. ``data.name`` tells which it
    is.
    """
    if root is not None and not tiny:
        data = datasets.load(name, root)
        data.name = name.capitalize()
        return data
    sizes = (_TINY if tiny else _STAND_INS)[name]
    rng = torch.Generator().manual_seed(0)
    data = Data(
        x=(torch.rand(sizes.nodes, sizes.features, generator=rng) < sizes.density).float(),
        edge_index=power_law(sizes.nodes, sizes.edges).edge_index,
        y=torch.randint(sizes.classes, (sizes.nodes,), generator=rng),
    )
    data.name = f"stand-in for {name.capitalize()}" + (", tiny" if tiny else "")
    return data
