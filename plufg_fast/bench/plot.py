"""The picture of a benchmark, drawn from the content of its JSON file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..pictures import ACCENT, INK, MAIN, NEUTRAL, finish, new_figure
from .graphs import short_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Group and sense of a score -> what its axis shows, in the order of the panels.
_PANELS: Final = {
    ("forward", "at most"): "p-step: time / product torch CSR @ F",
    ("forward", "at least"): "p-step, p = 1.5: speed / bare gather over the same edges",
    ("backward", "at most"): "p-step and gradients, p = 1.5: time / product torch CSR @ F",
    ("bands", "at most"): "p-step on 3 bands: time / three calls",
    ("framelet", "at most"): "framelet there and back: time / six products",
    ("epoch", "at least"): "training epoch of pL-UFG2: times faster",
    ("threads", "at least"): "p-step on all threads: times faster than on one",
}
_BETTER: Final = {"at most": "lower is better", "at least": "higher is better"}
_ROW: Final = 0.235  # inches
_FRAME: Final = 0.95  # inches of a panel besides its rows


@dataclass(frozen=True)
class _Row:
    label: str
    value: float
    lower: float
    upper: float
    limit: float | None = None
    sense: str = "at most"
    met: bool | None = None


@dataclass(frozen=True)
class _Panel:
    title: str
    rows: list[_Row]

    @property
    def height(self) -> float:
        return _FRAME + _ROW * len(self.rows)


def draw(content: dict[str, Any], path: Path) -> None:
    """Bars of everything that has a limit, one panel per group, and how the p-step grows with the edges."""
    panels = _panels(content["results"])
    curves = [result for result in content["results"] if result["group"] == "scaling" and result["facts"]["points"]]
    columns = _columns(panels)
    upper = max((sum(panel.height for panel in column) for column in columns), default=0.0)
    heights = [height for height in (upper, 3.6 * len(curves)) if height]
    figure = new_figure(15.5, max(sum(heights), 1.0) + 1.0)
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.06)
    figure.suptitle(_headline(content), fontsize=11, x=0.01, ha="left")
    parts: Any = figure.subfigures(max(len(heights), 1), 1, height_ratios=heights or None, squeeze=False)[:, 0]
    if columns:
        for part, column in zip(parts[0].subfigures(1, len(columns), squeeze=False)[0], columns, strict=True):
            axes = part.subplots(len(column), 1, height_ratios=[panel.height for panel in column], squeeze=False)
            for ax, panel in zip(axes[:, 0], column, strict=True):
                _bars(ax, panel)
    if curves:
        _scaling(parts[-1], curves[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _headline(content: dict[str, Any]) -> str:
    machine = content["machine"]
    threads = f"{content['threads']} thread{'s' if content['threads'] > 1 else ''}"
    where = f"{machine['cpu']}, {threads}, {machine['isa']}, torch {machine['torch']}"
    quick = "  (quick: too small to mean anything)" if content["quick"] else ""
    return f"plufg bench on {where}{quick}\nblue meets its bar, the black mark; orange does not; whiskers are quartiles"


def _panels(results: Sequence[dict[str, Any]]) -> list[_Panel]:
    panels = []
    for (group, sense), title in _PANELS.items():
        found = [
            (result["title"], score)
            for result in results
            for score in result["scores"]
            if result["group"] == group and score["sense"] == sense and score["limit"] is not None
        ]
        # A label says what the title leaves open.
        several = {key: len({score[key] for _, score in found}) > 1 for key in ("contestant", "baseline")}
        found.sort(key=lambda pair: pair[1]["contestant"])
        rows = []
        for place, score in found:
            what = [score["contestant"].rpartition(", ")[2]] if several["contestant"] else []
            than = [f"than {score['baseline']}"] if several["baseline"] else []
            label = "  ·  ".join([*what, place, *than])
            rows.append(_Row(label, *(score[key] for key in ("value", "lower", "upper", "limit", "sense", "met"))))
        panels.append(_Panel(f"{title} ({_BETTER[sense]})", rows))
    rates = [
        _Row(
            contestant["name"] if "channels" not in result["facts"] else f"gather  ·  {result['title']}",
            *(
                contestant["bytes_moved"] / contestant[key] / 1e9
                for key in ("median", "upper_quartile", "lower_quartile")
            ),
        )
        for result in results
        if result["group"] == "ceilings"
        for contestant in result["contestants"]
        if contestant["rounds"]
    ]
    return [panel for panel in (*panels, _Panel("ceilings of the machine: GB/s", rates)) if panel.rows]


def _columns(panels: Sequence[_Panel]) -> list[list[_Panel]]:
    """Two columns of about the same height, in order."""
    total, filled = sum(panel.height for panel in panels), 0.0
    columns: list[list[_Panel]] = [[], []]
    for panel in panels:
        columns[filled + panel.height / 2 > total / 2].append(panel)
        filled += panel.height
    return [column for column in columns if column]


def _bars(ax: Axes, panel: _Panel) -> None:
    rows = panel.rows
    places = np.arange(len(rows))[::-1]
    values = np.array([row.value for row in rows])
    shown = np.array([[row.value, row.upper, row.limit or 0.0] for row in rows])
    colors = [{True: MAIN, False: ACCENT, None: NEUTRAL}[row.met] for row in rows]
    logarithmic = shown.max() > 30 * values.min()
    if logarithmic:
        ax.set_xscale("log")
        ax.set_xlim(min(1.0, 0.7 * values.min()), 3.0 * shown.max())
    else:
        ax.set_xlim(0, 1.16 * shown.max())
    ax.barh(places, values, 0.68, color=colors, alpha=0.85)
    whiskers = [
        np.maximum(values - [row.lower for row in rows], 0),
        np.maximum([row.upper for row in rows] - values, 0),
    ]
    ax.errorbar(values, places, xerr=whiskers, fmt="none", ecolor=INK, elinewidth=0.9, capsize=2)
    for place, row in zip(places, rows, strict=True):
        right = max(row.value, row.upper)
        if row.limit is not None:
            ax.vlines(row.limit, place - 0.44, place + 0.44, color=INK, lw=2.2)
            # Where the mark would stand in the number, the number stands behind it.
            span = ax.get_xlim()[1]
            near = right < row.limit < (right * 2.2 if logarithmic else right + 0.12 * span)
            right = row.limit if near else right
        ax.annotate(
            f"{row.value:.3g}", (right, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8
        )
    ax.set_yticks(places, [row.label for row in rows], fontsize=8)
    ax.set_ylim(-0.6, len(rows) - 0.4)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=8)
    finish(ax, panel.title, "x")


def _scaling(figure: Any, result: dict[str, Any]) -> None:
    """Time per call over edges with the fitted power law, and memory per call against two yardsticks."""
    time_ax, memory_ax = figure.subplots(1, 2)
    points = result["facts"]["points"]
    edges = np.array([point["edges"] for point in points], dtype=float)
    lower, median, upper = 1e3 * np.array([point["quartiles"] for point in points]).T
    for score in result["scores"]:
        if score["contestant"] == "time":
            slope = score["value"]
            level = np.exp(np.mean(np.log(median) - slope * np.log(edges)))
            fitted = f"edges to the power {slope:.2f} (bar: at most {score['limit']:g})"
            time_ax.plot(edges, level * edges**slope, "--", color=NEUTRAL, lw=1.2, label=fitted)
    whiskers = [median - lower, upper - median]
    time_ax.errorbar(edges, median, whiskers, fmt="o", color=MAIN, capsize=3, label="measured, with quartiles")
    time_ax.set(ylabel="ms per call", xlabel="stored edges")
    finish(time_ax, f"scaling: time of a p-step, {result['title']}", "both")
    told = [point for point in points if point["extra_bytes"]]
    for key, label, style in (
        ("edge_array_bytes", "an array over edges and channels", {"ls": ":", "color": NEUTRAL}),
        ("node_array_bytes", "an array over nodes and channels", {"ls": "--", "color": NEUTRAL}),
        ("extra_bytes", "what a call adds", {"marker": "o", "ls": "", "color": MAIN}),
    ):
        memory_ax.plot([point["edges"] for point in told], [point[key] / 1e6 for point in told], label=label, **style)
    memory_ax.set(ylabel="MB", xlabel="stored edges")
    finish(memory_ax, "scaling: memory of a p-step at its peak", "both")
    for ax in (time_ax, memory_ax):
        ax.set(xscale="log", yscale="log")
        ax.set_xticks(edges, [short_count(point["edges"]) for point in points], fontsize=8)
        ax.minorticks_off()
        ax.tick_params(axis="y", labelsize=8)
        ax.legend(frameon=False, fontsize=8)
