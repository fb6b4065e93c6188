"""Training node classifiers: one fit, or many runs of one configuration written down as they finish."""

from __future__ import annotations

import json
import math
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from ..data import Split, csbm, load, majority_accuracy, split
from ..nn.models import build

Progress = Callable[[int, float], object]
"""Called after every epoch with its number, from 1, and the validation accuracy."""


@dataclass(frozen=True)
class Result:
    """One finished fit. Accuracies are shares, taken at the best epoch by validation accuracy."""

    train_accuracy: float
    val_accuracy: float
    test_accuracy: float
    majority_accuracy: float  # of always answering the test nodes' most frequent class
    best_epoch: int  # from 1
    epochs: int
    seconds: float
    train_loss: list[float] = field(repr=False)
    val_loss: list[float] = field(repr=False)
    val_accuracies: list[float] = field(repr=False)


@dataclass(frozen=True)
class TrainConfig:
    """One configuration of :func:`train`; its fields are the options of ``plufg train``."""

    dataset: str = "csbm"
    model: str = "pl-ufg2"
    split: str = "random"
    runs: int = 10
    seed: int = 0
    epochs: int = 200
    patience: int | None = None
    lr: float = 0.01
    weight_decay: float = 5e-4
    hidden_channels: int = 32
    model_options: dict[str, Any] = field(default_factory=dict)
    # Keywords of data.csbm or data.load.
    data_options: dict[str, Any] = field(default_factory=dict)
    root: str | None = None


def fit(
    model: nn.Module,
    data: Data,
    split: Split,
    *,
    lr: float = 0.01,
    weight_decay: float = 5e-4,
    epochs: int = 200,
    patience: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Train a network from scratch on the training nodes and choose the epoch by the validation nodes.

    The global random state is seeded and the parameters are drawn anew, so that on the CPU the same arguments
    give the same bits. The best epoch has the highest validation accuracy, and among equals the lowest
    validation loss; test nodes decide nothing. The network is left as it was at the best epoch.

    Args:
        model: A network of :mod:`plufg_fast.nn.models`, or any module called and reset like them.
        data: The graph: ``x``, ``edge_index``, ``y`` and optionally ``edge_weight``.
        split: The nodes to train, validate and test on.
        lr: Adam's learning rate.
        weight_decay: L2 penalty on all parameters.
        epochs: Steps of the optimiser.
        patience: Stop after so many epochs without a better one; by default never.
        seed: Fixes initial parameters and dropout.
        progress: Called after every epoch.

    Raises:
        FloatingPointError: If the loss stops being finite.
    """
    from torch_geometric import seed_everything

    if epochs < 1 or (patience is not None and patience < 1):
        raise ValueError(f"fit: expected epochs >= 1 and patience >= 1 or None, got {epochs}, {patience}")
    seed_everything(seed)
    reset: Any = model.reset_parameters
    reset()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)
    edge_weight = data.get("edge_weight")
    train_loss: list[float] = []
    val_loss: list[float] = []
    val_accuracies: list[float] = []
    best_epoch, best_score = 0, (-1.0, -math.inf)
    best_state: dict[str, Tensor] = {}
    accuracy = {"train": 0.0, "test": 0.0}
    start = time.perf_counter()
    for epoch in range(1, epochs + 1):
        model.train()
        optimizer.zero_grad()
        out = model(data.x, data.edge_index, edge_weight)
        loss = F.nll_loss(out[split.train], data.y[split.train])
        train_loss.append(loss.item())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

        model.eval()
        with torch.no_grad():
            out = model(data.x, data.edge_index, edge_weight)
        val_loss.append(F.nll_loss(out[split.val], data.y[split.val]).item())
        if not math.isfinite(train_loss[-1] + val_loss[-1]):
            raise FloatingPointError(f"fit: loss {train_loss[-1]}, then {val_loss[-1]}, in epoch {epoch}")
        val_accuracies.append(_accuracy(out, data.y, split.val))
        score = (val_accuracies[-1], -val_loss[-1])
        if best_epoch == 0 or score > best_score:
            best_epoch, best_score = epoch, score
            best_state = {name: value.clone() for name, value in model.state_dict().items()}
            accuracy = {part: _accuracy(out, data.y, getattr(split, part)) for part in accuracy}
        if progress is not None:
            progress(epoch, val_accuracies[-1])
        if patience is not None and epoch - best_epoch >= patience:
            break
    seconds = time.perf_counter() - start
    model.load_state_dict(best_state)
    return Result(
        train_accuracy=accuracy["train"],
        val_accuracy=best_score[0],
        test_accuracy=accuracy["test"],
        majority_accuracy=majority_accuracy(data.y, split.test),
        best_epoch=best_epoch,
        epochs=len(train_loss),
        seconds=seconds,
        train_loss=train_loss,
        val_loss=val_loss,
        val_accuracies=val_accuracies,
    )


def _accuracy(out: Tensor, label: Tensor, mask: Tensor) -> float:
    return float((out[mask].argmax(dim=-1) == label[mask]).double().mean())


def train(
    config: TrainConfig, out: str | Path | None = None, progress: Callable[[int], Progress] | None = None
) -> list[Result]:
    """Run one configuration ``config.runs`` times.

    Run ``r`` uses the seed ``config.seed + r`` for the parameters and for the split where that is drawn or
    one of ten. The ``"released"`` split is always drawn with its own seed, as in the tables. A generated
    graph is the same in all runs.

    Args:
        config: What to run.
        out: Folder whose ``results.jsonl`` gets one line per finished run, at once, behind what is there.
        progress: Called with the number of a run, from 0, before it starts: returns the progress of that fit.
    """
    if config.runs < 1:
        raise ValueError(f"train: expected runs >= 1, got {config.runs}")
    data = load_data(config)
    model = build(config.model, data, hidden_channels=config.hidden_channels, **config.model_options)
    results = []
    for run in range(config.runs):
        seed = config.seed + run
        masks = split(data, config.split, None if config.split == "released" else seed)
        result = fit(
            model,
            data,
            masks,
            lr=config.lr,
            weight_decay=config.weight_decay,
            epochs=config.epochs,
            patience=config.patience,
            seed=seed,
            progress=None if progress is None else progress(run),
        )
        results.append(result)
        if out is not None:
            append_record(Path(out) / "results.jsonl", record(config, run, masks, result))
    return results


def load_data(config: TrainConfig) -> Data:
    """The graph of a configuration."""
    if config.dataset.lower() == "csbm":
        return csbm(**{"seed": config.seed, **config.data_options})
    return load(config.dataset, config.root, **config.data_options)


def record(config: TrainConfig, run: int, masks: Split, result: Result) -> dict[str, Any]:
    """Everything about one run that it takes to repeat and to judge it, ready for JSON."""
    import numpy
    import torch_geometric

    from ..version import __version__

    return {
        "config": asdict(config),
        "run": run,
        "seed": config.seed + run,
        "nodes": {part: int(mask.sum()) for part, mask in masks._asdict().items()},
        "result": asdict(result),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "threads": torch.get_num_threads(),
        "versions": {
            "plufg_fast": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "torch_geometric": torch_geometric.__version__,
            "numpy": numpy.__version__,
        },
    }


def append_record(path: Path, entry: dict[str, Any]) -> None:
    """Append one JSON line, in one write, and hand it to the operating system at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry, allow_nan=False) + "\n")
        file.flush()


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation, 0 for a single value."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
