"""Training node classifiers: one fit, or many runs of one configuration written down as they finish."""

from __future__ import annotations

import copy
import math
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from ..data import Split, csbm, fold, load, majority_accuracy, split
from ..label_shift import correct
from ..nn.conv.base import Exponent
from ..nn.models import Dims, build
from ..nn.sparse import sparse_features
from .records import Records, key_of

SCHEDULES: Final = ("constant", "cosine", "plateau")
SAVE_EVERY: Final = 100
"""Epochs after which an unfinished fit is saved."""
NUMERICS: Final = 5
"""Raised by every change after which the same configuration gives other numbers: results of before are not taken for
its results."""


class Epoch(NamedTuple):
    """What is known after an epoch. Test nodes are left out: nobody should watch them."""

    number: int  # from 1
    train_loss: float
    val_loss: float
    train_accuracy: float
    val_accuracy: float
    best_val_accuracy: float
    val_accuracies: Sequence[float]  # of all epochs so far


Progress = Callable[[Epoch], object]
"""Called after every epoch."""


@dataclass(frozen=True)
class Result:
    """One finished fit. Accuracies are shares, taken at the best epoch by validation accuracy."""

    train_accuracy: float
    val_accuracy: float
    test_accuracy: float
    corrected_test_accuracy: float  # with predictions corrected for the test nodes' class shares (label_shift)
    majority_accuracy: float  # of always answering the test nodes' most frequent class
    best_epoch: int  # from 1
    epochs: int
    seconds: float
    train_loss: list[float] = field(repr=False)
    val_loss: list[float] = field(repr=False)
    val_accuracies: list[float] = field(repr=False)
    learned_p: list[float] | None = None


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
    schedule: str = "constant"
    weight_decay: float = 5e-4
    hidden_channels: int = 32
    model_options: dict[str, Any] = field(default_factory=dict)
    # Keywords of data.csbm or data.load.
    data_options: dict[str, Any] = field(default_factory=dict)
    # Keywords of data.split; with cross_validate=True run r takes the r-th data.fold of what that gives.
    split_options: dict[str, Any] = field(default_factory=dict)
    root: str | None = None

    def __post_init__(self) -> None:
        # Names may be given in any case; runs are kept and found by them.
        for name in ("dataset", "model", "split", "schedule"):
            object.__setattr__(self, name, getattr(self, name).lower())


