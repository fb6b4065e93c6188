"""Predict the missing edges of a graph: an encoder of nodes, and an inner product for every pair.

    python examples/link_prediction.py

The graph is generated: eight communities with many edges within and few across, and node features that tell the
community through much noise. A tenth of the edges is hidden from the encoder. It learns to give the ends of the edges
that are left a larger inner product than random pairs of nodes, and is judged by how often a hidden edge gets a larger
one than a pair that is no edge (the area under the ROC curve).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.transforms import RandomLinkSplit
from torch_geometric.utils import negative_sampling, stochastic_blockmodel_graph

import plufg_fast as pf


def make_graph(communities: int = 8, size: int = 50) -> Data:
    """A stochastic block model with noisy features, drawn from torch's global random state."""
    chances = torch.full((communities, communities), 0.004).fill_diagonal_(0.2)
    edge_index = stochastic_blockmodel_graph([size] * communities, chances)
    community = torch.arange(communities).repeat_interleave(size)
    x = F.one_hot(community, 2 * communities).float() + torch.randn(communities * size, 2 * communities)
    return Data(x=x, edge_index=edge_index)


class Encoder(nn.Module):
    """A linear map and a pL-UFG convolution, whose filter per channel fits graphs of any size.

    Args:
        in_channels: Features per node.
        hidden_channels: Channels between the two.
        out_channels: Size of a node's embedding.
    """

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = nn.Linear(in_channels, hidden_channels)
        self.conv = pf.nn.PLUFGConv(hidden_channels, out_channels, variant="pl-ufg2", p=1.5, mu=1.0, theta="channel")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Embeddings ``[N, out_channels]``."""
        out: Tensor = self.conv(F.dropout(self.lin(x).relu(), 0.5, self.training), edge_index)
        return out


def decode(z: Tensor, pairs: Tensor) -> Tensor:
    """The log-odds of an edge between the nodes of every pair ``[2, pairs]``."""
    return (z[pairs[0]] * z[pairs[1]]).sum(dim=-1)


def area_under_curve(edges: Tensor, others: Tensor) -> float:
    """How often an edge has a larger value than another pair, with ties for one half."""
    difference = edges.unsqueeze(1) - others.unsqueeze(0)
    return float((difference > 0).float().mean() + 0.5 * (difference == 0).float().mean())


def train(epochs: int = 60, seed: int = 0) -> float:
    """Train on nine tenths of the edges and return the area under the curve of the others."""
    seed_everything(seed)  # PyG draws the pairs that are no edges with Python's own generator
    data = make_graph()
    hide = RandomLinkSplit(num_val=0.0, num_test=0.1, is_undirected=True, add_negative_train_samples=False)
    known, _, hidden = hide(data)
    model = Encoder(known.num_features, 64, 32)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        z = model(known.x, known.edge_index)
        others = negative_sampling(known.edge_index, known.num_nodes, known.edge_label_index.size(1))
        values = torch.cat([decode(z, known.edge_label_index), decode(z, others)])
        target = torch.cat([torch.ones(known.edge_label_index.size(1)), torch.zeros(others.size(1))])
        F.binary_cross_entropy_with_logits(values, target).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        values = decode(model(known.x, known.edge_index), hidden.edge_label_index)
    is_edge = hidden.edge_label == 1
    return area_under_curve(values[is_edge], values[~is_edge])


if __name__ == "__main__":
    print(f"area under the ROC curve of hidden edges: {train():.3f} (chance: 0.5)")
