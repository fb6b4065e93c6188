"""Graphs to measure on."""

import torch

from plufg_fast import Graph


def power_law(num_nodes: int, num_edges: int, exponent: float = 0.8, seed: int = 0) -> Graph:
    """An undirected graph of about `num_edges` stored edges whose degrees fall off as a power of the node's rank."""
    rng = torch.Generator().manual_seed(seed)
    share = torch.arange(1, num_nodes + 1, dtype=torch.float64) ** -exponent
    ends = torch.multinomial(share, num_edges, replacement=True, generator=rng).view(2, -1)
    # Hubs must not all sit at the low indices, where they would share cache lines.
    ends = torch.randperm(num_nodes, generator=rng)[ends]
    ends = ends[:, ends[0] != ends[1]]
    both = torch.cat((ends, ends.flip(0)), dim=1)
    return Graph(torch.unique(both, dim=1), num_nodes)