def fit(
    model: nn.Module,
    data: Data,
    split: Split,
    *,
    lr: float = 0.01,
    schedule: str = "constant",
    weight_decay: float = 5e-4,
    epochs: int = 200,
    patience: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    state: str | Path | None = None,
    save_every: int = SAVE_EVERY,
) -> Result:
    """Train a network from scratch on the training nodes and choose the epoch by the validation nodes.

    The global random state is seeded and the parameters are drawn anew, so that on the CPU the same arguments
    give the same bits. The best epoch has the highest validation accuracy, and among equals the lowest
    validation loss; test nodes decide nothing. The network is left as it was at the best epoch.

    A network that takes labels is told those of a random half of the training nodes in every epoch and trained on the
    other half. When it is judged, it knows all training nodes: its accuracy on them says little.

    Args:
        model: A network of :mod:`plufg_fast.nn.models`, or any module called and reset like them.
        data: The graph: ``x``, ``edge_index``, ``y`` and optionally ``edge_weight``. Where ``x`` is mostly zeros the
            networks of this package get it as a sparse matrix.
        split: The nodes to train, validate and test on.
        lr: Adam's learning rate.
        schedule: What becomes of it: ``"constant"`` (the paper's), ``"cosine"`` (falls to 0 over ``epochs``) or
            ``"plateau"`` (halved after more than 20 epochs without a lower validation loss).
        weight_decay: L2 penalty on all parameters.
        epochs: Steps of the optimiser.
        patience: Stop after so many epochs without a better one; by default never.
        seed: Fixes initial parameters and dropout.
        progress: Called after every epoch.
        state: A file that is written every ``save_every`` epochs. Where it exists, the fit goes on from it, to the
            same bits as one that was never interrupted. Remove it when the result is safe, not before.
        save_every: See ``state``.

    Raises:
        FloatingPointError: If the loss stops being finite.
        ValueError: If a number is out of range, or ``state`` is that of a fit with other arguments.
    """
    from torch_geometric import seed_everything

    if epochs < 1 or (patience is not None and patience < 1) or save_every < 1:
        raise ValueError(
            f"fit: expected epochs, save_every and patience (or None) >= 1, got {epochs}, {save_every}, {patience}"
        )
    if schedule not in SCHEDULES:
        raise ValueError(f"fit: unknown schedule {schedule!r}; known are {', '.join(SCHEDULES)}")
    seed_everything(seed)
    reset: Any = model.reset_parameters
    reset()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay, fused=True)
    scheduler = _scheduler(schedule, optimizer, epochs)
    arguments = {
        "lr": lr,
        "schedule": schedule,
        "weight_decay": weight_decay,
        "epochs": epochs,
        "patience": patience,
        "seed": seed,
    }
    # All that changes from epoch to epoch, beside the network, the optimiser, its schedule and the random state.
    now: dict[str, Any] = {
        "train_loss": [],
        "val_loss": [],
        "val_accuracies": [],
        "best_epoch": 0,
        "best_state": {},
        "best_out": None,  # what the network said then, [N, C]
        "train_accuracy": 0.0,
        "test_accuracy": 0.0,
        "seconds": 0.0,
    }
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    if state is not None and Path(state).exists():
        now = _restore(Path(state), arguments, parts) or now
    edge_weight = data.get("edge_weight")
    x = sparse_features(data.x) if getattr(model, "takes_sparse_features", False) else data.x
    all_known = known_labels(model, data, split.train)
    train_loss, val_loss, val_accuracies = now["train_loss"], now["val_loss"], now["val_accuracies"]
    for epoch in range(len(train_loss) + 1, epochs + 1):
        # Here, not behind the last epoch: a saved fit may have been about to stop.
        if patience is not None and epoch - 1 - now["best_epoch"] >= patience:
            break
        start = time.perf_counter()
        model.train()
        optimizer.zero_grad()
        told, judged = _halves(split.train) if all_known else (split.train, split.train)
        out = model(x, data.edge_index, edge_weight, **known_labels(model, data, told))
        loss = F.nll_loss(out[judged], data.y[judged])
        train_loss.append(loss.item())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

        model.eval()
        with torch.no_grad():
            out = model(x, data.edge_index, edge_weight, **all_known)
        val_loss.append(F.nll_loss(out[split.val], data.y[split.val]).item())
        if not math.isfinite(train_loss[-1] + val_loss[-1]):
            raise FloatingPointError(f"fit: loss {train_loss[-1]}, then {val_loss[-1]}, in epoch {epoch}")
        val_accuracies.append(_accuracy(out, data.y, split.val))
        train_accuracy = _accuracy(out, data.y, split.train)
        best = now["best_epoch"] - 1
        if best < 0 or (val_accuracies[-1], -val_loss[-1]) > (val_accuracies[best], -val_loss[best]):
            now["best_epoch"] = epoch
            now["best_state"] = {name: value.clone() for name, value in model.state_dict().items()}
            now["best_out"] = out
            now["train_accuracy"], now["test_accuracy"] = train_accuracy, _accuracy(out, data.y, split.test)
        if schedule == "plateau":
            scheduler.step(val_loss[-1])
        else:
            scheduler.step()
        now["seconds"] += time.perf_counter() - start
        if state is not None and epoch % save_every == 0 and epoch < epochs:
            _save_state(Path(state), arguments, parts, now)
        if progress is not None:
            best_accuracy = val_accuracies[now["best_epoch"] - 1]
            losses = train_loss[-1], val_loss[-1]
            progress(Epoch(epoch, *losses, train_accuracy, val_accuracies[-1], best_accuracy, val_accuracies))
    model.load_state_dict(now.pop("best_state"))
    out = correct(now.pop("best_out"), data.y, split).log_prob
    return Result(
        **now,
        val_accuracy=val_accuracies[now["best_epoch"] - 1],
        corrected_test_accuracy=_accuracy(out, data.y, split.test),
        majority_accuracy=majority_accuracy(data.y, split.test),
        epochs=len(train_loss),
        learned_p=_learned_p(model),
    )


def known_labels(model: nn.Module, data: Data, told: Tensor) -> dict[str, Tensor]:
    """The keywords by which a network that takes labels hears of those of the nodes ``told``; none for another one."""
    if not getattr(model, "takes_labels", False):
        return {}
    return {"known": torch.where(told, data.y, -1)}


