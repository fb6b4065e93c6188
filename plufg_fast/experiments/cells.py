"""The rows and columns of the paper's tables: which configuration stands behind a cell, and what its runs gave."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from ..data import DATASETS, OLD_CORNELL
from ..nn.models import MODELS, option_names
from . import presets
from .spaces import num_bands, with_middle_mu
from .sweep import Run
from .train import Result, TrainConfig, mean_and_std

OURS: Final = ("pl-ufg1", "pl-ufg2", "pl-fufg")
LABELS: Final = {
    "mlp": "MLP",
    "gcn": "GCN",
    "sgc": "SGC",
    "gat": "GAT",
    "jknet": "JKNet",
    "appnp": "APPNP",
    "gprgnn": "GPRGNN",
    "ufg": "UFG",
    "pgnn": "PGNN",
    "pl-ufg1": "pL-UFG1",
    "pl-ufg2": "pL-UFG2",
    "pl-fufg": "pL-fUFG",
}
"""The networks in the order of the paper's tables."""

PAPERS_P: Final = ("1", "1.5", "2", "2.5")
OTHER_P: Final = {
    "learned": "p learned",
    "bands": "p per band",
    "learned-bands": "p learned per band",
    "searched": "p searched",
}
"""What may stand for a number as the p of a network: a parameter; one for every band, of ``BAND_P``; a parameter for
every band; and what the search behind the preset found best."""
BAND_P: Final = (2.0, 1.0)
"""p of the low-pass band, which is smooth anyway, and of the others, where few large differences are to stay."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One configuration in a table or a curve."""

    model: str
    p: str  # a number, a key of OTHER_P, or empty for networks without p
    config: TrainConfig
    searched_on: str | None  # the split on which its preset was found, if its settings are those of one
    value: float | None = None  # where it stands on a curve

    @property
    def tuned(self) -> bool:
        """Whether its settings are those of a preset."""
        return self.searched_on is not None

    @property
    def dataset(self) -> str:
        """The graph."""
        return self.config.dataset

    @property
    def label(self) -> str:
        """The row, for people."""
        if not self.p:
            return LABELS[self.model]
        return f"{LABELS[self.model]}, {OTHER_P.get(self.p, f'p = {self.p}')}"

    def run(self, number: int) -> Run:
        """One of its runs. Noise is drawn anew for each, as the parameters are."""
        config = self.config
        if config.data_options.get("noise"):
            config = replace(config, data_options={**config.data_options, "noise_seed": config.seed + number})
        return Run(config, number)

    def runs(self) -> list[Run]:
        """All of its runs."""
        return [self.run(number) for number in range(self.config.runs)]


@dataclass(frozen=True)
class Score:
    """What the runs of a cell gave, accuracies in percent."""

    results: list[Result]
    failed: int  # runs whose loss did not stay finite

    def __bool__(self) -> bool:
        return bool(self.results)

    def mean(self, field: str = "test_accuracy") -> float:
        """Mean over the runs."""
        return mean_and_std([100 * getattr(result, field) for result in self.results])[0]

    def std(self, field: str = "test_accuracy") -> float:
        """Standard deviation over the runs."""
        return mean_and_std([100 * getattr(result, field) for result in self.results])[1]

    def rank(self) -> tuple[float, float]:
        """Largest for the best: by validation accuracy, then by validation loss."""
        return self.mean("val_accuracy"), -fmean(result.val_loss[result.best_epoch - 1] for result in self.results)

    def text(self, field: str = "test_accuracy") -> str:
        """Mean and standard deviation, for people."""
        if not self:
            return "loss not finite"
        text = f"{self.mean(field):.2f}" + (f" ± {self.std(field):.2f}" if len(self.results) > 1 else "")
        return text + (f" ({self.failed} of {self.failed + len(self.results)} failed)" if self.failed else "")


def score(cell: Cell, records: Mapping[str, dict[str, Any]]) -> Score:
    """The results of a cell among the records of a sweep."""
    entries = [records[run.key] for run in cell.runs()]
    results = [Result(**entry["result"]) for entry in entries if "error" not in entry]
    return Score(results, len(entries) - len(results))


