"""Searching for a configuration, by the paper's grid or by an Optuna study: chosen by validation accuracy alone.

Nothing here reads an accuracy on test nodes. A search that is killed goes on where it was: a trial that lost its
process is taken up again, with the runs it had finished, and ends as it would have. Processes that are given the same
folder share the trials.
"""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from torch_geometric.data import Data

from ..nn.sparse import sparse_features
from .records import Records, lock_of, mend
from .spaces import Range, Space, apply, start
from .train import (
    NUMERICS,
    SAVE_EVERY,
    SCHEDULES,
    Epoch,
    TrainConfig,
    build_model,
    circumstances,
    draw_split,
    known_labels,
    load_data,
    mean_and_std,
    run_key,
    run_once,
)
from .trials import Trial

_SAMPLE: Final = 16
"""Points of a space that are looked at before a search begins."""
_LEAST: Final = {"lr": 0, "weight_decay": 0, "patience": 1}
"""What a fit would refuse when a trial is on its way."""
METHODS: Final = ("tpe", "random", "grid")
STORAGES: Final = {"journal": "study.log", "sqlite": "study.db"}


class Step(NamedTuple):
    """Where a search is."""

    trial: int  # from 0
    finished: int
    best: float | None  # mean validation accuracy of the best trial so far
    run: int
    epoch: Epoch


def search(
    config: TrainConfig,
    space: Space,
    out: str | Path,
    *,
    method: str = "tpe",
    trials: int = 100,
    storage: str = "journal",
    prune: bool = True,
    window: int = 1,
    starts: Sequence[TrainConfig] = (),
    progress: Callable[[Step], object] | None = None,
    save_every: int = SAVE_EVERY,
) -> list[Trial]:
    """Try configurations until there are ``trials`` of them, and return all, those of earlier calls included.

    Processes with the same arguments share the trials; each returns when all are done.

    The value of a trial is its mean validation accuracy over ``config.runs`` runs (see ``window``), whose seeds are the
    same in all trials. With one process at a time, the trials depend on the arguments alone, however often it is
    interrupted.

    Args:
        config: What all trials have in common; ``config.seed`` also fixes what is proposed.
        space: What varies: :func:`grid`, :func:`wide` or one's own.
        out: Folder of this one search: the study, and ``runs.jsonl`` with one line per finished run.
        method: ``"tpe"`` learns from the trials so far, ``"random"`` does not; the first trial of both is the
            configuration itself, as near as the space has it. ``"grid"`` takes every combination of a space of lists
            once, in random order.
        trials: How many there are to be in the end, by all calls and processes together.
        storage: ``"journal"``, a file that is only ever appended to, or ``"sqlite"``.
        prune: Whether to give up trials that stay below the median of the others.
        window: The accuracy of a run is the highest mean over so many epochs in a row. 1 is that of its best epoch,
            which flatters networks whose accuracy jumps from epoch to epoch: of 200 draws the luckiest counts.
        starts: Configurations that are tried next to the first, as near as the space has them, where ``method`` is
            not ``"grid"``: what did well elsewhere. A search that goes on keeps those it began with.
        progress: Called after every epoch.
        save_every: Epochs after which an unfinished run is saved.

    Raises:
        ValueError: If an argument is out of range, or the folder holds a search with other arguments.
    """
    _check(config, space, method, trials, storage, window)
    optuna = _optuna()
    folder = Path(out)
    points = _points(space, config.seed) if method == "grid" else []
    first_points: list[dict[str, Any]] = []
    if method == "grid":
        trials = min(trials, len(points))
    else:
        for item in (config, *starts):
            point = start(item, space)
            if point not in first_points:
                first_points.append(point)
    graphs: dict[str, Data] = {}
    # A mistake shows before anything is written.
    sample = points or [_propose(optuna, [], space, "random", seed) for seed in range(_SAMPLE)]
    _check_networks([apply(config, params) for params in sample[:_SAMPLE]], graphs)
    others = [name for name in STORAGES if name != storage and (folder / STORAGES[name]).exists()]
    if others:
        raise ValueError(f"search: {folder} holds a study that was begun with storage {others[0]!r}, got {storage!r}")
    folder.mkdir(parents=True, exist_ok=True)
    setup = {
        "config": _fixed(config, space),
        "space": space,
        "method": method,
        "prune": prune,
        "window": window,
        "numerics": NUMERICS,
    }
    with lock_of(folder / "search"):
        study = _open(optuna, folder / STORAGES[storage], config, prune, json.dumps(setup, sort_keys=True))
        # Those of the first call count: what did well elsewhere may be another thing when a search goes on.
        if "starts" not in study.user_attrs:
            study.set_user_attr("starts", first_points)
        first_points = study.user_attrs["starts"]
    records = Records(folder / "runs.jsonl")

    def propose(before: list[Any]) -> dict[str, Any] | None:
        if len(before) >= trials:
            return None
        if method == "grid":
            return points[len(before)]
        if len(before) < len(first_points):
            return first_points[len(before)]
        return _propose(optuna, before, space, method, config.seed)

    while True:
        with _take(optuna, study, folder, records, propose) as trial:
            if trial is None:
                if _others_are_done(study, records):
                    break
                continue
            params = {name: _suggest(trial, name, values) for name, values in space.items()}
            done = [item for item in study.get_trials(deepcopy=False) if item.state.is_finished()]
            best = max((item.value for item in done if item.state.name == "COMPLETE"), default=None)

            report = partial(_report, progress, trial.number, len(done), best)
            candidate = apply(config, params)
            _evaluate(optuna, study, trial, candidate, _graph(graphs, candidate), records, report, window, save_every)
    # A process that was asked for more may have begun one since.
    return [_finished(config, space, item) for item in study.get_trials(deepcopy=False) if item.state.is_finished()]