def _halves(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Two random halves of a mask, the second not empty where the mask is not."""
    nodes = mask.nonzero().flatten()
    first = torch.zeros_like(mask)
    first[nodes[torch.randperm(len(nodes))[: len(nodes) // 2]]] = True
    return first, mask & ~first


def _scheduler(schedule: str, optimizer: torch.optim.Optimizer, epochs: int) -> Any:
    schedulers = torch.optim.lr_scheduler
    if schedule == "cosine":
        return schedulers.CosineAnnealingLR(optimizer, epochs)
    if schedule == "plateau":
        return schedulers.ReduceLROnPlateau(optimizer, factor=0.5, patience=20)
    return schedulers.ConstantLR(optimizer, factor=1.0)


def _save_state(path: Path, arguments: dict[str, Any], parts: dict[str, Any], now: dict[str, Any]) -> None:
    content = {name: part.state_dict() for name, part in parts.items()}
    save(path, {"arguments": arguments, "now": now, "random": torch.get_rng_state(), **content})


def _restore(path: Path, arguments: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any] | None:
    try:
        content = torch.load(path, weights_only=True)
    except (EOFError, RuntimeError, UnpicklingError) as error:
        # A disk that was full, or a machine that lost its power.
        warnings.warn(f"fit: {path} cannot be read and is not used: {error or type(error).__name__}", stacklevel=3)
        return None
    if content["arguments"] != arguments:
        raise ValueError(f"fit: {path} is the state of a fit with {content['arguments']}, got {arguments}")
    for name, part in parts.items():
        part.load_state_dict(content[name])
    torch.set_rng_state(content["random"])
    now: dict[str, Any] = content["now"]
    return now


def save(path: Path, content: dict[str, Any]) -> None:
    """``torch.save``, by which the file is the old one or the new one and never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Always the same name: what a killed process left is overwritten.
    written = path.with_name(path.name + ".part")
    with written.open("wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    written.replace(path)


def once(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What takes long to make, and is made once: from then on it is what the file holds."""
    if not path.exists():
        save(path, make())
    content: dict[str, Any] = torch.load(path, weights_only=True)
    return content


def _accuracy(out: Tensor, label: Tensor, mask: Tensor) -> float:
    return float((out[mask].argmax(dim=-1) == label[mask]).double().mean())


def _learned_p(model: nn.Module) -> list[float] | None:
    values = [module() for module in model.modules() if isinstance(module, Exponent) and module.learn]
    return [v for value in values if isinstance(value, Tensor) for v in value.tolist()] or None


def train(
    config: TrainConfig,
    out: str | Path | None = None,
    progress: Callable[[int], Progress] | None = None,
    *,
    data: Data | None = None,
    checkpoints: str | Path | None = None,
    save_every: int = SAVE_EVERY,
) -> list[Result]:
    """Run one configuration ``config.runs`` times, or what is left of that.

    Run ``r`` uses the seed ``config.seed + r`` for the parameters and for the split where that is drawn or
    one of ten. The ``"released"`` split is always drawn with its own seed, as in the tables. A generated
    graph is the same in all runs.

    Args:
        config: What to run.
        out: Folder whose ``results.jsonl`` gets one line per finished run, at once, behind what is there. Runs that
            it holds already are read, not repeated; one that was interrupted goes on where it was last saved.
            Processes that share the folder share the runs.
        progress: Called with the number of a run, from 0, before it starts: returns the progress of that fit.
        data: The graph of the configuration, for callers that have it; by default it is loaded when needed.
        checkpoints: Folder for the networks at their best epochs, one file per run (:func:`load_checkpoint`).
        save_every: Epochs after which an unfinished run is saved.

    Returns:
        The results of the runs, without those whose loss did not stay finite: a warning names each, and the next call
        tries it again.

    Raises:
        FloatingPointError: If no loss stayed finite.
    """
    if config.runs < 1:
        raise ValueError(f"train: expected runs >= 1, got {config.runs}")
    records = None if out is None else Records(Path(out) / "results.jsonl")
    keys = [run_key(config, run) for run in range(config.runs)]
    results: dict[int, Result] = {}

    def state_of(run: int) -> Path | None:
        return None if out is None else Path(out) / "unfinished" / f"{keys[run]}.pt"

    def is_finished(run: int) -> bool:
        if run in results:
            return True
        found = None if records is None else records.get(keys[run])
        if found is None or not (checkpoints is None or checkpoint_path(checkpoints, config, run).exists()):
            return False
        results[run] = Result(**found["result"])
        # Only now: a process that is killed before this has all it needs to go on.
        if (state := state_of(run)) is not None:
            state.unlink(missing_ok=True)
        return True

    left = [run for run in range(config.runs) if not is_finished(run)]
    if not left:
        return [results[run] for run in range(config.runs)]
    if checkpoints is not None:
        # A folder that cannot be is better known before hours of training.
        Path(checkpoints).mkdir(parents=True, exist_ok=True)
    if data is None:
        data = load_data(config)
    # Here for all runs together; a caller's graph stays as it is.
    data = copy.copy(data)
    data.x = sparse_features(data.x)
    model = build_model(config, data)
    masks = {run: draw_split(config, run, data) for run in left}

    def do(run: int) -> None:
        result = run_once(
            config,
            run,
            data,
            model,
            masks[run],
            progress=None if progress is None else progress(run),
            state=state_of(run),
            save_every=save_every,
        )
        keep(config, run, data, model, masks[run], result, records, checkpoints)
        if records is None:
            results[run] = result
        else:
            is_finished(run)  # what is on record counts, for the caller as for everybody

    failed: dict[int, FloatingPointError] = {}
    # First all that nobody is at, then what others began and may have left.
    for run, wait in [(run, wait) for wait in (False, True) for run in left]:
        if run in failed or is_finished(run):
            continue
        with nullcontext(True) if records is None else records.claim(keys[run], wait) as mine:
            if not mine or is_finished(run):
                continue
            try:
                do(run)
            except FloatingPointError as error:
                failed[run] = error
                if (state := state_of(run)) is not None:
                    state.unlink(missing_ok=True)
                warnings.warn(f"train: run {run} (seed {config.seed + run}) failed: {error}", stacklevel=2)
    if len(failed) == config.runs:
        raise failed[0]
    return [results[run] for run in range(config.runs) if run not in failed]


def draw_split(config: TrainConfig, run: int, data: Data) -> Split:
    """The nodes that a run trains, validates and tests on."""
    options = dict(config.split_options)
    cross_validate = options.pop("cross_validate", False)
    # Folds are of one split, so that what tests in one run validates in no other.
    seed = None if config.split == "released" else config.seed + (0 if cross_validate else run)
    masks = split(data, config.split, seed, **options)
    return fold(masks, data.y, run, config.seed) if cross_validate else masks


def run_once(config: TrainConfig, run: int, data: Data, model: nn.Module, masks: Split, **options: Any) -> Result:
    """One run of a configuration, from 0. ``options`` are further ones of :func:`fit`."""
    return fit(
        model,
        data,
        masks,
        lr=config.lr,
        schedule=config.schedule,
        weight_decay=config.weight_decay,
        epochs=config.epochs,
        patience=config.patience,
        seed=config.seed + run,
        **options,
    )


def keep(
    config: TrainConfig,
    run: int,
    data: Data,
    model: nn.Module,
    masks: Split,
    result: Result,
    records: Records | None,
    checkpoints: str | Path | None,
) -> None:
    """Write a finished run down: first the network, then the line that says that all of the run is there."""
    if checkpoints is not None:
        save(checkpoint_path(checkpoints, config, run), checkpoint(config, run, data, model, result))
    if records is not None:
        records.append(run_key(config, run), record(config, run, masks, result))


def load_data(config: TrainConfig) -> Data:
    """The graph of a configuration."""
    if config.dataset == "csbm":
        return csbm(**{"seed": config.seed, **config.data_options})
    return load(config.dataset, config.root, **config.data_options)


def build_model(config: TrainConfig, data: Data | Dims) -> nn.Module:
    """The network of a configuration."""
    return build(config.model, data, hidden_channels=config.hidden_channels, **config.model_options)


def run_key(config: TrainConfig, run: int) -> str:
    """The key of a run in `Records`: equal for runs that differ in nothing but where the data lie."""
    identity = asdict(config)
    del identity["runs"], identity["root"]
    if config.dataset == "csbm":
        identity["data_options"] = {"seed": config.seed, **config.data_options}
    if config.split_options.get("cross_validate"):
        identity["fold"] = [config.seed, run]
    return key_of({**identity, "seed": config.seed + run, "numerics": NUMERICS})


def record(config: TrainConfig, run: int, masks: Split, result: Result) -> dict[str, Any]:
    """Everything about one run that it takes to repeat and to judge it, ready for JSON."""
    return {
        "config": asdict(config),
        "run": run,
        "seed": config.seed + run,
        "nodes": {part: int(mask.sum()) for part, mask in masks._asdict().items()},
        "result": asdict(result),
        **circumstances(),
    }


def circumstances() -> dict[str, Any]:
    """When, and with what, a run was done."""
    import numpy
    import torch_geometric

    from ..version import __version__

    return {
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


def checkpoint_path(folder: str | Path, config: TrainConfig, run: int) -> Path:
    """Where the network of a run is kept."""
    return Path(folder) / f"{config.dataset}-{config.model}-seed{config.seed + run}-{run_key(config, run)}.pt"


def checkpoint(config: TrainConfig, run: int, data: Data, model: nn.Module, result: Result) -> dict[str, Any]:
    """A network at its best epoch, and what it takes to build it again."""
    return {
        "config": asdict(config),
        "seed": config.seed + run,
        "dims": tuple(Dims(data.num_features, int(data.y.max()) + 1, data.num_nodes)),
        "best_epoch": result.best_epoch,
        "val_accuracy": result.val_accuracy,
        "state_dict": model.state_dict(),
    }


def load_checkpoint(path: str | Path) -> tuple[nn.Module, TrainConfig]:
    """The network that :func:`train` kept in a file, ready to predict, and the configuration it comes from."""
    content = torch.load(path, weights_only=True)
    config = TrainConfig(**content["config"])
    model = build_model(config, Dims(*content["dims"]))
    model.load_state_dict(content["state_dict"])
    return model.eval(), config


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation, 0 for a single value."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