def make_cells(
    datasets: Sequence[str], models: Sequence[str], ps: Sequence[str], use_presets: bool = True, **changes: Any
) -> list[Cell]:
    """The cells of a table: every model on every graph, with every p that it can have.

    Args:
        datasets: Graphs.
        models: Networks.
        ps: Numbers and keys of ``OTHER_P``.
        use_presets: Whether to take settings from presets.
        changes: Fields of :class:`TrainConfig` that count in all cells.
    """
    check_names("dataset", datasets, ("csbm", *DATASETS, OLD_CORNELL))
    check_names("model", models, tuple(MODELS))
    for p in ps:
        if p not in OTHER_P and not _is_number(p):
            raise ValueError(f"p: expected numbers or {', '.join(OTHER_P)}, got {p!r}")
    cells = []
    for dataset in datasets:
        for model in models:
            base, searched_on = base_config(dataset, model, use_presets, **changes)
            if "p" not in option_names(model):
                cells.append(Cell(model, "", base, searched_on))
                continue
            for p in ps:
                config = with_p(base, p, searched_on is not None)
                if config is not None:
                    cells.append(Cell(model, p, config, searched_on))
    without = [model for model in models if not any(cell.model == model for cell in cells)]
    if without:
        raise ValueError(f"p: none of {', '.join(ps)} is for {', '.join(without)} on these graphs")
    return cells


def check_names(what: str, names: Iterable[str], known: Sequence[str]) -> None:
    """Refuse a name that is not known."""
    for name in names:
        if name not in known:
            raise ValueError(f"unknown {what} {name!r}; choose from {', '.join(known)}")


def base_config(dataset: str, model: str, use_presets: bool = True, **changes: Any) -> tuple[TrainConfig, str | None]:
    """The configuration of a network on a graph, and the split on which its preset was found, if it has one.

    Without a preset it is the default one (:func:`with_middle_mu`).
    """
    searched_on = None
    if use_presets and presets.path_of(f"{dataset}/{model}").is_file():
        config = presets.read(f"{dataset}/{model}")[0]
        searched_on = config.split
    else:
        config = with_middle_mu(TrainConfig(dataset=dataset, model=model))
    changes = {name: value for name, value in changes.items() if value is not None}
    if changes.get("split", config.split) != config.split:
        changes.setdefault("split_options", {})
    if dataset == "csbm":
        changes.pop("root", None)
    return replace(config, **changes), searched_on


def with_p(config: TrainConfig, p: str, tuned: bool) -> TrainConfig | None:
    """The configuration with another p; None where that does not exist."""
    options = {name: value for name, value in config.model_options.items() if name not in ("p", "learn_p")}
    found = config.model_options.get("p")
    start = float(found) if isinstance(found, int | float) else 1.5
    if p == "searched":
        return config if tuned else None
    if p == "learned":
        options |= {"p": start, "learn_p": True}
    elif p in ("bands", "learned-bands"):
        if config.model not in ("pl-ufg1", "pl-fufg"):
            return None
        others = num_bands(config) - 1
        low, high = BAND_P
        options |= {"p": [low] + [high] * others} if p == "bands" else {"p": [start] * (1 + others), "learn_p": True}
    else:
        options |= {"p": float(p)}
    return replace(config, model_options=options)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def printed(cell: Cell) -> tuple[float, float] | None:
    """The paper's accuracy and standard deviation of a cell, where it prints one."""
    row = f"{cell.model} p={float(cell.p):g}" if _is_number(cell.p) else cell.model if not cell.p else ""
    found = _paper().get(cell.dataset, {}).get(row)
    return None if found is None else (found[0], found[1])


def best_printed(dataset: str) -> tuple[str, float] | None:
    """The paper's best cell of its own three networks on a graph."""
    rows = {row: mean for row, (mean, _) in _paper().get(dataset, {}).items() if row.startswith(OURS)}
    if not rows:
        return None
    row = max(rows, key=rows.__getitem__)
    model, _, p = row.partition(" p=")
    return f"{LABELS[model]}, p = {p}", rows[row]


@lru_cache(maxsize=1)
def _paper() -> dict[str, dict[str, list[float]]]:
    with (Path(__file__).parent / "paper.toml").open("rb") as file:
        return tomllib.load(file)


def in_order(cells: Sequence[Cell]) -> list[Run]:
    """All runs of all cells: first the first of every cell, then the second, and so on, graph by graph.

    So the time left is known after the first round, and what is there when somebody stops is a whole table.
    """
    most = max((cell.config.runs for cell in cells), default=0)
    return [cell.run(number) for number in range(most) for cell in cells if number < cell.config.runs]
