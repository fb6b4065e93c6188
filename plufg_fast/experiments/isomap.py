"""Node features in the plane before and after a trained convolution, by Isomap."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..pictures import finish, new_figure
from .cells import Cell
from .records import key_of
from .report import Report
from .sweep import Progress, Run, Step, network_path
from .train import draw_split, known_labels, load_checkpoint, load_data, once

NODES: Final = 3000
"""Of larger graphs so many nodes, drawn at random, are shown: distances along a neighbourhood graph are between all."""
NEIGHBOURS: Final = 10
_COLORS: Final = ("#3b5bdb", "#f08c00", "#37b24d", "#a61e4d", "#15aabf", "#9c36b5", "#868e96", "#ffd43b")


def method() -> Any:
    """scikit-learn's Isomap.

    Raises:
        ValueError: If it is not installed.
    """
    try:
        from sklearn.manifold import Isomap
    except ImportError:
        raise ValueError("isomap: needs scikit-learn: pip install scikit-learn") from None
    return Isomap


def embed(features: Tensor, neighbours: int = NEIGHBOURS) -> Tensor:
    """Points in the plane, ``[N, 2]``, whose distances are like those along the neighbourhood graph of the features."""
    isomap = method()
    with warnings.catch_warnings():
        # Components of the neighbourhood graph are joined where they are nearest, and scipy told how dense the edges.
        warnings.simplefilter("ignore")
        points = isomap(n_neighbors=min(neighbours, len(features) - 1)).fit_transform(features.double().numpy())
    return torch.from_numpy(points)


def edge_ratio(features: Tensor, edge_index: Tensor, seed: int = 0) -> float:
    """The mean distance across an edge, as a share of that between two random nodes: small where edges smooth."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randint(len(features), (2, 20_000), generator=generator)

    def distance(ends: Tensor) -> float:
        ends = ends[:, ends[0] != ends[1]]
        return float((features[ends[0]] - features[ends[1]]).norm(dim=1).mean())

    return distance(edge_index) / distance(pairs)


def output_of_convolution(run: Run, out: Path, data: Data) -> Tensor:
    """What the trained convolution gives: ``[N, hidden]``, or ``[N, classes]`` of a network without a head."""
    model, _ = load_checkpoint(network_path(out, run))
    kept: list[Tensor] = []
    conv: Any = model.conv
    with conv.register_forward_hook(lambda _module, _args, output: kept.append(output)), torch.no_grad():
        model(data.x, data.edge_index, **known_labels(model, data, draw_split(run.config, run.run, data).train))
    return kept[0]


def write(report: Report, cells: Sequence[Cell], out: Path, progress: Progress) -> None:
    """One row of pictures for every graph and model."""
    report.text(
        f"Isomap with {NEIGHBOURS} neighbours, of the first run; of more than {NODES} nodes a random {NODES}."
        " Colours are classes. The ratio is the mean distance across an edge, as a share of that between two random"
        " nodes."
    )
    rows: list[list[str]] = []
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        # A run whose loss did not stay finite left no network.
        mine = [cell for cell in cells if cell.dataset == dataset and network_path(out, cell.run(0)).exists()]
        if not mine:
            continue
        # Presets may take one dataset in different ways.
        graphs = [load_data(cell.config) for cell in mine]
        shown = [(key_of({"features": mine[0].run(0).key}), "features before", graphs[0], graphs[0].x)]
        for cell, data in zip(mine, graphs, strict=True):
            signal = output_of_convolution(cell.run(0), out, data)
            shown.append((cell.run(0).key, f"after {cell.label}", data, signal))
        figure = new_figure(4.2 * len(shown), 4.2)
        panels = figure.subplots(1, len(shown), squeeze=False)[0]
        for axes, (name, title, data, signal) in zip(panels, shown, strict=True):
            chosen = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(0))[:NODES]
            points = once(out / "isomap" / f"{name}.pt", partial(_embedding, signal[chosen]))["points"]
            for label in data.y.unique().tolist():
                inside = data.y[chosen] == label
                axes.scatter(*points[inside].T, s=3, lw=0, alpha=0.6, color=_COLORS[label % len(_COLORS)])
            ratio = edge_ratio(signal, data.edge_index)
            axes.set(xticks=[], yticks=[])
            finish(axes, f"{dataset}: {title}", "both")
            rows.append([dataset, title, f"{ratio:.3f}"])
            # Beside what every network gives, the features of every graph.
            total = len(cells) + len({cell.dataset for cell in cells})
            progress(Step(len(rows), total, mine[0].config, "embeddings"))
        report.picture(dataset, figure, f"Isomap of {dataset}")
    report.table(["", "signal", "ratio"], rows, left=2)


def _embedding(features: Tensor) -> dict[str, Any]:
    return {"points": embed(features)}
