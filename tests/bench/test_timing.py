"""Interleaved measurement, on a clock of its own."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch

from plufg_fast.bench.results import Bar, score
from plufg_fast.bench.timing import LEAST_ROUNDS, WARMUP, Contestant, Timing, measure, quartiles, turns


class Clock:
    """A clock that only calls move on, and what was called."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[str] = []

    def __call__(self) -> float:
        return self.now

    def taking(self, name: str, *seconds: float) -> Callable[[], torch.Tensor]:
        """A call that takes each of these times in turn, then the last one again and again."""
        left = list(seconds)

        def run() -> torch.Tensor:
            self.calls.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]
            return torch.ones(2)

        return run


def test_rounds_begin_elsewhere_and_change_direction() -> None:
    assert [turns("abc", number) for number in range(4)] == [list("abc"), list("cba"), list("bca"), list("acb")]
    assert turns([], 3) == []


def test_everybody_is_first_and_follows_either_neighbour() -> None:
    rounds = [turns("abcd", number) for number in range(8)]
    assert {order[0] for order in rounds} == set("abcd")
    assert {before for order in rounds for before, after in pairwise(order) if after == "b"} == set("ac")


def test_contestants_take_turns() -> None:
    clock = Clock()
    contestants = [Contestant(name, clock.taking(name, 1.0)) for name in "abc"]
    measure(contestants, 2, 1e9, clock=clock)
    warmup = [name for number in range(WARMUP) for name in turns("abc", number)]
    assert clock.calls == warmup + turns("abc", 0) + turns("abc", 1)


def test_only_timed_calls_count() -> None:
    clock = Clock()
    slow = Contestant("slow", clock.taking("slow", *[100.0] * WARMUP, 4.0, 1.0, 2.0, 8.0, 16.0))
    (timing,) = measure([slow], 5, 1e9, clock=clock)
    assert timing.seconds == (4.0, 1.0, 2.0, 8.0, 16.0)
    assert timing.quartiles == (2.0, 4.0, 8.0)


def test_short_calls_run_untimed_before_every_timed_one() -> None:
    clock = Clock()
    (timing,) = measure(
        [Contestant("a", clock.taking("a", *[0.01] * WARMUP, 9.0, 0.5, 9.0, 0.25))], 2, 1e9, clock=clock
    )
    assert timing.seconds == pytest.approx((0.5, 0.25))


def test_time_ends_the_rounds_but_not_before_there_are_a_few() -> None:
    clock = Clock()
    (timing,) = measure([Contestant("a", clock.taking("a", 10.0))], 100, 1.0, clock=clock)
    assert len(timing.seconds) == LEAST_ROUNDS
    (timing,) = measure([Contestant("a", clock.taking("a", 10.0))], 100, 75.0, clock=clock)
    assert len(timing.seconds) == 8


def test_a_slow_contestant_takes_part_in_the_first_rounds_and_is_not_warmed_up() -> None:
    clock = Clock()
    fast, slow = (
        Contestant("fast", clock.taking("fast", 1.0)),
        Contestant("slow", clock.taking("slow", 50.0), most_rounds=1),
    )
    timings = measure([fast, slow], 4, 1e9, clock=clock)
    assert [len(timing.seconds) for timing in timings] == [4, 1]
    assert clock.calls.count("slow") == 1


def test_prepare_runs_before_every_turn_and_is_not_timed() -> None:
    clock = Clock()

    def prepare() -> None:
        clock.now += 1000.0

    (timing,) = measure([Contestant("a", clock.taking("a", 1.0), prepare=prepare)], 3, 1e9, clock=clock)
    assert timing.seconds == (1.0, 1.0, 1.0)


def broken() -> torch.Tensor:
    raise RuntimeError("no compiler\nand a long trace")


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (lambda: torch.tensor([1.0, 1.1]), "ParityError: differs from the reference by 1.0e-01, more than 1e-05"),
        (lambda: torch.tensor([1.0, torch.nan]), "ParityError: differs from the reference by inf, more than 1e-05"),
        (broken, "RuntimeError: no compiler"),
    ],
)
def test_a_contestant_that_fails_is_reported_and_not_timed(run: Callable[[], torch.Tensor], reason: str) -> None:
    clock = Clock()
    calls: list[str] = []

    def counted() -> torch.Tensor:
        calls.append("run")
        return run()

    def expected() -> list[torch.Tensor]:
        return [torch.ones(2, dtype=torch.float64)]

    good = Contestant("good", clock.taking("good", 1.0), expected, 1e-5)
    bad, fine = measure([Contestant("bad", counted, expected, 1e-5), good], 3, 1e9, clock=clock)
    assert bad.failed == reason
    assert bad.seconds == ()
    assert calls == ["run"]
    assert fine.failed is None
    assert fine.error == 0.0
    assert len(fine.seconds) == 3
    assert score(Bar("good", "bad", "at most", 1.0), [bad, fine]) is None


def test_quartiles_of_one_value() -> None:
    assert quartiles([3.0]) == (3.0, 3.0, 3.0)


def test_a_score_is_the_ratio_of_medians_with_quartiles_of_paired_rounds() -> None:
    ours, base = Timing("ours", (1.0, 2.0, 30.0)), Timing("base", (4.0, 4.0, 40.0, 4.0))
    time = score(Bar("ours", "base", "at most", 0.4), [ours, base])
    assert time is not None
    assert (time.value, time.lower, time.upper, time.met) == (0.5, 0.375, 0.625, False)
    speed = score(Bar("ours", "base", "at least", 2.0), [ours, base])
    assert speed is not None
    assert (speed.value, speed.met) == (2.0, True)
    free = score(Bar("ours", "base", "at least"), [ours, base])
    assert free is not None
    assert free.met is None
