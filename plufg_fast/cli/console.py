"""Where commands write: results to stdout, progress and messages to stderr."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, TaskID, TextColumn, TimeRemainingColumn

_BETWEEN_LINES: Final = 30.0
"""Seconds: an overnight log stays readable."""


def consoles() -> tuple[Console, Console]:
    """Made per command, so that they follow a redirected stdout and stderr."""
    return Console(), Console(stderr=True)


def fail(message: str) -> typer.Exit:
    """Say what is wrong; to be raised."""
    Console(stderr=True).print(f"[bold red]Error:[/] {escape(message)}", highlight=False)
    return typer.Exit(2)


@contextmanager
def readable(stderr: Console, resumable: bool = False) -> Iterator[None]:
    """What a user can mend is one line, without a traceback but on request; warnings are one line each, said once."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        stderr.print(f"[yellow]Warning:[/] {escape(str(message))}", highlight=False)

    from ..ops.backend import BackendError

    with warnings.catch_warnings():
        # A run repeats what the run before it warned of.
        warnings.simplefilter("once", UserWarning)
        warnings.showwarning = show
        try:
            yield
        except (ValueError, TypeError, OSError, FloatingPointError, BackendError) as error:
            if os.environ.get("PLUFG_TRACEBACK") == "1":
                raise
            raise fail(str(error)) from None
        except KeyboardInterrupt:
            stderr.print("Stopped; the same command goes on from here." if resumable else "Stopped.", highlight=False)
            raise typer.Exit(130) from None


def progress_bar(console: Console, *texts: str, all_of_it: bool = False) -> Progress:
    """A progress bar with texts before it and behind it, and the time that is left; in a log file lines of these.

    The time left is told by the last half minute, or by all of the time where steps are as different as they are slow.
    """
    before, *behind = (TextColumn(text) for text in texts)
    columns = (before, BarColumn(), *behind, TimeRemainingColumn())
    period = 24 * 3600.0 if all_of_it else 30.0
    kind = Progress if console.is_terminal else _Lines
    return kind(*columns, console=console, transient=True, speed_estimate_period=period)


class _Lines(Progress):
    """A line now and then, where there is no terminal to draw on: of a batch system, a file, another program."""

    def __init__(self, *columns: ProgressColumn, **options: Any) -> None:
        super().__init__(*columns, **options)
        self._due = time.monotonic() + _BETWEEN_LINES

    def update(self, task_id: TaskID, **changes: Any) -> None:
        """Note how far a task is, and say so if nothing was said for a while."""
        super().update(task_id, **changes)
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _BETWEEN_LINES
        task = next(task for task in self.tasks if task.id == task_id)
        texts = [column(task) for column in self.columns if isinstance(column, TextColumn)]
        left = "" if task.time_remaining is None else f"{timedelta(seconds=task.time_remaining)} left"
        self.console.print(*texts, left, sep="  ", highlight=False, soft_wrap=True)


def epoch_line(epoch: Any) -> str:
    """Where a fit is, for a progress bar."""
    return (
        f"epoch {epoch.number:4d}  loss {epoch.train_loss:6.3f}  accuracy: train {epoch.train_accuracy:6.1%}"
        f"  val {epoch.val_accuracy:6.1%} (best {epoch.best_val_accuracy:6.1%})"
    )
