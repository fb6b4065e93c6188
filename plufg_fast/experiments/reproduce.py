"""The paper's tables and figures: each from one call, which goes on where an earlier one was stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ..data import HETEROPHILIC, HOMOPHILIC
from ..nn.models import Dims
from . import convergence, curves, isomap, tables
from .cells import BAND_P, LABELS, OTHER_P, OURS, PAPERS_P, Cell, Score, in_order, make_cells, score
from .report import Report
from .spaces import grid
from .sweep import Progress, describe, sweep
from .train import TrainConfig, build_model, mean_and_std

NOISE: Final = (0.0, 0.05, 0.1, 0.15, 0.2)
_VARIED: Final = {"denoise": "noise", "mu": "mu", "p": "p"}
SENSITIVE_P: Final = (1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0)


@dataclass(frozen=True)
class Experiment:
    """One of the paper's tables or figures, and what it covers unless told otherwise."""

    about: str
    datasets: tuple[str, ...]
    models: tuple[str, ...]
    ps: tuple[str, ...] = PAPERS_P
    values: tuple[float, ...] | None = None  # along a curve; of mu the paper's grid
    runs: int = 10
    networks: bool = False  # whether it looks into trained networks


EXPERIMENTS: Final = {
    "homophilic": Experiment(
        "Test accuracy on homophilic graphs", HOMOPHILIC, tuple(LABELS), (*PAPERS_P, *OTHER_P)
    ),
    "heterophilic": Experiment(
        "Test accuracy on heterophilic graphs", HETEROPHILIC, tuple(LABELS), (*PAPERS_P, *OTHER_P)
    ),
    "denoise": Experiment(
        "Accuracy with flipped binary features", ("cora", "chameleon"), tuple(LABELS), values=NOISE
    ),
    "isomap": Experiment(
        "Node features before and after the convolution", ("cora", "actor"), ("pl-ufg2",), ("1", "2.5"), None, 1, True
    ),
    "mu": Experiment("Accuracy over mu", ("cora", "chameleon"), OURS),
    "p": Experiment("Accuracy over p", ("cora", "chameleon"), ("pgnn", *OURS), (), SENSITIVE_P),
    "convergence": Experiment(
        "Energy and residual against steps", ("cora", "chameleon"), OURS, PAPERS_P, None, 1, True
    ),
}  # fmt: skip


def plan(
    experiment: str,
    *,
    datasets: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    ps: Sequence[str] | None = None,
    values: Sequence[float] | None = None,
    runs: int | None = None,
    use_presets: bool = True,
    **changes: Any,
) -> list[Cell]:
    """The cells of an experiment; arguments as for :func:`reproduce`."""
    if experiment not in EXPERIMENTS:
        raise ValueError(f"reproduce: unknown experiment {experiment!r}; known are {', '.join(EXPERIMENTS)}")
    kind = EXPERIMENTS[experiment]
    if ps is not None and experiment == "p":
        raise ValueError("reproduce: p varies p itself: expected values, not ps")
    if values is not None and experiment not in _VARIED:
        raise ValueError(f"reproduce: values are for the curves {', '.join(_VARIED)}, got some for {experiment}")
    # What is given twice is meant once.
    datasets, models, ps = (
        list(dict.fromkeys(given or usual or ()))
        for given, usual in ((datasets, kind.datasets), (models, kind.models), (ps, kind.ps))
    )
    values = list(dict.fromkeys(values or kind.values or ()))
    if experiment in ("mu", "p", "isomap", "convergence"):
        fitting = ("pgnn", *OURS) if experiment in ("mu", "p") else OURS
        others = [model for model in models if model not in fitting]
        if others:
            raise ValueError(f"reproduce: {experiment} is for {', '.join(fitting)}, got {', '.join(others)}")
    if experiment == "denoise" and not all(0.0 <= value <= 1.0 for value in values):
        raise ValueError(f"reproduce: denoise flips shares from 0 to 1 of the features, got {values}")
    if experiment == "denoise" and "csbm" in datasets:
        raise ValueError("reproduce: denoise flips binary features, got csbm, whose are not")
    changes |= {"runs": kind.runs if runs is None else runs}
    if changes["runs"] < 1:
        raise ValueError(f"reproduce: expected runs >= 1, got {runs}")
    if experiment == "p":
        cells = make_cells(datasets, models, [f"{value:g}" for value in values], use_presets, **changes)
        return [replace(cell, value=float(cell.p)) for cell in cells]
    cells = make_cells(datasets, models, ps, use_presets, **changes)
    if experiment == "denoise":
        # By graph and noise, so that a noisy graph is made once for all networks.
        return [
            _at(cell, rate, data_options={**cell.config.data_options, "noise": rate} if rate else None)
            for dataset in datasets
            for rate in values
            for cell in cells
            if cell.dataset == dataset
        ]
    if experiment == "mu":
        return [
            _at(cell, mu, model_options={**cell.config.model_options, "mu": mu})
            for cell in cells
            for mu in values or grid(TrainConfig(dataset=cell.dataset, model="pl-ufg1"))["mu"]
        ]
    return cells


