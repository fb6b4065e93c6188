"""The two accuracy tables, beside the figures that the paper prints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..pictures import ACCENT, COLORS, GRID, INK, finish, new_figure
from .cells import LABELS, OURS, Cell, Score, best_printed, printed
from .report import Report

RIVALS: Final = ("gcn", "gat", "appnp", "gprgnn", "pgnn", "ufg")
"""The baselines that our networks are held against."""
CORRECTED: Final = (
    "The same networks, with predictions corrected for the class shares of the test nodes, which are estimated without"
    " their labels (`plufg_fast.label_shift`). The paper's figures are of predictions as they are."
)


def write(report: Report, scores: Mapping[Cell, Score], majority: Mapping[str, float]) -> None:
    """All tables and pictures of a report."""
    datasets = list(majority)
    report.text("## All graphs", "Test accuracy (%), in brackets the difference to the paper's printed figure.")
    _overview(report, scores, datasets, majority)
    report.text(CORRECTED)
    _overview(report, scores, datasets, majority, "corrected_test_accuracy")
    if any(cell.model in OURS and scores[cell] for cell in scores):
        report.text(
            "## Ours, chosen by validation accuracy",
            "Of our rows the one with the highest mean validation accuracy, which no test node decides. It is held"
            " against the paper's best cell of its own networks and, as measured here, against"
            f" {', '.join(LABELS[name] for name in RIVALS)}, whose p is chosen likewise. The best of these is the one"
            " that is best on the test nodes; behind the difference to it is its standard error over the runs, which"
            " knows nothing of other test nodes.",
        )
        _chosen(report, scores, datasets)
        report.text("The same rows, corrected for the class shares of the test nodes:")
        _chosen(report, scores, datasets, "corrected_test_accuracy")
    for dataset in datasets:
        report.text(f"## {dataset}")
        mine = {cell: result for cell, result in scores.items() if cell.dataset == dataset}
        _one(report, mine, majority[dataset])
        figure = _draw(mine, majority[dataset])
        report.picture(dataset, figure, f"Test accuracy on {dataset}, with the paper's figures")


def difference(cell: Cell, result: Score, field: str = "test_accuracy") -> str:
    """How far the mean is above the paper's figure."""
    paper = printed(cell)
    return "" if paper is None or not result else _signed(result.mean(field) - paper[0])


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}"  # without a negative zero


def _overview(
    report: Report,
    scores: Mapping[Cell, Score],
    datasets: Sequence[str],
    majority: Mapping[str, float],
    field: str = "test_accuracy",
) -> None:
    found = {(cell.label, cell.dataset): (cell, result) for cell, result in scores.items()}
    rows = [["*largest class of the test nodes*", *(f"*{majority[dataset]:.2f}*" for dataset in datasets)]]
    for label in dict.fromkeys(cell.label for cell in scores):
        row = [label]
        for dataset in datasets:
            cell, result = found.get((label, dataset), (None, None))
            if cell is None or result is None:
                row.append("")
                continue
            apart = difference(cell, result, field)
            row.append(f"{result.text(field)} ({apart})" if apart else result.text(field))
        rows.append(row)
    report.table(["", *datasets], rows)


def by_validation(scores: Mapping[Cell, Score]) -> tuple[Cell, Score] | None:
    """The cell with the highest mean validation accuracy, of equals that with the lowest validation loss."""
    found = [(cell, result) for cell, result in scores.items() if result]
    return max(found, key=lambda pair: pair[1].rank(), default=None)


def _chosen(
    report: Report, scores: Mapping[Cell, Score], datasets: Sequence[str], field: str = "test_accuracy"
) -> None:
    rows = []
    for dataset in datasets:
        mine = {cell: result for cell, result in scores.items() if cell.dataset == dataset}
        ours = by_validation({cell: result for cell, result in mine.items() if cell.model in OURS})
        if ours is None:
            continue
        cell, result = ours
        paper = best_printed(dataset)
        row = [dataset, cell.label, f"{result.mean('val_accuracy'):.2f}", result.text(field)]
        row += ["", ""] if paper is None else [f"{paper[1]:.2f} ({paper[0]})", _signed(result.mean(field) - paper[1])]
        rivals = [by_validation({c: r for c, r in mine.items() if c.model == name}) for name in RIVALS]
        found = [rival for rival in rivals if rival is not None]
        row.append(f"{sum(result.mean(field) > rival.mean(field) for _, rival in found)} of {len(found)}")
        best = max(found, key=lambda rival: rival[1].mean(field), default=None)
        if best is None:
            row += ["", ""]
        else:
            row += [f"{best[0].label}, {best[1].mean(field):.2f}", _ahead(result, best[1], field)]
        rows.append(row)
    header = ["", "row", "validation", "test", "paper's best", "difference"]
    report.table([*header, "baselines below", "best baseline", "ahead"], rows, left=2)


def _ahead(one: Score, other: Score, field: str) -> str:
    """How far one mean is above another, with the standard error of that where there are several runs of both."""
    text = _signed(one.mean(field) - other.mean(field))
    if min(len(one.results), len(other.results)) < 2:
        return text
    return f"{text} ± {math.hypot(*(item.std(field) / math.sqrt(len(item.results)) for item in (one, other))):.2f}"


def _one(report: Report, scores: Mapping[Cell, Score], majority: float) -> None:
    rows = []
    for cell, result in scores.items():
        paper = printed(cell)
        row = [cell.label, result.text(), f"{paper[0]:.2f} ± {paper[1]:.2f}" if paper else "", difference(cell, result)]
        row += [result.text("corrected_test_accuracy")]
        row += [f"{result.mean('val_accuracy'):.2f}" if result else "", "preset" if cell.tuned else "defaults"]
        learned = [r.learned_p for r in result.results if r.learned_p]
        bands = zip(*learned, strict=True)
        row.append(", ".join(f"{sum(values) / len(values):.2f}" for values in bands))
        rows.append(row)
    header = ["", "test", "paper", "difference", "corrected", "validation", "settings", "learned p"]
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    report.table(header, rows)
    report.text(f"Always answering the largest class of the test nodes: {majority:.2f}.")


def _draw(scores: Mapping[Cell, Score], majority: float) -> Any:
    """Means with standard deviations, a row each, and the paper's beside them."""
    shown = [(cell, result) for cell, result in scores.items() if result]
    figure = new_figure(8.5, 1.2 + 0.22 * len(shown))
    axes = figure.subplots()
    places = range(len(shown))[::-1]
    for place, (cell, result) in zip(places, shown, strict=True):
        axes.errorbar(
            result.mean(), place, xerr=result.std(), fmt="o", ms=5, color=COLORS[cell.model], ecolor=INK, elinewidth=0.9
        )
        paper = printed(cell)
        if paper is not None:
            axes.errorbar(
                paper[0], place - 0.28, xerr=paper[1], fmt="|", ms=7, mew=2, color=ACCENT, elinewidth=0.7, alpha=0.8
            )
    axes.axvline(majority, color=INK, lw=1, ls="--")
    axes.set_yticks(list(places), [cell.label for cell, _ in shown])
    axes.set_ylim(-0.8, len(shown) - 0.4)
    axes.hlines([place - 0.5 for place in places], *axes.get_xlim(), color=GRID, lw=0.3)
    axes.set_xlabel("test accuracy (%)", fontsize=8)
    name = shown[0][0].dataset if shown else ""
    finish(axes, f"{name}: dots measured, orange the paper's, dashed the largest class", "x")
    return figure