def confirm(
    trials: Sequence[Trial],
    out: str | Path,
    *,
    finalists: int,
    runs: int,
    window: int = 1,
    progress: Callable[[Step], object] | None = None,
    save_every: int = SAVE_EVERY,
) -> list[Trial]:
    """The best trials of a search with more runs: what was only lucky falls back.

    Args:
        trials: Those of :func:`search`.
        out: The folder of the search; runs that it has are not repeated.
        finalists: How many of the best complete ones to take.
        runs: Runs of each.
        window: That of the search.
        progress: Called after every epoch.
        save_every: Epochs after which an unfinished run is saved.

    Returns:
        The finalists, with their means over all of these runs; one whose loss did not stay finite is out.
    """
    records = Records(Path(out) / "runs.jsonl")
    best = sorted((trial for trial in trials if trial.state == "complete"), key=Trial.rank)[:finalists]
    graphs: dict[str, Data] = {}
    entries: dict[int, dict[int, dict[str, Any]]] = {trial.number: {} for trial in best}
    # First all that nobody is at, then what others began and may have left.
    for trial, wait in [(trial, wait) for wait in (False, True) for trial in best]:
        if trial.number not in entries or len(entries[trial.number]) == runs:
            continue
        config = replace(trial.config, runs=runs)
        data = _graph(graphs, config)
        model, mine = build_model(config, data), entries[trial.number]
        whole = [_means([*item.values()])["val_accuracy"] for item in entries.values() if len(item) == runs]
        try:
            for run in [run for run in range(runs) if run not in mine]:
                report = partial(_report, progress, trial.number, len(trials), max(whole, default=None), run)
                entry = _run(trial.number, config, run, data, model, records, report, window, save_every, wait)
                if entry is not None:
                    mine[run] = entry
        except FloatingPointError:
            _remove([_state_path(records, config, run) for run in range(runs)])
            del entries[trial.number]
    return [
        replace(trial, config=replace(trial.config, runs=runs), **_means([*entries[trial.number].values()]))
        for trial in best
        if trial.number in entries
    ]


def _report(
    progress: Callable[[Step], object] | None, trial: int, finished: int, best: float | None, run: int, epoch: Epoch
) -> None:
    if progress is not None:
        progress(Step(trial, finished, best, run, epoch))