def _at(cell: Cell, value: float, **changes: Any) -> Cell:
    changes = {name: item for name, item in changes.items() if item is not None}
    return replace(cell, value=value, config=replace(cell.config, **changes))


def reproduce(
    experiment: str,
    out: str | Path = "out/reproduce",
    *,
    datasets: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    ps: Sequence[str] | None = None,
    values: Sequence[float] | None = None,
    runs: int | None = None,
    seed: int = 0,
    epochs: int | None = None,
    patience: int | None = None,
    split: str = "released",
    root: str | None = None,
    use_presets: bool = True,
    jobs: int = 1,
    command: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Do what is left of an experiment and write its report, ``<out>/<experiment>.md`` and ``.html``, with pictures.

    Settings are those of the presets of the package, whatever split they were searched on (the report tells), and the
    defaults where there is none. All experiments share the runs in ``<out>/results.jsonl``.

    Args:
        experiment: One of :data:`EXPERIMENTS`.
        out: Folder for reports and records.
        datasets: Graphs.
        models: Networks.
        ps: p of the networks that have one: numbers, or ``"learned"``, ``"bands"`` (one for every band),
            ``"learned-bands"``, ``"searched"`` (the preset's).
        values: Along a curve: shares of flipped features, values of mu or values of p.
        runs: Runs of every cell; run r uses the seed ``seed + r``.
        seed: The first seed.
        epochs: Epochs of every run, by default the preset's or 200.
        patience: Stop a run after so many epochs without a better one, by default the preset's or never.
        split: See :func:`plufg_fast.data.split`; the paper's by default.
        root: Folder of the datasets, see :func:`plufg_fast.data.load`.
        use_presets: Whether to take settings from presets, and not the defaults for all.
        jobs: Processes that share the work, of one thread each.
        command: What the report says it was made by.
        progress: Called at the start, after every run, and where networks are looked into after each.

    Returns:
        The path of the Markdown report.
    """
    cells = plan(
        experiment, datasets=datasets, models=models, ps=ps, values=values, runs=runs,
        seed=seed, epochs=epochs, patience=patience, split=split, root=root, use_presets=use_presets,
    )  # fmt: skip
    if experiment == "isomap":
        isomap.method()
    kind, folder = EXPERIMENTS[experiment], Path(out)
    order = list(dict.fromkeys(cell.dataset for cell in cells))
    # Before hours of work: a graph or a split that is not there, a network that cannot be.
    graphs = _graphs(cells)
    facts = dict(zip(graphs, describe([*graphs.values()], folder), strict=True))
    for name, fact in facts.items():
        if experiment == "denoise" and not fact["binary_features"]:
            raise ValueError(f"reproduce: denoise flips binary features, got {name}, whose are not")
    sizes = {fact["dataset"]: Dims(1, fact["classes"], fact["nodes"]) for fact in facts.values()}
    for cell in cells:
        build_model(cell.config, sizes[cell.dataset])
    records = sweep(in_order(cells), folder, jobs=jobs, networks=kind.networks, progress=progress)
    scores = {cell: score(cell, records) for cell in cells}
    majority = {name: _majority(scores, name) for name in order}
    report = Report(kind.about, experiment, folder)
    _head(report, cells, facts, majority, command)
    if experiment in curves.NAMES:
        curves.write(report, experiment, scores, majority)
    elif kind.networks:
        _accuracies(report, scores)
        follow = progress or (lambda step: None)
        (isomap if experiment == "isomap" else convergence).write(report, cells, folder, follow)
    else:
        tables.write(report, scores, majority)
    _foot(report, experiment, cells, records)
    return report.write()


def _graphs(cells: Sequence[Cell]) -> dict[str, TrainConfig]:
    """A configuration for every graph, by a name for people; presets may take one dataset in different ways."""
    found: dict[str, TrainConfig] = {}
    for cell in cells:
        # Noise is what an experiment does to a graph.
        options = {k: v for k, v in cell.config.data_options.items() if v and k != "noise"}
        name = ", ".join([cell.dataset, *(k if v is True else f"{k} {_text(v)}" for k, v in options.items())])
        found.setdefault(name, replace(cell.config, data_options=options))
    return found


def _majority(scores: Mapping[Cell, Score], dataset: str) -> float:
    found = [result.mean("majority_accuracy") for cell, result in scores.items() if cell.dataset == dataset and result]
    return mean_and_std(found)[0] if found else float("nan")


def _head(
    report: Report,
    cells: Sequence[Cell],
    facts: Mapping[str, Mapping[str, Any]],
    majority: Mapping[str, float],
    command: str | None,
) -> None:
    config = cells[0].config
    if command is not None:
        report.text(f"```\n{command}\n```")
    searched_on = sorted({cell.searched_on for cell in cells if cell.searched_on})
    # A split that is the same in all runs keeps its test nodes out of the searches on it.
    elsewhere = [name for name in searched_on if name != config.split or name not in ("released", "public")]
    report.text(
        f"Mean and standard deviation over {config.runs} run{'s' if config.runs > 1 else ''} (seeds {config.seed} to"
        f" {config.seed + config.runs - 1}), `{config.split}` split. The epoch is chosen by validation accuracy; test"
        " nodes decide nothing" + ("" if elsewhere else ", settings included") + ". The paper's figures are those"
        " printed in its tables, under its split."
    )
    if elsewhere:
        report.text(
            f"Presets were searched on the {' and '.join(f'`{name}`' for name in elsewhere)} split: nodes that"
            " validated settings there may be test nodes here."
        )
    rows = []
    for name, fact in facts.items():
        parts = " / ".join(str(fact["split"][part]) for part in ("train", "val", "test"))
        outside = ", ".join(map(str, fact["classes_in_no_mask"])) or "none"
        if fact["classes_in_no_mask"]:
            outside += f" ({fact['nodes_of_these']} nodes)"
        numbers = [str(fact[key]) for key in ("nodes", "edges", "features", "classes")]
        largest = f"{majority[fact['dataset']]:.2f}"
        rows.append([name, *numbers, f"{fact['homophily']:.2f}", parts, largest, outside])
    header = ["graph", "nodes", "edges", "features", "classes", "homophily", "train / val / test"]
    report.table([*header, "largest test class (%)", "classes in no mask"], rows)


def _accuracies(report: Report, scores: Mapping[Cell, Score]) -> None:
    rows = [[cell.dataset, cell.label, result.text()] for cell, result in scores.items()]
    report.text("Test accuracy (%) of the networks that are looked into:")
    report.table(["", "row", "test"], rows, left=2)


def _foot(report: Report, experiment: str, cells: Sequence[Cell], records: Mapping[str, Mapping[str, Any]]) -> None:
    """The settings behind every row, and what the runs were done with."""
    report.text(
        "## Settings",
        f"`preset`: found by `plufg search`, by validation accuracy; `defaults`: no preset yet. p per band is"
        f" {BAND_P[0]:g} for the low-pass band and {BAND_P[1]:g} for the others.",
    )
    rows = {}
    for cell in cells:
        config = cell.config
        options = {**config.model_options, **config.data_options}
        if config.schedule != "constant":
            options["schedule"] = config.schedule
        if config.patience is not None:
            options["patience"] = config.patience
        options.pop(_VARIED.get(experiment, ""), None)
        label = LABELS[cell.model] if experiment == "p" else cell.label
        shown = ", ".join(f"{name} {_text(item)}" for name, item in options.items())
        numbers = [f"{value:g}" for value in (config.epochs, config.lr, config.weight_decay, config.hidden_channels)]
        source = "preset" if cell.tuned else "defaults"
        rows[cell.dataset, label] = [cell.dataset, label, source, shown, *numbers]
    header = ["graph", "row", "settings", "options", "epochs", "lr", "weight decay", "hidden"]
    report.table(header, list(rows.values()), left=4)
    done = [entry for entry in records.values() if "error" not in entry]
    seconds = sum(entry["result"]["seconds"] for entry in done)
    versions = sorted({", ".join(f"{name} {text}" for name, text in entry["versions"].items()) for entry in done})
    report.text(f"{len(done)} runs, {seconds:.0f} s of training in all; {'; '.join(versions)}.")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
