"""Many runs of many configurations, shared by several processes, in a folder where nothing finished is done again."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch
from torch_geometric.data import Data

from ..data import homophily
from ..nn.sparse import sparse_features
from .records import Records, key_of
from .train import (
    SAVE_EVERY,
    TrainConfig,
    build_model,
    checkpoint_path,
    draw_split,
    keep,
    load_data,
    run_key,
    run_once,
)


class Run(NamedTuple):
    """One run of a configuration, from 0."""

    config: TrainConfig
    run: int

    @property
    def key(self) -> str:
        """Its key in the records."""
        return run_key(self.config, self.run)


class Step(NamedTuple):
    """Where a sweep is."""

    done: int
    total: int
    last: TrainConfig | None  # of the run that was finished last
    of: str = "runs"  # what is counted


Progress = Callable[[Step], object]


def sweep(
    runs: Iterable[Run],
    out: str | Path,
    *,
    jobs: int = 1,
    networks: bool = False,
    progress: Progress | None = None,
    save_every: int = SAVE_EVERY,
) -> dict[str, dict[str, Any]]:
    """Do all runs that are not on record, and return the records of all by their keys.

    A run whose loss does not stay finite is on nobody's record: its entry is ``{"error": ...}``, and it is tried again
    by the next sweep.

    Args:
        runs: What to do, in this order; equal ones once.
        out: Folder whose ``results.jsonl`` gets one line per finished run, as ``train`` writes them: processes may
            share it, and what a killed one left is taken up. The networks go to ``networks``.
        jobs: Processes, of one thread each whatever their number, so that the results do not depend on it. One job is
            this process.
        networks: Whether to keep the network of every run at its best epoch.
        progress: Called at the start and after every run.
        save_every: Epochs after which an unfinished run is saved.
    """
    if jobs < 1:
        raise ValueError(f"sweep: expected jobs >= 1, got {jobs}")
    folder = Path(out)
    wanted = {run.key: run for run in runs}
    records = Records(folder / "results.jsonl")
    found = records.all()
    left = [run for run in wanted.values() if not _is_done(found, folder, run, networks)]
    # What a process had saved that was killed just after its result was safe.
    for key in wanted.keys() - {run.key for run in left}:
        _state_path(folder, key).unlink(missing_ok=True)
    done, errors = len(wanted) - len(left), {}

    def report(last: TrainConfig | None) -> None:
        if progress is not None:
            progress(Step(done, len(wanted), last))

    report(None)
    with _workers(min(jobs, len(left))) as each:
        # First all that nobody is at, then what others began and may have left.
        for wait in (False, True):
            busy = []
            for run, (mine, error) in each(partial(_work, folder, networks, save_every, wait), left):
                if not mine:
                    busy.append(run)
                    continue
                if error is not None:
                    errors[run.key] = {"error": error}
                done += 1
                report(run.config)
            left = busy
    finished = records.all()
    return {key: errors[key] if key in errors else finished[key] for key in wanted}


def describe(configs: Sequence[TrainConfig], out: str | Path) -> list[dict[str, Any]]:
    """The graph of every configuration and how its first run splits it, for a report; remembered in ``out``."""
    records = Records(Path(out) / "graphs.jsonl")
    left = [config for config in configs if records.get(_graph_key(config)) is None]
    with _workers(1) as each:
        for config, facts in each(_describe, left):
            records.append(_graph_key(config), facts)
    return [records.all()[_graph_key(config)] for config in configs]


@contextmanager
def _workers(jobs: int) -> Iterator[Callable[..., Iterator[tuple[Any, Any]]]]:
    """A function that applies another to many things and yields each with its result, in any order."""
    if jobs <= 1:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with warnings.catch_warnings():
                _silence()
                yield lambda function, items: ((item, function(item)) for item in items)
        finally:
            torch.set_num_threads(threads)
            _graph.cache_clear()
            _records.cache_clear()
        return
    context = multiprocessing.get_context("spawn")
    # Nothing is ever sent: workers wait for its end, which comes when this process closes it or is no more.
    life, ours = context.Pipe(duplex=False)
    with life, ours, ProcessPoolExecutor(jobs, context, _begin, (life,)) as pool:

        def each(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
            # Ctrl-C within `as_completed` may leave futures locked, and the pool then waits for them for ever; not
            # so within the `get` of this queue.
            done: SimpleQueue[Future[Any]] = SimpleQueue()
            futures = {}
            # This starts the workers.
            with _ctrl_c_later():
                for item in items:
                    future = pool.submit(function, item)
                    futures[future] = item
                    future.add_done_callback(done.put)
            for _ in range(len(futures)):
                future = done.get()
                yield futures[future], future.result()

        try:
            yield each
        except BaseException as error:
            # An interrupted or failed sweep ends at once: what was begun is taken up where it was last saved.
            ours.close()
            pool.shutdown(wait=True, cancel_futures=True)
            if isinstance(error, BrokenProcessPool):
                raise WorkerKilledError(
                    "a worker was killed; if memory ran out, take fewer --jobs: the same command goes on from here"
                ) from None
            raise


class WorkerKilledError(OSError):
    """A process that shared the work is gone, and took nothing but its unfinished runs with it."""


@contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Hold Ctrl-C back until the end; processes that are started meanwhile never hear of it.

    It reaches all processes of a terminal, and the parent says what it means: a worker that is still importing would
    answer with a traceback.
    """
    heard: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    # What is held back in one thread another one hears, and then it is for the main thread to answer.
    answers = callable(handler) and threading.current_thread() is threading.main_thread()
    if answers:
        signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    masks = hasattr(signal, "pthread_sigmask")  # not on Windows
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masks else set()
    try:
        yield
    finally:
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if answers:
            signal.signal(signal.SIGINT, handler)
    if heard:
        signal.raise_signal(signal.SIGINT)


