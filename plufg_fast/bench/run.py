"""The side-by-side benchmark behind ``plufg bench``: its groups, and how one run of them goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..ops.backend import choose
from . import cases
from .cases import Case, Settings
from .plot import draw
from .report import Record, tables
from .results import Result
from .scaling import scaling
from .timing import Watch

Group: TypeAlias = Callable[[Settings, Watch], Iterator[Result]]


def _interleaved(make: Callable[[Settings], Iterator[Case]]) -> Group:
    """A group of cases, each made when its turn comes: their signals need not all be in memory at once."""

    def group(settings: Settings, watch: Watch) -> Iterator[Result]:
        for case in make(settings):
            yield case.measure(make.__name__, settings, watch)

    group.__doc__ = make.__doc__
    return group


GROUPS: Final[dict[str, Group]] = {
    **{
        make.__name__: _interleaved(make)
        for make in (
            cases.ceilings,
            cases.forward,
            cases.backward,
            cases.bands,
            cases.framelet,
            cases.epoch,
            cases.threads,
        )
    },
    "scaling": scaling,
}


def describe(name: str) -> str:
    """What a group measures, in one line."""
    return (GROUPS[name].__doc__ or "").strip().splitlines()[0]


def run(
    settings: Settings,
    out: str | Path = "out/bench",
    only: Sequence[str] = (),
    stdout: Console | None = None,
    stderr: Console | None = None,
    *,
    command: str = "",
) -> list[Result]:
    """Measure, print a table per group and write ``bench.json`` and ``bench.png`` into `out`.

    Args:
        settings: how thoroughly.
        out: the folder; ``bench.json`` is complete after every result.
        only: names of groups, by default all of them.
        stdout: where tables go.
        stderr: where progress is shown.
        command: how it was called, for the record.

    Raises:
        ValueError: if there is no such group.
        BackendError: if the compiled kernels are not there: without them there is nothing to measure.
    """
    unknown = [name for name in only if name not in GROUPS]
    if unknown:
        raise ValueError(f"bench: unknown group {', '.join(unknown)}; choose from {', '.join(GROUPS)}")
    for family in ("plap", "cheb"):
        choose("bench", family, "cpp", "cpu")
    stdout, stderr = stdout or Console(), stderr or Console(stderr=True)
    chosen = [name for name in GROUPS if not only or name in only]
    record = Record(
        Path(out) / "bench.json",
        command=command,
        quick=settings.quick,
        threads=settings.threads,
        rounds=settings.rounds,
        groups={name: describe(name) for name in chosen},
    )
    results: list[Result] = []
    with _threads(settings.threads):
        for number, name in enumerate(chosen, start=1):
            found = []
            with _progress(f"{name} ({number} of {len(chosen)})", stderr) as watch:
                for result in GROUPS[name](settings, watch):
                    found.append(result)
                    record.add(result)
                    watch("preparing")
            for block in tables(name, describe(name), found):
                stdout.print(block)
            results += found
    record.finish()
    draw(record.content, Path(out) / "bench.png")
    if settings.quick:
        stdout.print("These graphs are too small for the bars to mean anything: --quick shows that it runs.")
    stdout.print(f"Results: {record.path}, picture: {Path(out) / 'bench.png'}", soft_wrap=True)
    return results


@contextmanager
def _progress(group: str, stderr: Console) -> Iterator[Watch]:
    """One line that says what is being done, gone when the group is."""
    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=stderr, transient=True) as progress:
        task = progress.add_task(f"{group}: preparing")
        yield lambda step: progress.update(task, description=f"{group}: {step}")


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