def _check(config: TrainConfig, space: Space, method: str, trials: int, storage: str, window: int) -> None:
    if method not in METHODS:
        raise ValueError(f"search: unknown method {method!r}; known are {', '.join(METHODS)}")
    if storage not in STORAGES:
        raise ValueError(f"search: unknown storage {storage!r}; known are {', '.join(STORAGES)}")
    if trials < 1 or config.runs < 1:
        raise ValueError(f"search: expected trials and runs >= 1, got {trials} and {config.runs}")
    if not 1 <= window <= config.epochs:
        raise ValueError(f"search: expected a window of 1 to {config.epochs} epochs, got {window}")
    if not space and trials > 1:
        raise ValueError("search: nothing varies; give a space of at least one name, or ask for one trial")
    for name, values in space.items():
        if isinstance(values, Range):
            if method == "grid":
                raise ValueError(f"search: a grid needs lists of values, got a range for {name}")
            if not (values.low < values.high and (values.low > 0 or not values.log)):
                raise ValueError(f"search: expected a range from low to high for {name}, above 0 if log, got {values}")
        elif not values:
            raise ValueError(f"search: no values for {name}")
        elif name == "schedule" and not {*values} <= {*SCHEDULES}:
            raise ValueError(f"search: unknown schedule in {values}; known are {', '.join(SCHEDULES)}")
        least = _LEAST.get(name)
        if least is not None:
            bounds = values[:2] if isinstance(values, Range) else values
            wrong = [value for value in bounds if not isinstance(value, int | float) or value < least]
            if wrong:
                raise ValueError(f"search: expected numbers of at least {least} for {name}, got {wrong[0]!r}")


