"""Accuracy along something that varies: noise, mu or p."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final

from ..pictures import COLORS, CYCLE, INK, finish, new_figure
from .cells import LABELS, OURS, PAPERS_P, Cell, Score
from .report import Report

NAMES: Final = {"denoise": "features flipped (%)", "mu": "mu", "p": "p"}


def write(report: Report, experiment: str, scores: Mapping[Cell, Score], majority: Mapping[str, float]) -> None:
    """A table and a row of panels for every graph."""
    for dataset, largest in majority.items():
        mine = {cell: result for cell, result in scores.items() if cell.dataset == dataset}
        report.text(f"## {dataset}", f"Test accuracy (%); always answering the largest class gives {largest:.2f}.")
        values = sorted({cell.value for cell in mine if cell.value is not None})
        rows = []
        for label, line in _series(mine, experiment).items():
            found = {cell.value: result.text() for cell, result in line.items()}
            rows.append([label, *(found.get(value, "") for value in values)])
        report.table(["", *(_shown(experiment, value) for value in values)], rows)
        report.picture(dataset, _draw(experiment, mine, largest), f"{NAMES[experiment]} and accuracy on {dataset}")


def _shown(experiment: str, value: float) -> str:
    return f"{100 * value:g} %" if experiment == "denoise" else f"{NAMES[experiment]} = {value:g}"


def _series(scores: Mapping[Cell, Score], experiment: str) -> dict[str, dict[Cell, Score]]:
    """The cells of every line, by its label."""
    lines: dict[str, dict[Cell, Score]] = {}
    for cell, result in scores.items():
        label = LABELS[cell.model] if experiment == "p" else cell.label
        lines.setdefault(label, {})[cell] = result
    return lines


def _draw(experiment: str, scores: Mapping[Cell, Score], majority: float) -> Any:
    """One panel over the models, each with one p, and one over p for every model that has several."""
    ps = list(dict.fromkeys(cell.p for cell in scores if cell.p))
    common = "1.5" if "1.5" in ps else ps[0] if ps else ""
    over_p = [model for model in ("pgnn", *OURS) if len({cell.p for cell in scores if cell.model == model}) > 1]
    if experiment == "p":
        over_p = []
    panels: list[tuple[str, dict[Cell, Score]]] = [
        (
            "by model" + (f", p = {common}" if experiment != "p" and common in PAPERS_P else ""),
            {cell: result for cell, result in scores.items() if experiment == "p" or cell.p in ("", common)},
        )
    ]
    panels += [(f"{LABELS[model]} by p", {c: r for c, r in scores.items() if c.model == model}) for model in over_p]
    figure = new_figure(4.6 * len(panels), 3.9)
    for index, (axes, (title, cells)) in enumerate(
        zip(figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True)
    ):
        for number, (label, line) in enumerate(_series(cells, experiment).items()):
            points = sorted(((cell.value or 0.0, result) for cell, result in line.items() if result), key=itemgetter(0))
            x = [100 * value if experiment == "denoise" else value for value, _ in points]
            y = [result.mean() for _, result in points]
            spread = [result.std() for _, result in points]
            model = next(iter(line)).model
            color = CYCLE[number % len(CYCLE)] if index else COLORS[model]
            axes.errorbar(x, y, spread, fmt="o-", ms=3.5, lw=1.4, capsize=2, elinewidth=0.7, color=color, label=label)
        axes.axhline(majority, color=INK, lw=1, ls="--")
        if experiment == "mu":
            axes.set_xscale("log")
        axes.set_xlabel(NAMES[experiment], fontsize=8)
        axes.legend(frameon=False, fontsize=7, ncols=1 + (len(cells) > 40))
        finish(axes, title)
    name = next(iter(scores)).dataset
    figure.supylabel(f"test accuracy on {name} (%)", fontsize=8)
    return figure
