"""Finished runs on disk: killed writers, several writers, damaged files."""

import json
import time

import pytest
from killing import Victim, claim_forever, write_records

from plufg_fast.experiments.records import Records, key_of


def keys(path):
    return [json.loads(line)["key"] for line in path.read_text().splitlines()]


def test_the_key_does_not_depend_on_order_or_on_how_a_number_is_written():
    a = {"p": 2, "mu": 0.5, "options": {"x": [1.0, 2], "y": None}}
    b = {"options": {"y": None, "x": (1, 2.0)}, "mu": 0.5, "p": 2.0}
    assert key_of(a) == key_of(b)
    assert key_of(a) != key_of({**a, "mu": 0.25})
    assert key_of({"a": True}) != key_of({"a": 1})


def test_what_is_appended_is_found_by_this_and_by_another_reader(tmp_path):
    path = tmp_path / "deep" / "runs.jsonl"
    records, other = Records(path), Records(path)
    assert records.get("a") is None
    records.append("a", {"value": 0.1 + 0.2})
    assert records.get("a") == other.get("a") == {"key": "a", "value": 0.1 + 0.2}
    other.append("b", {"value": 2})
    assert list(records.all()) == ["a", "b"]
    assert sorted(item.name for item in path.parent.iterdir()) == ["runs.jsonl", "runs.jsonl.lock"]


def test_the_first_of_two_finished_runs_counts(tmp_path):
    records = Records(tmp_path / "runs.jsonl")
    Records(records.path).append("a", {"value": 1})
    records.append("a", {"value": 2})
    assert keys(records.path) == ["a"]
    assert records.get("a")["value"] == 1


def test_an_unfinished_line_is_ignored_and_does_not_spoil_the_next(tmp_path):
    records = Records(tmp_path / "runs.jsonl")
    records.append("a", {"text": "x" * 200_000})  # longer than what is searched at once
    records.append("b", {"text": "y" * 200_000})
    whole = records.path.read_bytes()
    end_of_first = whole.index(b"\n") + 1
    for cut in (1, end_of_first - 1, end_of_first, end_of_first + 1, end_of_first + 150_000, len(whole) - 1):
        records.path.write_bytes(whole[:cut])
        survivors = [] if cut < end_of_first else ["a"]
        reader = Records(records.path)
        assert list(reader.all()) == survivors
        reader.append("c", {"value": 3})
        assert list(reader.all()) == keys(records.path) == [*survivors, "c"]


def test_a_damaged_line_in_the_middle_is_named_and_costs_only_itself(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b'{"key": "a"}\n{"key": \x00\x00\n[1]\n{"key": "b"}\n')
    with pytest.warns(UserWarning, match=r"runs\.jsonl, line [23]: no finished run"):
        assert list(Records(path).all()) == ["a", "b"]


def test_a_value_that_json_has_no_word_for_is_refused_before_anything_is_written(tmp_path):
    records = Records(tmp_path / "runs.jsonl")
    with pytest.raises(ValueError, match="JSON"):
        records.append("a", {"value": float("nan")})
    assert not records.path.exists()


def test_several_writers_share_a_file(tmp_path):
    path = tmp_path / "runs.jsonl"
    writers = [Victim(write_records, path, name, 20) for name in "abc"]
    told = [key for writer in writers for key in writer.end()[0]]
    assert len(told) == 60
    assert sorted(keys(path)) == sorted(told)
    assert list(Records(path).all()) == keys(path)


def test_writers_killed_at_any_point_lose_nothing_they_reported(tmp_path):
    path = tmp_path / "runs.jsonl"
    told = []
    for attempt in range(5):
        writer = Victim(write_records, path, f"w{attempt}", 1000)
        told.append(writer.hear())
        time.sleep(0.003 * attempt)
        writer.kill()
        told += writer.end()[0]
    found = Records(path).all()
    assert set(told) <= set(found)
    assert len(found) <= len(told) + 5, "at most the line that was about to be reported"
    Records(path).append("last", {})
    assert keys(path) == [*found, "last"]


def test_a_claim_keeps_others_away_until_its_process_dies(tmp_path):
    records = Records(tmp_path / "runs.jsonl")
    owner = Victim(claim_forever, records.path, "a")
    assert owner.hear() is True
    with records.claim("a") as mine, records.claim("b") as other:
        assert (mine, other) == (False, True)
    owner.kill()
    with records.claim("a", wait=True) as mine:
        assert mine
        with Records(records.path).claim("a") as again:
            assert not again
    assert list(tmp_path.iterdir()) == []
