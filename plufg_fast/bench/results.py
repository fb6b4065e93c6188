"""What a benchmark finds, as plain data: timings of contestants, and scores against a bar."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from .timing import Timing, quartiles

Sense: TypeAlias = Literal["at most", "at least"]


@dataclass(frozen=True)
class Bar:
    """What a contestant has to reach.

    ``"at most"`` bounds its time in units of the baseline's, ``"at least"`` its speed in units of the baseline's.
    Without a limit the ratio is only reported.
    """

    contestant: str
    baseline: str
    sense: Sense
    limit: float | None = None


@dataclass(frozen=True)
class Score:
    """One number against its bar."""

    contestant: str
    baseline: str
    value: float
    lower: float  # quartiles: of the ratio in every round
    upper: float
    sense: Sense
    limit: float | None

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None where there is none."""
        if self.limit is None:
            return None
        return self.value <= self.limit if self.sense == "at most" else self.value >= self.limit


@dataclass(frozen=True)
class Result:
    """One interleaved measurement."""

    group: str
    title: str
    facts: dict[str, Any]
    timings: list[Timing]
    scores: list[Score]
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "group": self.group,
            "title": self.title,
            "facts": self.facts,
            "notes": self.notes,
            "contestants": [_timing(timing) for timing in self.timings],
            "scores": [{**vars(score), "met": score.met} for score in self.scores],
        }


def _timing(timing: Timing) -> dict[str, Any]:
    lower, median, upper = timing.quartiles if timing.seconds else (None, None, None)
    return {
        "name": timing.name,
        "median": median,
        "lower_quartile": lower,
        "upper_quartile": upper,
        "rounds": len(timing.seconds),
        "bytes_moved": timing.moved,
        "error": timing.error,
        "failed": timing.failed,
        "seconds": [float(f"{value:.6g}") for value in timing.seconds],
    }


def score(bar: Bar, timings: list[Timing]) -> Score | None:
    """The ratio that a bar is about, the median and the quartiles of those of all rounds; None if one was not timed."""
    by_name = {timing.name: timing for timing in timings}
    ours, base = by_name[bar.contestant], by_name[bar.baseline]
    if not ours.seconds or not base.seconds:
        return None
    above, below = (ours, base) if bar.sense == "at most" else (base, ours)
    # A slow contestant has fewer rounds: its first ones are those of everybody.
    lower, value, upper = quartiles([a / b for a, b in zip(above.seconds, below.seconds, strict=False)])
    return Score(bar.contestant, bar.baseline, value, lower, upper, bar.sense, bar.limit)
