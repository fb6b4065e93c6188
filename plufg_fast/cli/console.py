"""Where commands write: results to stdout, progress and messages to stderr."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape


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


def progress_bar(console: Console, *texts: str, all_of_it: bool = False) -> Any:
    """A progress bar with texts before it and behind it, and the time that is left.

    That is told by the last half minute, or by all of the time where steps are as different as they are slow.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    before, *behind = (TextColumn(text) for text in texts)
    columns = (before, BarColumn(), *behind, TimeRemainingColumn())
    period = 24 * 3600.0 if all_of_it else 30.0
    return Progress(*columns, console=console, transient=True, speed_estimate_period=period)


def epoch_line(epoch: Any) -> str:
    """Where a fit is, for a progress bar."""
    return (
        f"epoch {epoch.number:4d}  loss {epoch.train_loss:6.3f}  accuracy: train {epoch.train_accuracy:6.1%}"
        f"  val {epoch.val_accuracy:6.1%} (best {epoch.best_val_accuracy:6.1%})"
    )