def _check_networks(configs: Sequence[TrainConfig], graphs: dict[str, Data]) -> None:
    """Refuse a space with none of whose points there is a network; single ones fail as trials."""
    for config in configs:
        data = _graph(graphs, config)
        masks = draw_split(config, 0, data)
        try:
            with torch.no_grad(), _no_network():
                model = build_model(config, data).eval()
                model(data.x, data.edge_index, data.get("edge_weight"), **known_labels(model, data, masks.train))
        except _NoNetworkError as wrong:
            error = wrong
        else:
            return
    raise error


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ValueError("search: needs optuna: pip install 'optuna>=5'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _points(space: Space, seed: int) -> list[dict[str, Any]]:
    """All combinations of a grid, shuffled: where a search ends early, it has seen a fair sample."""
    points: list[dict[str, Any]] = [{}]
    for name, values in space.items():
        points = [{**point, name: value} for point in points for value in values]
    random.Random(seed).shuffle(points)
    return points


def _open(optuna: Any, path: Path, config: TrainConfig, prune: bool, setup: str) -> Any:
    """The study in a file, new or as it was left."""
    if path.suffix == ".db":
        storage: Any = f"sqlite:///{path.resolve()}"
    else:
        journal = optuna.storages.journal
        storage = optuna.storages.JournalStorage(journal.JournalFileBackend(str(path), lock_obj=_JournalLock(path)))
    warmup = config.epochs // 2
    study = optuna.create_study(
        storage=storage,
        study_name="plufg",
        direction="maximize",
        load_if_exists=True,
        sampler=optuna.samplers.RandomSampler(),  # what it would draw is proposed beforehand
        pruner=optuna.pruners.MedianPruner(n_warmup_steps=warmup) if prune else optuna.pruners.NopPruner(),
    )
    begun = study.user_attrs.get("setup")
    if begun is None:
        study.set_user_attr("setup", setup)
    elif begun != setup:
        before, now = (_flat(json.loads(text)) for text in (begun, setup))
        other = [
            f"{name} {before.get(name)!r}, now {now.get(name)!r}"
            for name in sorted({*before, *now})
            if before.get(name) != now.get(name)
        ]
        raise ValueError(f"search: use another folder; {path} was begun with other settings: {'; '.join(other)}")
    return study


def _fixed(config: TrainConfig, space: Space) -> dict[str, Any]:
    """What all trials have in common; a preset that such a search wrote says other values of what varies."""
    varied = {name.partition(".")[0] for name in space}

    def rest(part: dict[str, Any]) -> dict[str, Any]:
        left = {name: item for name, item in part.items() if name not in varied}
        return {name: rest(item) if isinstance(item, dict) else item for name, item in left.items()}

    return rest({**asdict(config), "root": None})


def _flat(setup: dict[str, Any]) -> dict[str, Any]:
    inner = {f"{part}.{name}": value for part in ("config", "space") for name, value in setup[part].items()}
    return {**inner, **{name: setup.get(name) for name in ("method", "prune", "window", "numerics")}}


class _JournalLock:
    """A lock that ends with its process: Optuna's own outlives a killed one by half a minute."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, lock_of(path)

    def acquire(self) -> bool:
        self.lock.acquire()
        # Whoever held it before may have been killed in the middle of a line.
        mend(self.path)
        return True

    def release(self) -> None:
        self.lock.release()


@contextmanager
def _take(
    optuna: Any,
    study: Any,
    folder: Path,
    records: Records,
    propose: Callable[[list[Any]], dict[str, Any] | None],
) -> Iterator[Any]:
    """The next trial, for this process alone: one that lost its process before a new one; None at the end."""
    with ExitStack() as claims:
        with lock_of(folder / "search"):
            yielded = None
            trials = study.get_trials(deepcopy=False)
            for item in trials:
                if item.state.name == "RUNNING" and claims.enter_context(records.claim(f"trial-{item.number}")):
                    yielded = optuna.trial.Trial(study, item._trial_id)
                    break
            if yielded is None:
                waiting = any(item.state.name == "WAITING" for item in trials)
                params = None if waiting else propose(trials)
                if params is not None:
                    # With its values from the start: a trial is never there without them.
                    study.enqueue_trial(params)
                if waiting or params is not None:
                    yielded = study.ask()
                    claims.enter_context(records.claim(f"trial-{yielded.number}"))
        yield yielded


def _others_are_done(study: Any, records: Records) -> bool:
    """Whether all trials have ended; waits for one of another process if not, which may leave it to this one."""
    for item in study.get_trials(deepcopy=False):
        if item.state.name == "RUNNING":
            with records.claim(f"trial-{item.number}", wait=True):
                return False
    return True


def _propose(optuna: Any, before: list[Any], space: Space, method: str, seed: int) -> dict[str, Any]:
    """Values to try next: they depend on the trials before, on their number, and on the seed."""
    seed = seed * 100_003 + len(before)
    if method == "random":
        sampler = optuna.samplers.RandomSampler(seed=seed)
        before = []
    else:
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.add_trials(before)
    trial = study.ask()
    return {name: _short(_suggest(trial, name, values), values) for name, values in space.items()}


def _short(value: Any, values: list[Any] | Range) -> Any:
    """A value of a range in four digits: no accuracy depends on more, and presets are for reading."""
    if not isinstance(values, Range) or isinstance(value, int):
        return value
    return min(max(float(f"{value:.4g}"), float(values.low)), float(values.high))


def _suggest(trial: Any, name: str, values: list[Any] | Range) -> Any:
    if not isinstance(values, Range):
        return trial.suggest_categorical(name, values)
    if isinstance(values.low, int) and isinstance(values.high, int):
        return trial.suggest_int(name, values.low, values.high, log=values.log)
    return trial.suggest_float(name, values.low, values.high, log=values.log)


def _graph(graphs: dict[str, Data], config: TrainConfig) -> Data:
    """The graph of a configuration, loaded once for all trials that share its options."""
    key = json.dumps(config.data_options, sort_keys=True)
    if key not in graphs:
        graphs[key] = load_data(config)
        graphs[key].x = sparse_features(graphs[key].x)
    return graphs[key]


def _evaluate(
    optuna: Any,
    study: Any,
    trial: Any,
    config: TrainConfig,
    data: Data,
    records: Records,
    report: Callable[[int, Epoch], object],
    window: int,
    save_every: int,
) -> None:
    """Run a trial, or what is left of it, and tell the study."""
    every = max(1, config.epochs // 10)
    # What a process that is gone had reported; its last step may not have been judged yet.
    reported = dict(study.get_trials(deepcopy=False)[trial.number].intermediate_values)
    entries: list[dict[str, Any]] = []

    def follow(run: int) -> Callable[[Epoch], object]:
        def step(epoch: Epoch) -> None:
            report(run, epoch)
            place = run * config.epochs + epoch.number
            if epoch.number % every == 0 and place not in reported:
                scores = [entry["val_accuracy"] for entry in entries]
                trial.report(statistics.fmean([*scores, max(_in_a_row(epoch.val_accuracies, window))]), place)
                if trial.should_prune():
                    raise optuna.TrialPruned

        return step

    states = [_state_path(records, config, run) for run in range(config.runs)]
    try:
        if reported and trial.should_prune():
            raise optuna.TrialPruned
        with _no_network():
            model = build_model(config, data)
        for run in range(config.runs):
            entry = _run(trial.number, config, run, data, model, records, follow(run), window, save_every)
            assert entry is not None
            entries.append(entry)
    except optuna.TrialPruned:
        _remove(states)
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    except (FloatingPointError, _NoNetworkError) as error:
        _remove(states)
        trial.set_user_attr("error", str(error))
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    else:
        means = _means(entries)
        value = means.pop("val_accuracy")
        for name, mean in means.items():
            trial.set_user_attr(name, mean)
        study.tell(trial, value)


def _run(
    trial: int,
    config: TrainConfig,
    run: int,
    data: Data,
    model: nn.Module,
    records: Records,
    report: Callable[[Epoch], object],
    window: int,
    save_every: int,
    wait: bool = True,
) -> dict[str, Any] | None:
    """One run of a trial, done or read; None if another process is at it and this one does not ``wait``."""
    key, state = run_key(config, run), _state_path(records, config, run)
    # Two trials may be the same configuration.
    with records.claim(key, wait) as mine:
        if not mine:
            return None
        if records.get(key) is None:
            masks = draw_split(config, run, data)
            with _no_network():
                result = run_once(config, run, data, model, masks, progress=report, state=state, save_every=save_every)
            accuracies, losses = _in_a_row(result.val_accuracies, window), _in_a_row(result.val_loss, window)
            accuracy, minus_loss = max(zip(accuracies, (-loss for loss in losses), strict=True))
            entry = {
                "trial": trial,
                "config": asdict(config),
                "run": run,
                "seed": config.seed + run,
                "val_accuracy": accuracy,
                "val_loss": -minus_loss,
                "best_epoch": result.best_epoch,
                "epochs": result.epochs,
                "seconds": result.seconds,
                "learned_p": result.learned_p,
                **circumstances(),
            }
            records.append(key, entry)
        state.unlink(missing_ok=True)
    return records.all()[key]


def _in_a_row(values: Sequence[float], window: int) -> list[float]:
    """The means over ``window`` epochs in a row, or over all of a run that has fewer."""
    width = min(window, len(values))
    return [statistics.fmean(values[i : i + width]) for i in range(len(values) - width + 1)]


def _means(entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a :class:`Trial` says of its runs."""
    mean, std = mean_and_std([entry["val_accuracy"] for entry in entries])
    loss = statistics.fmean(entry["val_loss"] for entry in entries)
    return {
        "val_accuracy": mean,
        "val_std": std,
        "val_loss": loss,
        "seconds": math.fsum(entry["seconds"] for entry in entries),
    }


def _state_path(records: Records, config: TrainConfig, run: int) -> Path:
    return records.path.parent / "unfinished" / f"{run_key(config, run)}.pt"


class _NoNetworkError(ValueError):
    """Values that each may be right, and not together."""


@contextmanager
def _no_network() -> Iterator[None]:
    """What a network refuses, when it is built or on this graph, is the values' fault."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise _NoNetworkError(str(error)) from None


def _remove(states: Sequence[Path]) -> None:
    """Unfinished runs of a trial that is over; before the study hears of it, for nobody looks at it after that."""
    for state in states:
        state.unlink(missing_ok=True)


def _finished(config: TrainConfig, space: Space, item: Any) -> Trial:
    state = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}[item.state.name]
    params = {name: item.params[name] for name in space if name in item.params}
    attributes = {name: item.user_attrs.get(name) for name in ("val_std", "val_loss", "seconds")}
    return Trial(item.number, params, apply(config, params), state, item.value, **attributes)
