"""Presets: what is written comes back, and gives way only to what is better proven."""

from dataclasses import replace

import pytest

from plufg_fast.experiments import presets
from plufg_fast.experiments.train import TrainConfig, build_model
from plufg_fast.nn.models import Dims


def test_similar_graphs_are_the_others_of_their_kind():
    found = presets.of_similar_graphs(TrainConfig("texas", "pl-ufg2"))
    assert {config.dataset for config in found} == {"chameleon", "squirrel", "actor", "wisconsin", "cornell"}
    assert {config.model for config in found} == {"pl-ufg2"}
    assert presets.of_similar_graphs(TrainConfig("csbm", "pl-ufg2")) == []


def test_a_preset_comes_back_as_it_was_written(tmp_path):
    config = TrainConfig(
        "texas", "pl-fufg", "random", 3, 5, 100, None, 1e-5, "cosine", 0.0, 64,
        {"p": [1.0, 1.5, 2.0], "learn_p": True, "theta": 'a "b" ü'}, {"undirected": True}, {"rates": [0.5, 0.25]},
        "here",
    )  # fmt: skip
    path = tmp_path / "deep" / "own.toml"
    found = {"val_accuracy": 0.875, "command": "plufg search --dataset texas"}
    presets.write(path, config, found)
    again, facts = presets.read(str(path))
    assert again == replace(config, runs=TrainConfig().runs, seed=0, root=None)
    assert facts == found


def test_a_preset_gives_way_only_to_a_better_one_of_its_split(tmp_path):
    path = tmp_path / "own.toml"
    config = TrainConfig("texas", "mlp")
    assert presets.write_better(path, config, {"val_accuracy": 0.8, "runs": 1})
    assert not presets.write_better(path, replace(config, lr=0.5), {"val_accuracy": 0.8, "runs": 1})
    assert presets.write_better(path, replace(config, lr=0.25), {"val_accuracy": 0.9, "runs": 1})
    assert presets.read(str(path))[0].lr == 0.25
    # A mean of several runs is no luck, and a single one no better than it.
    assert presets.write_better(path, config, {"val_accuracy": 0.85, "runs": 3})
    assert not presets.write_better(path, config, {"val_accuracy": 0.99, "runs": 1})
    assert presets.write_better(path, config, {"val_accuracy": 0.7, "runs": 3, "cross_validated": True})
    assert not presets.write_better(path, config, {"val_accuracy": 0.99, "runs": 9, "cross_validated": False})
    steady = {"val_accuracy": 0.6, "runs": 3, "cross_validated": True, "window": 20}
    assert presets.write_better(path, config, steady)
    assert not presets.write_better(path, config, {"val_accuracy": 0.99, "runs": 3, "cross_validated": True})
    assert not presets.write_better(path, replace(config, split="released"), {**steady, "runs": 9})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dataset = ", "is no TOML"),
        ('dataset = "cora"', "no dataset and model"),
        ('dataset = "cora"\nmodel = "gcn"\nrunz = 3', "unknown runz; expected the fields data_options"),
        ('dataset = 3\nmodel = "gcn"', "expected a name for dataset, got 3"),
        ('dataset = "cora"\nmodel = "gcn"\nmodel_options = 3', "expected a table for model_options, got 3"),
        (
            'dataset = "cora"\nmodel = "gcn"\n[data_options]\nundirected = "no"',
            "true or false for undirected, got 'no'",
        ),
        ('dataset = "cora"\nmodel = "gcn"\nroot = "/x"', "unknown root"),
    ],
)
def test_a_preset_that_is_none_is_refused(tmp_path, text, words):
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"preset: .*own.toml.*{words}"):
        presets.read(str(path))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"preset: no file .*own\.toml$"):
        presets.read(str(tmp_path / "own.toml"))


def test_an_unknown_preset_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no 'cora/gnc'; there are .*files of one's own"):
        presets.read("cora/gnc")


def test_every_preset_of_the_package_builds_and_names_its_score_and_command():
    names = presets.names()
    assert "cora/pl-ufg2" in names
    for name in names:
        config, found = presets.read(name)
        assert name == f"{config.dataset}/{config.model}"
        build_model(config, Dims(4, 3, 10))
        assert 0.0 < found["val_accuracy"] <= 1.0
        assert found["command"].startswith("plufg search ")
        with_slash = [word for word in found["command"].split() if "/" in word]
        assert with_slash in ([], [name]), "the preset that it started from, and no path of a machine"
