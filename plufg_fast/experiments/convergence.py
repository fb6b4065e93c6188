"""How the p-Laplacian iteration of a trained network converges: energy and residual against steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from .. import ops
from ..ops.plap.solvers import relative_change
from ..pictures import CYCLE, INK, finish, new_figure
from .cells import Cell
from .report import Report
from .sweep import Progress, Step, network_path
from .train import draw_split, known_labels, load_checkpoint, load_data, once

STEPS: Final = 200


class Trace(NamedTuple):
    """The iteration from the signal that the network smooths, in double precision."""

    energy: list[float]  # from step 0
    residual: list[float]  # relative change of step 1 and on, of the band that changed most
    taken: int  # steps that the network takes
    undirected: bool


def trace(model: nn.Module, data: Data, steps: int = STEPS, told: Tensor | None = None) -> Trace:
    """Follow the iteration of a pL-UFG network on a graph; one that takes labels knows those of the nodes ``told``."""
    conv: Any = model.conv
    kept: list[Any] = []
    with conv.register_forward_pre_hook(lambda _module, args: kept.append(args)), torch.no_grad():
        known = {} if told is None else known_labels(model, data, told)
        model(data.x, data.edge_index, data.get("edge_weight"), **known)
        x, edges, weight = kept[0]
        g = conv.graph(x, edges, weight)
        y = conv.source(x, g).double()
        y = y if y.dim() == 3 else y.unsqueeze(1)  # [N, B, C]
        p: float | Tensor = conv.p()
        p = p.double() if isinstance(p, Tensor) else p
        rest = (p, conv.mu, conv.penalty, conv.eps)
        f, energy, residual = y, [float(ops.plap_energy(y, y, g, *rest))], []
        for _ in range(steps):
            after = ops.plap_step(f, y, g, *rest)
            residual.append(float(relative_change(after, f)))
            f = after
            energy.append(float(ops.plap_energy(f, y, g, *rest)))
    return Trace(energy, residual, conv.warmup + conv.steps, g.is_undirected)


def write(report: Report, cells: Sequence[Cell], out: Path, progress: Progress) -> None:
    """Curves for every graph and model, and a table of what the network's own steps reach."""
    report.text(
        f"The signal that the trained network smooths, of its first run, is smoothed for {STEPS} steps in double"
        " precision. Energy is what the iteration minimises, here as the share of its fall that is still to come; the"
        " dashed line is where the network stops. For p up to 2, on an undirected graph, it never rises, unless an edge"
        " whose gradient became exactly zero opens again; the step at p above 2 and on a directed graph carries no such"
        " promise."
    )
    rows = []
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        # A run whose loss did not stay finite left no network.
        mine = [cell for cell in cells if cell.dataset == dataset and network_path(out, cell.run(0)).exists()]
        if not mine:
            continue
        models = list(dict.fromkeys(cell.model for cell in mine))
        figure = new_figure(4.6 * len(models), 6.4)
        panels = figure.subplots(2, len(models), squeeze=False, sharex=True)
        for column, model in enumerate(models):
            for number, cell in enumerate(cell for cell in mine if cell.model == model):
                found = _trace_of(cell, out)
                _curves(panels[:, column], cell, found, CYCLE[number % len(CYCLE)])
                rows.append([dataset, cell.label, *_facts(cell, found)])
                progress(Step(len(rows), len(cells), cell.config, "iterations"))
            panels[1, column].set_xlabel("step", fontsize=8)
            for axes in panels[:, column]:
                axes.axvline(found.taken, color=INK, lw=1, ls="--")
                axes.set_yscale("log")
            panels[0, column].legend(frameon=False, fontsize=7)
            finish(panels[0, column], f"{dataset}: energy above the lowest", "both")
            finish(panels[1, column], "relative change of a step", "both")
        report.picture(dataset, figure, f"Energy and residual on {dataset}")
    header = ["", "row", "mu", "energy at the start", "after the network's steps", f"after {STEPS}"]
    header += ["relative change at the network's last step", f"at step {STEPS}", "steps at which the energy rose"]
    report.table(header, rows, left=2)


def _trace_of(cell: Cell, out: Path) -> Trace:
    """The trace of the first run of a cell."""

    def make() -> dict[str, Any]:
        # Presets may take one dataset in different ways.
        data = load_data(cell.config)
        model, _ = load_checkpoint(network_path(out, cell.run(0)))
        return trace(model, data, told=draw_split(cell.config, 0, data).train)._asdict()

    return Trace(**once(out / "convergence" / f"{cell.run(0).key}-{STEPS}.pt", make))


def _curves(panels: Any, cell: Cell, found: Trace, color: str) -> None:
    low, high = min(found.energy), found.energy[0]
    above = [(value - low) / (high - low) if high > low else 0.0 for value in found.energy]
    steps = range(len(above))
    panels[0].plot(steps, [value if value > 1e-16 else None for value in above], color=color, lw=1.4, label=cell.label)
    panels[1].plot(steps[1:], [value or None for value in found.residual], color=color, lw=1.4)


def _facts(cell: Cell, found: Trace) -> list[str]:
    # Beyond rounding of a sum of many terms.
    rises = sum(b > a * (1 + 1e-12) for a, b in zip(found.energy, found.energy[1:], strict=False))
    energies = (found.energy[0], found.energy[found.taken], found.energy[-1])
    changes = (found.residual[found.taken - 1], found.residual[-1])
    mu = cell.config.model_options.get("mu", 1.0)
    return [f"{mu:g}", *(f"{value:.6g}" for value in energies), *(f"{value:.1e}" for value in changes), str(rises)]
