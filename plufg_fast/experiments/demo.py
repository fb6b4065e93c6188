"""A first look in under two minutes: three networks on a homophilic and on a heterophilic generated graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ..data import csbm, homophily, split
from ..nn.models import build
from ..pictures import COLORS, INK, NEUTRAL, finish, new_figure
from .cells import LABELS
from .train import Result, fit, mean_and_std

# Edges and features tell the classes equally well, the edges by joining what is alike or what is not.
GRAPHS: Final = {"homophilic": 0.5, "heterophilic": -0.5}
NUM_NODES: Final = 1000
RATES: Final = (0.6, 0.2)
RUNS: Final = 3
EPOCHS: Final = 60
LR: Final = 0.03

MODELS: Final[dict[str, dict[str, Any]]] = {
    "pl-ufg2": {"p": 1.5, "mu": 10.0, "theta": "channel"},
    "gcn": {},
    "mlp": {},
}


@dataclass(frozen=True)
class Cell:
    """All runs of one network on one graph."""

    model: str
    graph: str
    homophily: float
    results: list[Result]


def run(
    out: str | Path = "out/demo",
    stdout: Console | None = None,
    stderr: Console | None = None,
    *,
    runs: int = RUNS,
    epochs: int = EPOCHS,
    num_nodes: int = NUM_NODES,
) -> list[Cell]:
    """Train every network on both graphs, print a table and draw ``demo.png`` into ``out``."""
    stdout = stdout or Console()
    stderr = stderr or Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=stderr,
        transient=True,
    )
    cells = []
    with bar, _one_thread():
        task = bar.add_task("", total=len(GRAPHS) * len(MODELS) * runs * epochs)
        for graph, phi in GRAPHS.items():
            data = csbm(num_nodes, phi=phi)
            for name, options in MODELS.items():
                bar.update(task, description=f"{LABELS[name]} on the {graph} graph")
                model = build(name, data, **options)
                results = [
                    fit(
                        model,
                        data,
                        split(data, "random", seed, rates=RATES),
                        lr=LR,
                        epochs=epochs,
                        seed=seed,
                        progress=lambda *_: bar.advance(task),
                    )
                    for seed in range(runs)
                ]
                cells.append(Cell(name, graph, homophily(data.edge_index, data.y), results))
    stdout.print(_table(cells))
    picture = Path(out) / "demo.png"
    _draw(cells, picture)
    stdout.print(f"Picture: {picture}", soft_wrap=True)
    return cells


@contextmanager
def _one_thread() -> Iterator[None]:
    """Graphs this small gain little from a second thread, and lose a lot to it when the cores are busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _table(cells: list[Cell]) -> Table:
    table = Table(title=f"Test accuracy on two generated graphs, {len(cells[0].results)} runs each")
    table.add_column("graph")
    table.add_column("network")
    table.add_column("test accuracy", justify="right")
    table.add_column("ms / epoch", justify="right")
    for index, cell in enumerate(cells):
        mean, std = mean_and_std([result.test_accuracy for result in cell.results])
        seconds = sum(r.seconds for r in cell.results) / sum(r.epochs for r in cell.results)
        first = index % len(MODELS) == 0
        table.add_row(
            f"{cell.graph} ({cell.homophily:.0%} within class)" if first else "",
            LABELS[cell.model],
            f"{100 * mean:.1f} ± {100 * std:.1f} %",
            f"{1000 * seconds:.1f}",
            end_section=index % len(MODELS) == len(MODELS) - 1,
        )
    return table


def _draw(cells: list[Cell], path: Path) -> None:
    """Bars of test accuracy, and beside them how the validation accuracy grew on either graph."""
    import numpy as np

    figure = new_figure(12.5, 4.4)
    bars, *curves = figure.subplots(1, 1 + len(GRAPHS), width_ratios=[1.25] + [1.0] * len(GRAPHS))
    width = 0.8 / len(MODELS)
    for index, name in enumerate(MODELS):
        mine = [cell for cell in cells if cell.model == name]
        stats = [mean_and_std([100 * r.test_accuracy for r in cell.results]) for cell in mine]
        place = np.arange(len(mine)) + (index - (len(MODELS) - 1) / 2) * width
        bars.bar(
            place,
            [mean for mean, _ in stats],
            width * 0.92,
            yerr=[std for _, std in stats],
            label=LABELS[name],
            color=COLORS[name],
            error_kw={"ecolor": INK, "elinewidth": 1.2, "capsize": 3},
        )
        for x, (mean, std) in zip(place, stats, strict=True):
            bars.text(x, mean + std + 1.8, f"{mean:.1f}", ha="center", fontsize=9, color=INK)
        for axes, cell in zip(curves, mine, strict=True):
            history = 100 * np.array([r.val_accuracies for r in cell.results])
            epochs = np.arange(1, history.shape[1] + 1)
            axes.fill_between(epochs, history.min(axis=0), history.max(axis=0), color=COLORS[name], alpha=0.15, lw=0)
            axes.plot(epochs, history.mean(axis=0), color=COLORS[name], lw=1.8, label=LABELS[name])
    bars.axhline(50, color=NEUTRAL, lw=1, ls="--", zorder=3)
    bars.text(0.5, 51.5, "chance", ha="center", fontsize=8, color=INK)
    ticks = [f"{cell.graph}\n{cell.homophily:.0%} of edges\nwithin a class" for cell in cells[:: len(MODELS)]]
    bars.set_xticks(range(len(GRAPHS)), ticks)
    bars.set(xlim=(-0.5, len(GRAPHS) - 0.5), ylim=(0, 115), yticks=range(0, 101, 20))
    bars.set_ylabel("test accuracy (%)")
    finish(bars, "Accuracy, mean ± standard deviation")
    bars.legend(frameon=False, ncols=len(MODELS), loc="upper center", columnspacing=1.2, handlelength=1.2)
    for axes, graph in zip(curves, GRAPHS, strict=True):
        axes.set(ylim=(45, 100), xlabel="epoch")
        finish(axes, f"Training on the {graph} graph")
        axes.margins(x=0.01)
    curves[0].set_ylabel("validation accuracy (%), mean and range")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