def _begin(life: Connection) -> None:
    """Set up a worker: one thread, and no life after the end of a pipe to its parent."""
    # Where it was not held back.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    _silence()

    def leave_at_the_end() -> None:
        with suppress(EOFError, OSError):
            life.recv_bytes()
        os._exit(1)

    threading.Thread(target=leave_at_the_end, daemon=True).start()


def _silence() -> None:
    # Every run would say again which classes are in no mask; a report says it once.
    warnings.filterwarnings("ignore", "split: class", UserWarning)


def _is_done(found: dict[str, Any], folder: Path, run: Run, networks: bool) -> bool:
    return run.key in found and (not networks or network_path(folder, run).exists())


def network_path(out: str | Path, run: Run) -> Path:
    """Where the network of a run is kept."""
    return checkpoint_path(_networks(Path(out)), *run)


def _networks(folder: Path) -> Path:
    return folder / "networks"


def _work(folder: Path, networks: bool, save_every: int, wait: bool, run: Run) -> tuple[bool, str | None]:
    """Do one run unless it is on record; returns whether nobody else is at it, and what went wrong with it."""
    records, key = _records(folder / "results.jsonl"), run.key
    with records.claim(key, wait) as mine:
        if not mine:
            return False, None
        # Somebody else may have been at it.
        if _is_done(records.all(), folder, run, networks):
            return True, None
        config = run.config
        data = _graph_of(config)
        model, masks = build_model(config, data), draw_split(config, run.run, data)
        state = _state_path(folder, key)
        try:
            result = run_once(config, run.run, data, model, masks, state=state, save_every=save_every)
        except FloatingPointError as error:
            state.unlink(missing_ok=True)
            return True, str(error)
        keep(config, run.run, data, model, masks, result, records, _networks(folder) if networks else None)
        state.unlink(missing_ok=True)
    return True, None


def _state_path(folder: Path, key: str) -> Path:
    return folder / "unfinished" / f"{key}.pt"


def _describe(config: TrainConfig) -> dict[str, Any]:
    data = _graph_of(config)
    masks = draw_split(config, 0, data)
    seen = set(data.y[masks.train | masks.val | masks.test].tolist())
    outside = sorted(set(data.y.tolist()) - seen)
    return {
        "dataset": config.dataset,
        "nodes": data.num_nodes,
        "edges": data.num_edges,
        "features": data.num_features,
        "classes": int(data.y.max()) + 1,
        "binary_features": _is_binary(data),
        "homophily": homophily(data.edge_index, data.y),
        "split": {part: int(mask.sum()) for part, mask in masks._asdict().items()},
        "classes_in_no_mask": outside,
        "nodes_of_these": sum(int((data.y == c).sum()) for c in outside),
    }


def _is_binary(data: Data) -> bool:
    values = data.x if data.x.layout == torch.strided else data.x.values()
    return bool(((values == 0) | (values == 1)).all())


def _graph_key(config: TrainConfig) -> str:
    names = ("dataset", "data_options", "split", "split_options", "seed")
    return key_of({name: getattr(config, name) for name in names})


def _graph_of(config: TrainConfig) -> Data:
    # A generated graph follows the seed.
    seed = config.seed if config.dataset == "csbm" else 0
    return _graph(config.dataset, json.dumps(config.data_options, sort_keys=True), seed, config.root)


# Runs come graph by graph; a few are kept, since the largest take a gigabyte while they are read.
@lru_cache(maxsize=2)
def _graph(dataset: str, options: str, seed: int, root: str | None) -> Data:
    data = load_data(TrainConfig(dataset=dataset, data_options=json.loads(options), seed=seed, root=root))
    data.x = sparse_features(data.x)
    return data


@lru_cache(maxsize=1)
def _records(path: Path) -> Records:
    """Read once per process, and then only what is new."""
    return Records(path)
