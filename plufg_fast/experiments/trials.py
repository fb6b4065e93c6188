"""The trials of a search: the best of them, what mattered, a table and a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..pictures import ACCENT, MAIN, NEUTRAL, finish, new_figure
from .train import TrainConfig

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Trial:
    """One configuration that was tried."""

    number: int
    params: dict[str, Any]
    config: TrainConfig
    state: str  # "complete", "pruned" or "failed"
    val_accuracy: float | None  # mean over its runs; of a pruned one as far as it came
    val_std: float | None = None
    val_loss: float | None = None
    seconds: float | None = None

    def rank(self) -> tuple[float, float, int]:
        """Smallest for the best: by validation accuracy, then by validation loss, then the first."""
        return -(self.val_accuracy or 0.0), self.val_loss or 0.0, self.number


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The best of the complete ones."""
    return min((trial for trial in trials if trial.state == "complete"), key=Trial.rank, default=None)


def preset_facts(trials: Sequence[Trial], best: Trial, command: str, window: int) -> dict[str, Any]:
    """What a preset says about how it was found."""
    from ..version import __version__

    return {
        "val_accuracy": round(best.val_accuracy or 0.0, 6),
        "val_std": round(best.val_std or 0.0, 6),
        "runs": best.config.runs,
        "cross_validated": bool(best.config.split_options.get("cross_validate")),
        "window": window,
        "trials": len(trials),
        "command": command,
        "plufg_fast": __version__,
    }


def importances(trials: Sequence[Trial]) -> dict[str, float]:
    """How much each name matters for being among the best trials (PED-ANOVA), the largest first."""
    import optuna

    complete = [trial for trial in trials if trial.state == "complete"]
    names = [name for name in (complete[0].params if complete else {}) if len({t.params[name] for t in complete}) > 1]
    if len(complete) < 4 or not names or len({trial.val_accuracy for trial in complete}) == 1:
        return {}
    study = optuna.create_study(direction="maximize")
    for trial in complete:
        distributions = {name: _distribution(optuna, [t.params[name] for t in complete]) for name in names}
        params = {name: trial.params[name] for name in names}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=trial.val_accuracy))
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    found: dict[str, float] = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return found


def _distribution(optuna: Any, values: list[Any]) -> Any:
    if any(isinstance(value, str | bool) for value in values):
        return optuna.distributions.CategoricalDistribution(sorted(set(values), key=str))
    low, high = min(values), max(values)
    if all(isinstance(value, int) for value in values):
        return optuna.distributions.IntDistribution(low, high)
    return optuna.distributions.FloatDistribution(low, high, log=low > 0 and high / low > 20)


def draw(trials: Sequence[Trial], path: Path, title: str) -> None:
    """The course of the search, what mattered in it, and the accuracy over every name that varied."""
    complete = [trial for trial in trials if trial.state == "complete"]
    weights = importances(trials)
    names = [*weights, *(name for name in (trials[0].params if trials else {}) if name not in weights)]
    columns = 5
    rows = math.ceil(len(names) / columns)
    figure = new_figure(15, 3.4 + 2.6 * rows)
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    # Parts of their own: the names beside the bars must not push the slices apart.
    parts = figure.subfigures(2 if rows else 1, 1, height_ratios=[3.4, 2.6 * rows] if rows else None, squeeze=False)
    course, bars = parts[0, 0].subplots(1, 2)
    _draw_course(course, trials)
    _draw_importance(bars, weights)
    if rows:
        slices = parts[1, 0].subplots(rows, columns, squeeze=False, sharey=True)
        for axes, name in zip(slices.flat, names, strict=False):
            _draw_slice(axes, name, complete)
        for axes in slices.flat[len(names) :]:
            axes.remove()
        parts[1, 0].supylabel("validation accuracy (%)", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _draw_course(axes: Axes, trials: Sequence[Trial]) -> None:
    best, line = 0.0, []
    for trial in trials:
        if trial.state == "complete":
            best = max(best, trial.val_accuracy or 0.0)
        line.append(100 * best if best else math.nan)
    for state, color in (("complete", MAIN), ("pruned", NEUTRAL)):
        mine = [trial for trial in trials if trial.state == state and trial.val_accuracy is not None]
        axes.plot(
            [trial.number for trial in mine],
            [100 * (trial.val_accuracy or 0.0) for trial in mine],
            ".",
            color=color,
            label=state,
        )
    axes.step([trial.number for trial in trials], line, where="post", color=ACCENT, label="best so far")
    axes.set(xlabel="trial", ylabel="validation accuracy (%)")
    axes.legend(frameon=False, fontsize=8)
    finish(axes, "Course")


def _draw_importance(axes: Axes, weights: Mapping[str, float]) -> None:
    names = [*weights][::-1]
    axes.barh(names, [weights[name] for name in names], color=MAIN)
    axes.set_xlim(0, None)
    finish(axes, "Importance" if names else "Importance: too few trials to tell", "x")


def _draw_slice(axes: Axes, name: str, complete: Sequence[Trial]) -> None:
    values = [trial.params[name] for trial in complete]
    heights = [100 * (trial.val_accuracy or 0.0) for trial in complete]
    if any(isinstance(value, str | bool) for value in values):
        labels = sorted({str(value) for value in values})
        values = [labels.index(str(value)) for value in values]
        axes.set_xticks(range(len(labels)), labels)
    elif values and min(values) > 0 and max(values) / min(values) > 20:
        axes.set_xscale("log")
    axes.plot(values, heights, ".", color=MAIN, alpha=0.7)
    best = best_of(complete)
    if best is not None:
        index = complete.index(best)
        axes.plot(values[index], heights[index], "o", color=ACCENT)
    finish(axes, name)


def write_table(trials: Sequence[Trial], path: Path) -> None:
    """All trials as CSV, the best first."""
    import csv

    order = {"complete": 0, "pruned": 1, "failed": 2}
    names = [*trials[0].params] if trials else []
    columns = [item.name for item in fields(Trial) if item.name not in ("params", "config")]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, *names])
        for trial in sorted(trials, key=lambda trial: (order[trial.state], trial.rank())):
            writer.writerow([*(getattr(trial, c) for c in columns), *(trial.params.get(name) for name in names)])
