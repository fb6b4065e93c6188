"""Classify whole graphs by a readout over framelet bands.

    python examples/graph_classification.py

The graphs are generated: on one ring of nodes a signal that varies slowly, or one that changes its sign from node to
node, both hidden in noise. No node tells them apart, and neither does the mean over all nodes, which is 0 in both; the
energy in the low-pass and in the high-pass bands does. A batch of graphs is one graph of many components, on which a
layer works as on any other: only the readout has to know where a graph ends.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import global_mean_pool

import plufg_fast as pf


def make_graphs(count: int, seed: int = 0, noise: float = 2.5) -> list[Data]:
    """Rings of 12 to 24 nodes with a slow (class 0) or an alternating signal (class 1), and noise."""
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for index in range(count):
        nodes = 2 * int(torch.randint(6, 13, (), generator=generator))
        label = index % 2
        place = torch.arange(nodes)
        phase = 2 * math.pi * torch.rand((), generator=generator)
        wave = torch.cos(2 * math.pi * place / nodes + phase) * math.sqrt(2) if label == 0 else (-1.0) ** place
        x = wave.unsqueeze(1) + noise * torch.randn(nodes, 4, generator=generator)
        ring = torch.stack([place, (place + 1) % nodes])
        graphs.append(Data(x=x, edge_index=torch.cat([ring, ring.flip(0)], dim=1), y=torch.tensor([label])))
    return graphs


class GraphClassifier(nn.Module):
    """Bands, smoothed by the p-Laplacian as in pL-fUFG; a readout of each; a linear map.

    Args:
        in_channels: Features per node.
        hidden_channels: Channels of the bands.
        out_channels: Classes.
        p: The p of the smoothing.
        mu: How strongly it holds on to its input.
    """

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, p: float = 1.5, mu: float = 5.0
    ) -> None:
        super().__init__()
        self.framelet = pf.Framelet("linear")
        self.p, self.mu = p, mu
        self.lin = nn.Linear(in_channels, hidden_channels)
        self.head = nn.Linear(self.framelet.num_bands * hidden_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Log-probabilities, one row per graph."""
        graph = pf.Graph(edge_index, num_nodes=x.size(0))
        bands = self.framelet.analysis(self.lin(x), graph)  # [N, B, C]
        bands = pf.ops.plap_solve(bands, graph, self.p, self.mu, warmup=0, steps=4)
        # The size of a band, not its sign, is the same wherever a ring begins.
        energy = global_mean_pool(bands.square().flatten(1), batch)  # [graphs, B * C]
        return F.log_softmax(self.head(torch.log1p(energy)), dim=-1)


def train(epochs: int = 20, batch_size: int = 32, seed: int = 0) -> float:
    """Train on 160 graphs and return the accuracy on 80 others."""
    torch.manual_seed(seed)
    train_graphs, test = make_graphs(160, seed), Batch.from_data_list(make_graphs(80, seed + 1))
    model = GraphClassifier(4, 8, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(epochs):
        order = torch.randperm(len(train_graphs)).split(batch_size)
        for chosen in order:
            batch = Batch.from_data_list([train_graphs[i] for i in chosen])
            optimizer.zero_grad()
            F.nll_loss(model(batch.x, batch.edge_index, batch.batch), batch.y).backward()
            optimizer.step()
    with torch.no_grad():
        out = model(test.x, test.edge_index, test.batch)
    return float((out.argmax(dim=-1) == test.y).float().mean())


if __name__ == "__main__":
    print(f"accuracy on graphs never seen: {train():.1%} (chance: 50 %)")
