"""Searching for a configuration, by the paper's grid or by an Optuna study: chosen by validation accuracy alone.

Nothing here reads an accuracy on test nodes. A search that is killed goes on where it was: a trial that lost its
process is taken up again, with the runs it had finished, and ends as it would have. Processes that are given the same
folder share the trials.
"""

from __future__ import annotations

import inspect
import json
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from torch_geometric.data import Data

from ..data import HETEROPHILIC, OLD_CORNELL, csbm, load
from ..framelets import Framelet
from ..nn.conv import PLUFGConv
from ..nn.models import MODELS, option_names
from ..nn.sparse import sparse_features
from .records import Records, lock_of, mend
from .train import (
    NUMERICS,
    SAVE_EVERY,
    SCHEDULES,
    Epoch,
    TrainConfig,
    build_model,
    circumstances,
    draw_split,
    load_data,
    mean_and_std,
    run_key,
    run_once,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METHODS: Final = ("tpe", "random", "grid")
STORAGES: Final = {"journal": "study.log", "sqlite": "study.db"}
_FIELDS: Final = ("lr", "schedule", "weight_decay", "hidden_channels", "patience")


class Range(NamedTuple):
    """Values from ``low`` to ``high``: whole ones if both are, on a logarithmic scale if asked for."""

    low: float
    high: float
    log: bool = False


Space: TypeAlias = dict[str, list[Any] | Range]
"""What varies, by the name of a field of TrainConfig, of an option of the network or of one of the data; ``p.0``,
``p.1`` ... are the p of the bands."""


class Step(NamedTuple):
    """Where a search is."""

    trial: int  # from 0
    finished: int
    best: float | None  # mean validation accuracy of the best trial so far
    run: int
    epoch: Epoch


@dataclass(frozen=True)
class Trial:
    """One configuration that was tried."""

    number: int
    params: dict[str, Any]
    config: TrainConfig
    state: str  # "complete", "pruned", "failed", or "running" in another process
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


def grid(config: TrainConfig) -> Space:
    """The paper's grid for a model and a graph, and what the paper leaves open: hidden channels, dropout, decay.

    Options of the network that the configuration sets do not vary.

    The paper's dilations s > 1 all give the same filters on one level, where the largest eigenvalue is mapped to pi:
    ``scale`` is ``"fit"`` for them and ``"none"`` for its s = 1.
    """
    heterophilic = _is_heterophilic(config)
    model: dict[str, list[Any]] = {
        "p": [1.0, 1.5, 2.0, 2.5],
        "mu": [3.0, 5.0, 10.0, 20.0, 30.0, 50.0, 70.0] if heterophilic else [0.1, 0.5, 1.0, 5.0, 10.0],
        "steps": [4, 5],
        "degree": [2, 3, 7],
        "scale": ["fit", "none"],
        "dropout": [0.2, 0.5, 0.8],
        "heads": [4, 8],
        "layers": [2, 3],
        "alpha": [0.1, 0.2, 0.5, 0.9],
        "K": [4, 5] if config.model == "pgnn" else [2, 3] if config.model == "sgc" else [10],
    }
    space: Space = {"lr": [0.01, 0.005], "weight_decay": [0.0, 5e-4], "hidden_channels": [16, 32, 64]}
    return _for_model(config, space, model)


def wide(config: TrainConfig) -> Space:
    """Ranges around and beyond the paper's grid, for a search that learns from what it tried."""
    model: dict[str, list[Any] | Range] = {
        "p": Range(1.0, 3.0),
        "mu": Range(0.1, 100.0, log=True) if _is_heterophilic(config) else Range(0.02, 10.0, log=True),
        "steps": Range(1, 8),
        "degree": Range(2, 7),
        "scale": ["fit", "none"],
        "theta": ["node", "channel", "band"],
        "dropout": Range(0.0, 0.9),
        "input_dropout": Range(0.0, 0.9),
        "heads": [1, 4, 8],
        "layers": Range(1, 4),
        "jump": ["cat", "max"],
        "alpha": Range(0.05, 0.95),
        "K": Range(1, 4) if config.model == "sgc" else Range(2, 10),
        "activation": ["relu", "soft"],
    }
    space: Space = {
        "lr": Range(0.002, 0.05, log=True),
        "weight_decay": Range(1e-5, 1e-2, log=True),
        "hidden_channels": [16, 32, 64],
    }
    return _for_model(config, space, model)


def _is_heterophilic(config: TrainConfig) -> bool:
    return config.dataset in (*HETEROPHILIC, OLD_CORNELL) or config.data_options.get("phi", 1.0) < 0


def _for_model(config: TrainConfig, space: Space, options: Mapping[str, list[Any] | Range]) -> Space:
    known = option_names(config.model)
    space = {**space, **{name: values for name, values in options.items() if name in known}}
    if config.model == "sgc":
        del space["hidden_channels"]  # it has none
    return {name: values for name, values in space.items() if name not in config.model_options}


def per_band(config: TrainConfig, space: Space) -> Space:
    """A space with one p for every band in place of one for all."""
    if config.model not in ("pl-ufg1", "pl-fufg"):
        raise ValueError(f"search: p per band is for pl-ufg1 and pl-fufg, which smooth every band, got {config.model}")
    if "p" not in space:
        raise ValueError("search: p per band needs a p that varies, got one that is fixed")
    space = dict(space)
    values = space.pop("p")
    return {**{f"p.{band}": values for band in range(num_bands(config))}, **space}


def num_bands(config: TrainConfig) -> int:
    """Framelet bands of a pL-UFG network."""
    defaults = {name: item.default for name, item in inspect.signature(PLUFGConv).parameters.items()}
    chosen = {**defaults, **config.model_options}
    return Framelet(chosen["framelet"], chosen["levels"]).num_bands


def apply(config: TrainConfig, params: Mapping[str, Any]) -> TrainConfig:
    """The configuration with the values of a trial in place."""
    changed: dict[str, Any] = {}
    model_options, data_options = dict(config.model_options), dict(config.data_options)
    known_data = inspect.signature(csbm if config.dataset == "csbm" else load).parameters
    bands = [params[name] for name in sorted(params, key=_band) if name.startswith("p.")]
    if bands:
        model_options["p"] = bands
    for name, value in params.items():
        if name in _FIELDS:
            changed[name] = value
        elif name in option_names(config.model):
            model_options[name] = value
        elif name in known_data and name not in ("name", "root"):
            data_options[name] = value
        elif not name.startswith("p."):
            known = ", ".join([*_FIELDS, *option_names(config.model), *known_data])
            raise ValueError(f"search: {config.model} on {config.dataset} has nothing called {name!r}; it has {known}")
    return replace(config, **changed, model_options=model_options, data_options=data_options)


def takes_whole_numbers(config: TrainConfig, name: str) -> bool:
    """Whether a name of a :data:`Space` stands for a count."""
    model = MODELS[config.model]
    makers: list[Any] = [
        TrainConfig,
        model,
        getattr(model, "conv_class", None),
        csbm if config.dataset == "csbm" else load,
    ]
    for maker in makers:
        item = None if maker is None else inspect.signature(maker).parameters.get(name)
        if item is not None and item.kind is not item.VAR_KEYWORD:
            return name == "patience" or type(item.default) is int
    return False


def _band(name: str) -> int:
    return int(name[2:]) if name.startswith("p.") else -1


def search(
    config: TrainConfig,
    space: Space,
    out: str | Path,
    *,
    method: str = "tpe",
    trials: int = 100,
    storage: str = "journal",
    prune: bool = True,
    progress: Callable[[Step], object] | None = None,
    save_every: int = SAVE_EVERY,
) -> list[Trial]:
    """Try configurations until there are ``trials`` of them, and return all, those of earlier calls included.

    The value of a trial is its mean validation accuracy over ``config.runs`` runs, whose seeds are the same in all
    trials. With one process at a time, the trials depend on the arguments alone, however often it is interrupted.

    Args:
        config: What all trials have in common; ``config.seed`` also fixes what is proposed.
        space: What varies: :func:`grid`, :func:`wide` or one's own.
        out: Folder of this one search: the study, and ``runs.jsonl`` with one line per finished run.
        method: ``"tpe"`` learns from the trials so far, ``"random"`` does not, ``"grid"`` takes every combination of
            a space of lists once, in random order.
        trials: How many there are to be in the end, by all calls and processes together.
        storage: ``"journal"``, a file that is only ever appended to, or ``"sqlite"``.
        prune: Whether to give up trials that stay below the median of the others.
        progress: Called after every epoch.
        save_every: Epochs after which an unfinished run is saved.

    Raises:
        ValueError: If an argument is out of range, or the folder holds a search with other arguments.
    """
    _check(config, space, method, trials, storage)
    optuna = _optuna()
    folder = Path(out)
    points = _points(space, config.seed) if method == "grid" else []
    if method == "grid":
        trials = min(trials, len(points))
    graphs: dict[str, Data] = {}
    # A mistake shows before anything is written.
    first = apply(config, points[0] if points else _propose(optuna, [], space, "random", config.seed))
    build_model(first, _graph(graphs, first))
    draw_split(first, 0, _graph(graphs, first))
    folder.mkdir(parents=True, exist_ok=True)
    setup = {
        "config": {**asdict(config), "root": None},
        "space": space,
        "method": method,
        "prune": prune,
        "numerics": NUMERICS,
    }
    with lock_of(folder / "search"):
        study = _open(optuna, folder / STORAGES[storage], config, prune, json.dumps(setup, sort_keys=True))
    records = Records(folder / "runs.jsonl")

    def propose(before: list[Any]) -> dict[str, Any] | None:
        if len(before) >= trials:
            return None
        if method == "grid":
            return points[len(before)]
        return _propose(optuna, before, space, method, config.seed)

    while True:
        with _take(optuna, study, folder, records, propose) as trial:
            if trial is None:
                break
            params = {name: _suggest(trial, name, values) for name, values in space.items()}
            done = [item for item in study.get_trials(deepcopy=False) if item.state.is_finished()]
            best = max((item.value for item in done if item.state.name == "COMPLETE"), default=None)

            report = partial(_report, progress, trial.number, len(done), best)
            candidate = apply(config, params)
            _evaluate(optuna, study, trial, candidate, _graph(graphs, candidate), records, report, save_every)
    return [_finished(config, space, item) for item in study.get_trials(deepcopy=False)]


def _report(
    progress: Callable[[Step], object] | None, trial: int, finished: int, best: float | None, run: int, epoch: Epoch
) -> None:
    if progress is not None:
        progress(Step(trial, finished, best, run, epoch))


def _check(config: TrainConfig, space: Space, method: str, trials: int, storage: str) -> None:
    if method not in METHODS:
        raise ValueError(f"search: unknown method {method!r}; known are {', '.join(METHODS)}")
    if storage not in STORAGES:
        raise ValueError(f"search: unknown storage {storage!r}; known are {', '.join(STORAGES)}")
    if trials < 1 or config.runs < 1:
        raise ValueError(f"search: expected trials and runs >= 1, got {trials} and {config.runs}")
    if not space:
        raise ValueError("search: nothing varies; give a space of at least one name")
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


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ValueError("search: needs optuna; pip install 'plufg_fast[search]'") from None
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
    warmup = config.epochs // 4
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
        raise ValueError(f"search: {path} was begun with other settings ({'; '.join(other)}); use another folder")
    return study


def _flat(setup: dict[str, Any]) -> dict[str, Any]:
    inner = {f"{part}.{name}": value for part in ("config", "space") for name, value in setup[part].items()}
    return {**inner, **{name: setup.get(name) for name in ("method", "prune", "numerics")}}


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
                trial.report(statistics.fmean([*scores, epoch.best_val_accuracy]), place)
                if trial.should_prune():
                    raise optuna.TrialPruned

        return step

    keys = [run_key(config, run) for run in range(config.runs)]
    states = [records.path.parent / "unfinished" / f"{key}.pt" for key in keys]
    try:
        if reported and trial.should_prune():
            raise optuna.TrialPruned
        model = _build(config, data)
        for run, (key, state) in enumerate(zip(keys, states, strict=True)):
            # Two trials may be the same configuration.
            with records.claim(key, wait=True):
                if records.get(key) is None:
                    masks = draw_split(config, run, data)
                    options = {"progress": follow(run), "state": state, "save_every": save_every}
                    result = run_once(config, run, data, model, masks, **options)
                    chosen = result.best_epoch - 1
                    entry = {
                        "trial": trial.number,
                        "config": asdict(config),
                        "run": run,
                        "seed": config.seed + run,
                        "val_accuracy": result.val_accuracy,
                        "val_loss": result.val_loss[chosen],
                        "best_epoch": result.best_epoch,
                        "epochs": result.epochs,
                        "seconds": result.seconds,
                        "learned_p": result.learned_p,
                        **circumstances(),
                    }
                    records.append(key, entry)
                state.unlink(missing_ok=True)
            found = records.get(key)
            assert found is not None
            entries.append(found)
    except optuna.TrialPruned:
        _remove(states)
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    except (FloatingPointError, _NoNetworkError) as error:
        _remove(states)
        trial.set_user_attr("error", str(error))
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    else:
        mean, std = mean_and_std([entry["val_accuracy"] for entry in entries])
        trial.set_user_attr("val_std", std)
        trial.set_user_attr("val_loss", statistics.fmean(entry["val_loss"] for entry in entries))
        trial.set_user_attr("seconds", math.fsum(entry["seconds"] for entry in entries))
        study.tell(trial, mean)


class _NoNetworkError(ValueError):
    """Values that each may be right, and not together."""


def _build(config: TrainConfig, data: Data) -> Any:
    try:
        return build_model(config, data)
    except ValueError as error:
        raise _NoNetworkError(str(error)) from None


def _remove(states: Sequence[Path]) -> None:
    """Unfinished runs of a trial that is over; before the study hears of it, for nobody looks at it after that."""
    for state in states:
        state.unlink(missing_ok=True)


def _finished(config: TrainConfig, space: Space, item: Any) -> Trial:
    state = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}.get(item.state.name, "running")
    params = {name: item.params[name] for name in space if name in item.params}
    attributes = {name: item.user_attrs.get(name) for name in ("val_std", "val_loss", "seconds")}
    return Trial(item.number, params, apply(config, params), state, item.value, **attributes)


