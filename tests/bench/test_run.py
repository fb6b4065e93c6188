"""``plufg bench`` from the outside, and what it measures in a process of its own."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from plufg_fast import extension
from plufg_fast.bench import cases
from plufg_fast.bench.run import GROUPS
from plufg_fast.bench.scaling import fit_exponent, measure_size, peak_extra_bytes
from plufg_fast.bench.timing import Contestant
from plufg_fast.cli import app

needs_extension = pytest.mark.skipif(not extension.loaded(), reason="the extension is not built")

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Invoke:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("PLUFG_DATA", raising=False)
    return lambda *arguments: CliRunner().invoke(app, ["bench", *map(str, arguments)])


@needs_extension
def test_quick_measures_every_group(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("--quick", "--rounds", 1, "--threads", 1, "--out", tmp_path / "here")
    assert result.exit_code == 0, result.output
    for word in (*GROUPS, "median", "quartiles", "stand-in for Computers", "met"):
        assert word in result.stdout
    assert "failed" not in result.stdout

    content = json.loads((tmp_path / "here" / "bench.json").read_text())
    assert set(content) == {
        "command", "quick", "threads", "rounds", "groups", "started", "finished", "machine", "results",
    }  # fmt: skip
    assert content["machine"].keys() >= {"cpu", "cores", "isa", "torch"}
    assert set(content["groups"]) == set(GROUPS)
    # One thread has nothing to be compared with.
    assert {found["group"] for found in content["results"]} == set(GROUPS) - {"threads"}
    for found in content["results"]:
        assert found["contestants"]
        for contestant in found["contestants"]:
            assert contestant["lower_quartile"] <= contestant["median"] <= contestant["upper_quartile"]
            assert contestant["rounds"] == len(contestant["seconds"]) == 1
        for score in found["scores"]:
            assert set(score) == {"contestant", "baseline", "value", "lower", "upper", "sense", "limit", "met"}
    assert (tmp_path / "here" / "bench.png").read_bytes().startswith(b"\x89PNG")


@needs_extension
def test_what_fails_is_said_and_kept(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = cases.Bench.product

    def wrong(self: cases.Bench) -> Contestant:
        right = full(self)
        return self.sums(right.name, lambda: 2 * right.run())

    monkeypatch.setattr(cases.Bench, "product", wrong)
    result = invoke("--quick", "--rounds", 1, "--threads", 1, "--only", "backward", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "torch CSR @ F failed: ParityError: differs from the reference" in " ".join(result.stdout.split())
    content = json.loads((tmp_path / "bench.json").read_text())
    assert list(content["groups"]) == ["backward"]
    for found in content["results"]:
        failed = {c["name"]: c for c in found["contestants"]}["torch CSR @ F"]
        assert failed["failed"]
        assert failed["median"] is None
        assert failed["rounds"] == 0
        assert "torch CSR @ F" not in [score["baseline"] for score in found["scores"]]


@needs_extension
def test_what_was_finished_is_not_lost(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any) -> Any:
        """Control-C."""
        raise KeyboardInterrupt

    monkeypatch.setitem(GROUPS, "forward", stopped)
    result = invoke("--quick", "--rounds", 1, "--threads", 1, "--out", tmp_path)
    assert result.exit_code != 0
    content = json.loads((tmp_path / "bench.json").read_text())
    assert content["finished"] is None
    assert {found["group"] for found in content["results"]} == {"ceilings"}


@needs_extension
@pytest.mark.parametrize(("threads", "found"), [(1, "Nothing to compare"), (2, "speed: 2 threads / 1 thread")])
def test_threads_are_compared_and_left_as_they_were(invoke: Invoke, tmp_path: Path, threads: int, found: str) -> None:
    before = torch.get_num_threads()
    result = invoke("--quick", "--rounds", 1, "--threads", threads, "--only", "threads", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert found in result.stdout
    assert torch.get_num_threads() == before


@needs_extension
def test_a_size_whose_process_dies_is_reported(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "false")
    result = invoke("--quick", "--only", "scaling", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "failed: its process ended with code 1" in " ".join(result.stdout.split())
    (found,) = json.loads((tmp_path / "bench.json").read_text())["results"]
    assert found["scores"] == []


def test_list_names_the_groups(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("--list")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == list(GROUPS)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_group_is_a_message(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("--only", "speed")
    assert result.exit_code == 2
    assert "unknown group speed; choose from ceilings" in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_exponent_of_a_power_law() -> None:
    sizes = [1e3, 1e4, 1e5]
    assert math.isclose(fit_exponent(sizes, [2e-9 * size**1.2 for size in sizes]), 1.2)


def test_peak_of_memory_is_that_of_the_call() -> None:
    size = 64_000_000

    def run() -> torch.Tensor:
        torch.ones(size // 4)  # given back before the call ends
        return torch.ones(size // 8)

    extra = peak_extra_bytes(run)
    if extra is None:
        pytest.skip("the operating system does not tell")
    # Pages that were there already are not counted.
    assert 0.9 * size < extra < 1.6 * size


def test_a_size_is_checked_and_timed() -> None:
    point = measure_size(2_000, cases.Settings(quick=True, rounds=2))
    assert point["timing"]["error"] < 1e-5
    assert len(point["timing"]["seconds"]) == 2
    assert point["edge_array_bytes"] == point["edges"] * 8 * 4
