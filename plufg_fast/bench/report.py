"""What was found, for people and for programs: tables, JSON and what machine it was."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import torch
from rich.console import RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ..extension import info
from .results import Result, Score

_INDENT: Final = (0, 0, 0, 2)


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    facts = info()
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "isa": facts["cpu_isa"]["chosen"],
        "platform": facts["platform"],
        "python": facts["python"],
        "torch": facts["torch"],
        "torch_geometric": facts["torch_geometric"],
        "mkl": bool(torch._C.has_mkl),
        "plufg_fast": facts["version"],
    }


def _cpu_model() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


class Record:
    """The JSON file of one run of the benchmark, complete after every result that is added.

    Args:
        path: the file.
        header: what to say about the run as a whole.
    """

    def __init__(self, path: Path, **header: Any) -> None:
        self.path = path
        self.content: dict[str, Any] = {
            **header,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "finished": None,
            "machine": machine(),
            "results": [],
        }
        self._write()

    def add(self, result: Result) -> None:
        """Keep a result."""
        self.content["results"].append(result.to_json())
        self._write()

    def finish(self) -> None:
        """Say that nothing is missing."""
        self.content["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
        self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and moved into place: whenever the run ends, the file is whole.
        aside = self.path.with_suffix(".tmp")
        aside.write_text(json.dumps(self.content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        aside.replace(self.path)


def tables(name: str, description: str, results: Sequence[Result]) -> Iterator[RenderableType]:
    """The results of one group: who took how long, and how that stands against the bars."""
    yield Rule(Text(name, "bold"), align="left")
    yield Text(description, "italic")
    if not results:
        yield Text("Nothing to compare with these settings.", "dim")
    for result in results:
        yield Text(f"\n{result.title}", "bold")
        yield _timings(result)
        if result.scores:
            yield _scores(result)
        for timing in result.timings:
            if timing.failed is not None:
                yield Padding(Text(f"{timing.name} failed: {timing.failed}", "red"), _INDENT)
        for note in result.notes:
            yield Padding(Text(note, "dim"), _INDENT)
    yield ""


def _timings(result: Result) -> Table:
    out = _table("contestant", ("median", "quartiles", "GB/s", "rounds", "error"))
    for timing in result.timings:
        if timing.failed is not None:
            out.add_row(Text(timing.name), Text("failed", "bold red"), Text("not timed", "red"))
            continue
        lower, median, upper = timing.quartiles
        unit, size = _unit(median)
        out.add_row(
            Text(timing.name),
            f"{_digits(median / size)} {unit}",
            _range(lower / size, upper / size),
            f"{timing.moved / median / 1e9:.1f}" if timing.moved else "",
            str(len(timing.seconds)),
            "" if timing.error is None else f"{timing.error:.0e}",
        )
    return out


def _scores(result: Result) -> Table:
    out = _table("median of ratios", ("", "quartiles", "bar", ""))
    for score in result.scores:
        style = {True: "green", False: "bold red", None: ""}[score.met]
        sign = "<=" if score.sense == "at most" else ">="
        out.add_row(
            Text(label(score)),
            Text(_digits(score.value), style),
            _range(score.lower, score.upper),
            "" if score.limit is None else f"{sign} {score.limit:g}",
            Text({True: "met", False: "not met", None: ""}[score.met], style),
        )
    return out


def label(score: Score) -> str:
    """What a score is a ratio of."""
    return f"{'time' if score.sense == 'at most' else 'speed'}: {score.contestant} / {score.baseline}"


def _table(first: str, others: Sequence[str]) -> Table:
    out = Table(box=None, padding=(0, 0, 0, 2), header_style="dim")
    out.add_column(first)
    for name in others:
        out.add_column(name, justify="right", no_wrap=True)
    return out


def _digits(value: float) -> str:
    """Three digits, and never an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _range(lower: float, upper: float) -> str:
    return "" if lower == upper else f"{_digits(lower)} to {_digits(upper)}"


def _unit(seconds: float) -> tuple[str, float]:
    """The unit that a time is best read in, and its size in seconds."""
    return next(((unit, size) for unit, size in (("s", 1.0), ("ms", 1e-3)) if seconds >= size), ("µs", 1e-6))
