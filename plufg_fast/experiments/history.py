"""Pictures of runs on record: how they went, epoch by epoch, and where they ended."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from ..pictures import COLORS, INK, finish, new_figure
from .cells import LABELS
from .records import Records

# Of a whole table only the networks that do best on the validation nodes are drawn epoch by epoch.
MOST_LINES: Final = 8
_STYLES: Final = ("-", "--", ":", "-.")


def draw(results: str | Path, out: str | Path | None = None) -> list[Path]:
    """A picture for every graph and split in a ``results.jsonl``; returns their paths.

    Args:
        results: The file, or the folder it is in.
        out: Where to put the pictures, by default beside the file.

    Raises:
        ValueError: If no finished run is there.
    """
    path = Path(results)
    if not path.exists():
        raise ValueError(f"plot: no file or folder {path}")
    path = path / "results.jsonl" if path.is_dir() else path
    # Records of a search hold no curves.
    entries = [entry for entry in Records(path).all().values() if "result" in entry]
    if not entries:
        raise ValueError(f"plot: no finished run in {path}")
    folder = path.parent if out is None else Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    graphs: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        config = entry["config"]
        # What differs from run to run of one network on one graph, the draw of the noise, tells no graphs apart.
        options = {key: value for key, value in config["data_options"].items() if key != "noise_seed"}
        if config["dataset"] == "csbm" and config["seed"]:
            # A generated graph follows the seed.
            options.setdefault("seed", config["seed"])
        graphs.setdefault("-".join([config["dataset"], config["split"], *_traits(options)]), []).append(entry)
    written = []
    for name, found in graphs.items():
        labels = _labels([entry["config"] for entry in found])
        rows: dict[str, list[dict[str, Any]]] = {}
        for entry in found:
            rows.setdefault(labels[_identity(entry["config"])], []).append(entry)
        written.append(folder / f"runs-{name}.png")
        _figure(name, rows).savefig(written[-1])
    return written


def _traits(options: Mapping[str, Any]) -> list[str]:
    # 0 may say something; what is switched off does not.
    return [key if value is True else f"{key}{value}" for key, value in options.items() if value is not False]


def _short(label: str) -> str:
    return label if len(label) <= 80 else label[:79] + "…"


def _labels(configs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The network, and of its settings those in which configurations of it differ, by :func:`_identity`."""
    models: dict[str, dict[str, dict[str, Any]]] = {}
    for config in configs:
        models.setdefault(config["model"], {})[_identity(config)] = _settings(config)
    labels = {}
    for model, found in models.items():
        names = dict.fromkeys(name for settings in found.values() for name in settings)
        told = [name for name in names if len({repr(settings.get(name)) for settings in found.values()}) > 1]
        for identity, settings in found.items():
            shown = (f"{name} {settings[name]}" for name in told if name in settings)
            labels[identity] = ", ".join([LABELS[model], *shown])
    return labels


def _identity(config: Mapping[str, Any]) -> str:
    return json.dumps([config["model"], _settings(config)], sort_keys=True)


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What tells configurations of one network apart, what they are most likely compared by first."""
    names = ("epochs", "patience", "lr", "schedule", "weight_decay", "hidden_channels")
    rest = {**{name: config[name] for name in names}, **config["split_options"]}
    first = {name: value for name, value in config["model_options"].items() if name in ("p", "learn_p", "mu")}
    return {**first, **config["model_options"], **rest}


def _figure(name: str, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Any:
    best = sorted(rows, key=lambda label: -fmean(entry["result"]["val_accuracy"] for entry in rows[label]))
    figure = new_figure(15, max(3.6, 1.2 + 0.22 * len(rows)))
    loss, accuracy, test = figure.subplots(1, 3, width_ratios=(1, 1, 1.2))
    used: dict[str, int] = {}
    for label in best[:MOST_LINES]:
        model = rows[label][0]["config"]["model"]
        style = _STYLES[used.setdefault(model, 0) % len(_STYLES)]
        used[model] += 1
        color = COLORS[model]
        for axes, key, scale in ((loss, "val_loss", 1), (accuracy, "val_accuracies", 100)):
            curve = _mean([entry["result"][key] for entry in rows[label]])
            axes.plot(
                range(1, len(curve) + 1), [scale * y for y in curve], style, color=color, lw=1.3, label=_short(label)
            )
        curve = _mean([entry["result"]["train_loss"] for entry in rows[label]])
        loss.plot(range(1, len(curve) + 1), curve, style, color=color, lw=0.6, alpha=0.7)
    for place, label in enumerate(reversed(best)):
        scores = [100 * entry["result"]["test_accuracy"] for entry in rows[label]]
        color = COLORS[rows[label][0]["config"]["model"]]
        test.plot(scores, [place] * len(scores), "o", ms=3, alpha=0.4, mew=0, color=color)
        test.plot([fmean(scores)], [place], "|", ms=11, mew=2, color=color)
    largest = fmean(entry["result"]["majority_accuracy"] for row in rows.values() for entry in row)
    test.axvline(100 * largest, color=INK, lw=1, ls="--")
    test.set_yticks(range(len(best)), [f"{_short(label)} ({len(rows[label])})" for label in reversed(best)])
    accuracy.legend(frameon=False, fontsize=7)
    for axes in (loss, accuracy):
        axes.set_xlabel("epoch", fontsize=8)
    finish(loss, "loss: validation, and training (thin)")
    finish(accuracy, "validation accuracy (%)")
    finish(test, "test accuracy (%), every run and the mean; dashed: largest class", "x")
    figure.suptitle(name, fontsize=9, color=INK)
    return figure


def _mean(curves: Sequence[Sequence[float]]) -> list[float]:
    """The mean over those of several curves that are as long."""
    return [fmean(value for value in column if value is not None) for column in zip_longest(*curves)]