def preset_facts(trials: Sequence[Trial], best: Trial, command: str) -> dict[str, Any]:
    """What a preset says about how it was found."""
    from ..version import __version__

    return {
        "val_accuracy": round(best.val_accuracy or 0.0, 6),
        "val_std": round(best.val_std or 0.0, 6),
        "runs": best.config.runs,
        "trials": sum(trial.state != "running" for trial in trials),
        "command": command,
        "plufg_fast": __version__,
    }


def importances(trials: Sequence[Trial]) -> dict[str, float]:
    """How much each name matters for being among the best trials (PED-ANOVA), the largest first."""
    optuna = _optuna()
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
    # Figures made without pyplot need no display and leave no global state behind.
    from matplotlib.figure import Figure

    complete = [trial for trial in trials if trial.state == "complete"]
    weights = importances(trials)
    names = [*weights, *(name for name in (trials[0].params if trials else {}) if name not in weights)]
    columns = 5
    rows = math.ceil(len(names) / columns)
    figure = Figure(figsize=(15, 3.4 + 2.6 * rows), dpi=130, layout="constrained")
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


_POINT, _BEST, _PRUNED, _GRID = "#3b5bdb", "#f08c00", "#adb5bd", "#dee2e6"


def _draw_course(axes: Axes, trials: Sequence[Trial]) -> None:
    best, line = 0.0, []
    for trial in trials:
        if trial.state == "complete":
            best = max(best, trial.val_accuracy or 0.0)
        line.append(100 * best if best else math.nan)
    for state, color in (("complete", _POINT), ("pruned", _PRUNED)):
        mine = [trial for trial in trials if trial.state == state and trial.val_accuracy is not None]
        axes.plot(
            [trial.number for trial in mine],
            [100 * (trial.val_accuracy or 0.0) for trial in mine],
            ".",
            color=color,
            label=state,
        )
    axes.step([trial.number for trial in trials], line, where="post", color=_BEST, label="best so far")
    axes.set(xlabel="trial", ylabel="validation accuracy (%)", title="Course")
    axes.legend(frameon=False, fontsize=8)
    _plain(axes)


