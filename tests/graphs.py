"""Small graphs for the tests, each with its dense weight matrix as an independent description."""

import torch
from torch import Tensor

from plufg_fast import Graph

UNDIRECTED = ["unweighted", "weighted", "self_loops", "isolated", "hub"]
ALL = [*UNDIRECTED, "directed", "directed_weighted_loops"]


def dense(kind: str, num_nodes: int = 11, seed: int = 0) -> Tensor:
    """``[N, N]`` float64 weights, ``W[i, j]`` the weight with which node i receives from node j."""
    rng = torch.Generator().manual_seed(seed)
    weights = torch.rand(num_nodes, num_nodes, generator=rng, dtype=torch.float64) + 0.2
    present = torch.rand(num_nodes, num_nodes, generator=rng, dtype=torch.float64) < 0.3
    if kind.startswith("directed"):
        # A ring, so that no node is without in-edges or out-edges by accident.
        present |= torch.eye(num_nodes, dtype=torch.bool).roll(1, 0)
        w = present * weights
        if kind == "directed":
            w = (w > 0).double()
        else:
            w[2, 2] = 0.7
        return w if kind != "directed" else w.fill_diagonal_(0)
    present = torch.triu(present, 1) | torch.diag(torch.ones(num_nodes - 1, dtype=torch.bool), 1)
    w = torch.triu(weights, 1) * present
    w = w + w.T
    if kind == "unweighted":
        w = (w > 0).double()
    elif kind == "self_loops":
        w[0, 0], w[3, 3] = 0.5, 1.5
    elif kind == "isolated":
        w[4] = 0
        w[:, 4] = 0
        w[7] = 0
        w[:, 7] = 0
    elif kind == "hub":
        w[0, 1:] = w[1:, 0] = 1.0
    elif kind != "weighted":
        raise ValueError(kind)
    return w


def from_dense(w: Tensor, **options: object) -> Graph:
    """The graph of a dense weight matrix."""
    receiver, sender = w.nonzero(as_tuple=True)
    weight = w[receiver, sender]
    unweighted = bool((weight == 1).all())
    return Graph(torch.stack((sender, receiver)), w.size(0), None if unweighted else weight, **options)


def graph(kind: str, num_nodes: int = 11, seed: int = 0) -> Graph:
    return from_dense(dense(kind, num_nodes, seed))


def inverse_sqrt(degree: Tensor) -> Tensor:
    return torch.where(degree > 0, degree.rsqrt(), 0)


def laplacian(w: Tensor, degree: str = "in") -> Tensor:
    """``I - D^-1/2 W D^-1/2`` without self-loops, densely."""
    w = w.clone().fill_diagonal_(0)
    dinv = inverse_sqrt(w.sum(1 if degree == "in" else 0))
    return torch.eye(w.size(0), dtype=w.dtype) - dinv[:, None] * w * dinv
