"""Interleaved measurement: contestants take turns, so that what disturbs the machine disturbs all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from torch import Tensor

from .parity import check

Watch = Callable[[str], object]
"""Told what is going on, in a few words."""

T = TypeVar("T")

WARMUP: Final = 3
LEAST_ROUNDS: Final = 3
# Shorter calls run once untimed at every turn: they would otherwise be charged for the caches that the one before
# them has filled with its own data.
SHORT: Final = 0.05


@dataclass(frozen=True)
class Contestant:
    """Something to be timed.

    Args:
        name: how tables call it.
        run: the timed call.
        expected: what it has to return, computed when needed; None where there is nothing to compare.
        tolerance: the largest accepted error, see `parity.error`.
        result: what is compared, by default what `run` returns.
        prepare: called before every turn, untimed.
        moved: bytes that a call moves at least, for a rate.
        most_rounds: takes part in the first rounds only; such a slow one is not warmed up either.
    """

    name: str
    run: Callable[[], Any]
    expected: Callable[[], Sequence[Tensor]] | None = None
    tolerance: float = 0.0
    result: Callable[[], Any] | None = None
    prepare: Callable[[], object] | None = None
    moved: int | None = None
    most_rounds: int | None = None


@dataclass(frozen=True)
class Timing:
    """How one contestant did."""

    name: str
    seconds: tuple[float, ...] = ()  # of every round it took part in
    error: float | None = None
    failed: str | None = None  # why it was not timed
    moved: int | None = None

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile in seconds."""
        return quartiles(self.seconds)

    @property
    def median(self) -> float:
        """Median in seconds."""
        return self.quartiles[1]


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile."""
    lower, middle, upper = np.quantile(np.asarray(values, dtype=np.float64), (0.25, 0.5, 0.75))
    return float(lower), float(middle), float(upper)


def turns(contestants: Sequence[T], number: int) -> list[T]:
    """The order of one round: every other is the one before it backwards, every pair begins one further on.

    So nobody always runs first, nor always behind the same neighbour.
    """
    first = number // 2 % max(len(contestants), 1)
    order = [*contestants[first:], *contestants[:first]]
    return order[::-1] if number % 2 else order


def measure(
    contestants: Sequence[Contestant],
    rounds: int,
    budget: float,
    watch: Watch = lambda _: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Timing]:
    """Check everybody's result, then time who passed, round by round.

    A contestant whose result is wrong, or who fails in the check or while warming up, is reported and not timed.

    Args:
        contestants: who takes part.
        rounds: how often each is timed.
        budget: seconds after which no further round begins, once there were `LEAST_ROUNDS`.
        watch: told of every step.
        clock: the time in seconds.
    """
    failed: dict[str, str] = {}
    errors: dict[str, float | None] = {}

    def turn(contestant: Contestant, untimed: bool) -> float:
        if contestant.prepare is not None:
            contestant.prepare()
        if untimed:
            contestant.run()
        start = clock()
        contestant.run()
        return clock() - start

    for contestant in contestants:
        watch(f"checking {contestant.name}")
        try:
            if contestant.prepare is not None:
                contestant.prepare()
            errors[contestant.name] = (
                None
                if contestant.expected is None
                else check((contestant.result or contestant.run)(), contestant.expected(), contestant.tolerance)
            )
        # Whatever goes wrong in a contestant is a result of the benchmark, not its end.
        except Exception as problem:
            failed[contestant.name] = _reason(problem)

    racing = [c for c in contestants if c.name not in failed]
    last: dict[str, float] = {}
    for number in range(WARMUP):
        for contestant in turns([c for c in racing if c.most_rounds is None], number):
            watch(f"warming up {contestant.name}")
            try:
                last[contestant.name] = turn(contestant, untimed=False)
            except Exception as problem:
                failed[contestant.name] = _reason(problem)
        racing = [c for c in racing if c.name not in failed]

    seconds: dict[str, list[float]] = {c.name: [] for c in contestants}
    begun = clock()
    for number in range(rounds):
        for contestant in turns([c for c in racing if c.most_rounds is None or number < c.most_rounds], number):
            watch(f"round {number + 1} of {rounds}: {contestant.name}")
            short = last.get(contestant.name, SHORT) < SHORT
            seconds[contestant.name].append(turn(contestant, untimed=short))
        if number + 1 >= LEAST_ROUNDS and clock() - begun > budget:
            break
    return [
        Timing(c.name, tuple(seconds[c.name]), errors.get(c.name), failed.get(c.name), c.moved) for c in contestants
    ]


def _reason(problem: Exception) -> str:
    lines = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {lines[0]}" if lines else type(problem).__name__