def _draw_importance(axes: Axes, weights: Mapping[str, float]) -> None:
    names = [*weights][::-1]
    axes.barh(names, [weights[name] for name in names], color=_POINT)
    axes.set(title="Importance" if names else "Importance: too few trials to tell", xlim=(0, None))
    _plain(axes)


def _draw_slice(axes: Axes, name: str, complete: Sequence[Trial]) -> None:
    values = [trial.params[name] for trial in complete]
    heights = [100 * (trial.val_accuracy or 0.0) for trial in complete]
    if any(isinstance(value, str | bool) for value in values):
        labels = sorted({str(value) for value in values})
        values = [labels.index(str(value)) for value in values]
        axes.set_xticks(range(len(labels)), labels)
    elif values and min(values) > 0 and max(values) / min(values) > 20:
        axes.set_xscale("log")
    axes.plot(values, heights, ".", color=_POINT, alpha=0.7)
    best = best_of(complete)
    if best is not None:
        index = complete.index(best)
        axes.plot(values[index], heights[index], "o", color=_BEST)
    axes.set_xlabel(name)
    _plain(axes)


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=_GRID, lw=0.6)
    axes.set_axisbelow(True)
    axes.title.set_fontsize(10)


def write_table(trials: Sequence[Trial], path: Path) -> None:
    """All trials as CSV, the best first."""
    import csv

    order = {"complete": 0, "pruned": 1, "failed": 2, "running": 3}
    names = [*trials[0].params] if trials else []
    columns = [item.name for item in fields(Trial) if item.name not in ("params", "config")]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, *names])
        for trial in sorted(trials, key=lambda trial: (order[trial.state], trial.rank())):
            writer.writerow([*(getattr(trial, c) for c in columns), *(trial.params.get(name) for name in names)])
