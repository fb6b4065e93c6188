"""Searching: what is chosen, what a killed search leaves, what several processes share."""

import csv
import json
import math
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
import torch
from killing import Victim, claim_forever, search_finalists, search_trials

from plufg_fast.data import csbm
from plufg_fast.experiments import presets, search, spaces
from plufg_fast.experiments.spaces import Range, apply, grid, per_band, start, wide
from plufg_fast.experiments.train import Epoch, Result, TrainConfig, build_model, draw_split
from plufg_fast.experiments.trials import Trial, best_of, draw, importances, write_table

CONFIG = TrainConfig(model="mlp", runs=2, epochs=6, data_options={"num_nodes": 60})
SPACE = {"lr": Range(0.001, 0.1, log=True), "hidden_channels": [4, 8], "dropout": Range(0.0, 0.8)}
GRID = {"lr": [0.01, 0.05], "hidden_channels": [4, 8]}


@pytest.fixture(autouse=True)
def _one_thread():
    """Sums of a matrix product may depend on the number of threads; victims have one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def facts(trials):
    return [replace(trial, seconds=None) for trial in trials]


def runs(folder):
    lines = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    return sorted((line["trial"], line["run"]) for line in lines)


def test_the_papers_grid_is_that_of_the_paper():
    homophilic = grid(TrainConfig(dataset="cora", model="pl-ufg1"))
    assert homophilic["p"] == [1.0, 1.5, 2.0, 2.5]
    assert homophilic["mu"] == [0.1, 0.5, 1.0, 5.0, 10.0]
    assert (homophilic["lr"], homophilic["steps"], homophilic["degree"]) == ([0.01, 0.005], [4, 5], [2, 3, 7])
    for dataset in ("texas", "cornell-old"):
        assert grid(TrainConfig(dataset=dataset, model="pl-fufg"))["mu"] == [3.0, 5.0, 10.0, 20.0, 30.0, 50.0, 70.0]


@pytest.mark.parametrize("make", [grid, wide])
@pytest.mark.parametrize(
    "model",
    ["pl-ufg1", "pl-ufg2", "pl-fufg", "pgnn", "ufg", "mlp", "gcn", "sgc", "gat", "jknet", "appnp", "gprgnn"],
)
def test_every_model_trains_anywhere_in_its_space(make, model, tmp_path):
    config = TrainConfig(model=model, runs=1, epochs=1, data_options={"num_nodes": 40})
    space = make(config)
    assert {"lr", "weight_decay", "dropout"} <= {*space}
    method = "grid" if make is grid else "random"
    trials = search.search(config, space, tmp_path, method=method, trials=2)
    assert [trial.state for trial in trials] == ["complete"] * 2


def test_a_search_may_ask_whether_labels_help(tmp_path):
    config = replace(CONFIG, model="pl-ufg2", runs=1, epochs=2)
    trials = search.search(config, {"labels": [True, False]}, tmp_path, method="grid", trials=2)
    assert [trial.state for trial in trials] == ["complete"] * 2
    assert {trial.params["labels"] for trial in trials} == {True, False}
    assert trials[0].val_loss != trials[1].val_loss


def test_options_that_are_given_do_not_vary():
    config = TrainConfig(model="pl-ufg2", model_options={"mu": 3.0, "learn_p": True, "p": 1.5})
    assert not {"mu", "p", "learn_p"} & {*wide(config), *grid(config)}


def test_p_per_band_has_one_value_for_every_band():
    config = TrainConfig(model="pl-fufg", model_options={"framelet": "haar", "levels": 2})
    space = per_band(config, wide(config))
    assert [name for name in space if name.startswith("p")] == ["p.0", "p.1", "p.2"]
    found = apply(config, {"p.2": 3.0, "p.0": 1.0, "p.1": 2.0, "mu": 5.0})
    assert found.model_options == {"framelet": "haar", "levels": 2, "p": [1.0, 2.0, 3.0], "mu": 5.0}
    config = TrainConfig(model="pl-fufg")
    assert {"framelet", "levels"} <= {*wide(config)}
    assert not {"framelet", "levels"} & {*per_band(config, wide(config))}, "they decide how many bands there are"


def test_a_search_begins_with_the_configuration_itself(tmp_path):
    config = TrainConfig("chameleon", "pl-fufg", lr=0.3, model_options={"p": 2.25})
    space = wide(config)
    first = spaces.start(config, {**space, "undirected": [True, False], "p.0": Range(1.0, 2.0), "theta": ["band"]})
    assert first["mu"] == 20.0, "the middle of the paper's grid"
    assert (first["dropout"], first["steps"], first["degree"], first["hidden_channels"]) == (0.5, 4, 3, 32)
    assert first["lr"] == 0.05, "the end of the range that is nearest"
    assert first["p.0"] == 2.0
    assert (first["undirected"], first["theta"]) == (False, "band")
    found = search.search(replace(CONFIG, lr=0.02), SPACE, tmp_path, trials=2)
    assert found[0].params == {"lr": 0.02, "hidden_channels": 8, "dropout": 0.5}, "8 channels are nearest to 32"
    assert found[1].params != found[0].params


def test_what_did_well_elsewhere_is_tried_next_and_once(tmp_path):
    starts = [replace(CONFIG, lr=0.03), replace(CONFIG, lr=0.02), replace(CONFIG, lr=0.5)]
    found = search.search(replace(CONFIG, lr=0.02), SPACE, tmp_path, trials=4, starts=starts)
    assert [trial.params["lr"] for trial in found[:3]] == [0.02, 0.03, SPACE["lr"].high]
    assert found[3].params["lr"] not in [0.02, 0.03, SPACE["lr"].high]
    again = search.search(replace(CONFIG, lr=0.02), SPACE, tmp_path, trials=5, starts=[replace(CONFIG, lr=0.07)])
    assert facts(again[:4]) == facts(found), "a search keeps the starts it began with"
    assert again[4].params["lr"] != 0.07


def test_starts_count_when_a_search_goes_on_before_they_are_all_tried(tmp_path):
    starts = [replace(CONFIG, lr=0.03), replace(CONFIG, lr=0.04)]
    search.search(CONFIG, SPACE, tmp_path, trials=2, starts=starts)
    found = search.search(CONFIG, SPACE, tmp_path, trials=3)
    assert [trial.params["lr"] for trial in found] == [CONFIG.lr, 0.03, 0.04]


def test_relatives_start_a_search_as_nearly_what_they_are(monkeypatch, tmp_path):
    monkeypatch.setattr(presets, "FOLDER", tmp_path)
    assert presets.of_relatives(TrainConfig("csbm", "pl-ufg2")) == []
    appnp = TrainConfig("csbm", "appnp", lr=0.3, model_options={"alpha": 0.2, "dropout": 0.0})
    pgnn = TrainConfig("csbm", "pgnn", model_options={"K": 3, "p": 1.2, "mu": 0.7, "input_dropout": 0.1})
    ufg = TrainConfig("csbm", "ufg", model_options={"activation": "soft", "framelet": "haar", "head": True})
    relu = replace(ufg, model_options={**ufg.model_options, "activation": "relu"})
    for item in (appnp, pgnn, relu):
        presets.write(tmp_path / "csbm" / f"{item.model}.toml", item, {})
    config = TrainConfig("csbm", "pl-ufg2")
    *_, like_relu = presets.of_relatives(config)
    presets.write(tmp_path / "csbm" / "ufg.toml", ufg, {})
    like_pgnn, like_appnp, like_ufg = presets.of_relatives(config)
    assert (like_appnp.lr, like_appnp.data_options) == (0.3, {"self_loops": True})
    space = wide(config)
    for like in (like_pgnn, like_appnp, like_ufg, like_relu):
        tried = apply(config, start(like, space)).model_options
        assert tried["warmup"] == 0
        assert tried["head"] is like.model_options["head"]
        assert tried["activation"] == ("relu" if like is like_relu else "none")
    data = csbm(num_nodes=40, num_features=8, seed=1)
    for item, like in ((appnp, like_appnp), (pgnn, like_pgnn), (ufg, like_ufg), (relu, like_relu)):
        network, other = build_model(item, data).eval(), build_model(like, data).eval()
        with torch.no_grad():
            for name, value in other.named_parameters():
                if "filter" in name:
                    value.fill_(1.0)  # all bands as they are: the framelets give back what they are given
            other.lin.load_state_dict((network.lin1 if item is appnp else network.lin).state_dict())
            other.conv.lin.weight.copy_((network.lin2 if item is appnp else network.conv.lin).weight)
            if item.model == "ufg":
                other.head.load_state_dict(network.head.state_dict())
                for name, value in network.named_parameters():
                    if "filter" in name:
                        value.fill_(1.0)
            if item is appnp:
                network.lin2.bias.zero_()
            loops = torch.arange(40).repeat(2, 1)
            edges = torch.cat((data.edge_index, loops), dim=1) if like.data_options else data.edge_index
            expected, found = network(data.x, edges), other(data.x, edges)
        torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)
    presets.write(tmp_path / "csbm" / "pgnn.toml", replace(pgnn, model_options={}), {})
    like_pgnn, *_ = presets.of_relatives(config)
    assert {name: like_pgnn.model_options[name] for name in ("p", "mu", "steps")} == {"p": 1.5, "mu": 0.1, "steps": 4}
    assert start(like_ufg, {"mu": Range(0.1, 50.0, log=True)}) == {"mu": 50.0}
    with pytest.raises(ValueError, match="contains others, got gcn"):
        presets.of_relatives(TrainConfig("csbm", "gcn"))


def test_pl_ufg_networks_start_from_one_another(monkeypatch, tmp_path):
    monkeypatch.setattr(presets, "FOLDER", tmp_path)
    options = {"p": 1.2, "mu": 0.7, "theta": "band"}
    for model in ("pl-ufg1", "pl-ufg2"):
        config = TrainConfig("csbm", model, lr=0.3, model_options=options)
        presets.write(tmp_path / "csbm" / f"{model}.toml", config, {})
    for model, count in (("pl-fufg", 2), ("pl-ufg1", 1)):
        config = TrainConfig("csbm", model)
        found = presets.of_relatives(config)
        assert found == [replace(config, lr=0.3, model_options=options)] * count, "and not from itself"


def test_a_start_with_p_for_fewer_bands_gives_the_others_its_last():
    space = {f"p.{band}": Range(1.0, 3.0) for band in range(4)}
    config = TrainConfig("csbm", "pl-ufg1", model_options={"p": [2.0, 1.5]})
    assert start(config, space) == {"p.0": 2.0, "p.1": 1.5, "p.2": 1.5, "p.3": 1.5}


def test_one_trial_without_a_space_judges_the_configuration(tmp_path):
    (found,) = search.search(CONFIG, {}, tmp_path, trials=1)
    assert (found.params, found.config) == ({}, CONFIG)
    assert found.state == "complete"


@pytest.mark.parametrize("kind", ["random", "released"])
def test_folds_validate_no_node_that_any_of_them_tests(kind):
    data = csbm(num_nodes=80, seed=1)
    config = TrainConfig("csbm", "mlp", kind, seed=5, split_options={"cross_validate": True})
    folds = [draw_split(config, run, data) for run in range(3)]
    for other in folds[1:]:
        assert torch.equal(folds[0].test, other.test)
        assert not (folds[0].val & other.val).any()


def test_a_cross_validated_search_takes_another_fold_in_every_run(tmp_path, monkeypatch):
    seen = []
    real = search.run_once

    def watched(config, run, data, model, masks, **options):
        seen.append(masks)
        return real(config, run, data, model, masks, **options)

    monkeypatch.setattr(search, "run_once", watched)
    config = replace(CONFIG, split="released", split_options={"cross_validate": True})
    search.search(config, SPACE, tmp_path, trials=1)
    assert not (seen[0].val & seen[1].val).any()
    assert seen[0].val.sum() == seen[1].val.sum()


@pytest.mark.parametrize(("window", "lr", "accuracy", "loss"), [(1, 0.05, 0.9, 0.3), (2, 0.01, 0.8, 0.45)])
def test_a_window_prefers_what_is_steady_to_what_was_lucky_once(window, lr, accuracy, loss, tmp_path, monkeypatch):
    curves = {0.05: [0.5, 0.9, 0.5, 0.5], 0.01: [0.7, 0.8, 0.8, 0.7]}

    def told(config, run, data, model, masks, **options):
        curve = curves[config.lr]
        return Result(0, max(curve), 0, 0, 0, curve.index(max(curve)) + 1, 4, 1.0, [], [0.2, 0.3, 0.6, 0.7], curve)

    monkeypatch.setattr(search, "run_once", told)
    trials = search.search(CONFIG, {"lr": [*curves]}, tmp_path, method="grid", window=window)
    best = best_of(trials)
    assert (best.params["lr"], best.val_accuracy, best.val_loss) == pytest.approx((lr, accuracy, loss))
    final = search.confirm(trials, tmp_path, finalists=2, runs=3, window=window)
    assert best_of(final).params["lr"] == lr


def follow_scripts(monkeypatch: pytest.MonkeyPatch, curves: Callable[[TrainConfig, int], list[float]]) -> None:
    """Runs have these validation accuracies, epoch by epoch, and nothing is trained."""

    def told(config: TrainConfig, run: int, *_: object, progress: Callable[[Epoch], object], **options: Any) -> Result:
        curve = curves(config, run)
        for epoch in range(1, len(curve) + 1):
            seen = curve[:epoch]
            progress(Epoch(epoch, 1.0, 1.0, 0.0, seen[-1], max(seen), seen))
        best = curve.index(max(curve))
        losses = [1.0 + run] * len(curve)
        return Result(0, curve[best], 0, 0, 0, best + 1, len(curve), 2.0 + run, [], losses, curve)

    monkeypatch.setattr(search, "run_once", told)


def test_a_trial_has_the_mean_and_the_deviation_of_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accuracies = [0.5, 0.6, 0.9, 0.7]
    follow_scripts(monkeypatch, lambda config, run: [0.1, accuracies[run], 0.2])
    (trial,) = search.search(replace(CONFIG, runs=3, epochs=3), {"lr": [0.01]}, tmp_path, method="grid")
    assert trial.val_accuracy == pytest.approx(2 / 3)
    assert trial.val_std == pytest.approx(math.sqrt(((1 / 6) ** 2 + (1 / 15) ** 2 + (7 / 30) ** 2) / 2))
    assert (trial.val_loss, trial.seconds) == pytest.approx((2.0, 2.0 + 3.0 + 4.0))
    (trial,) = search.confirm([trial], tmp_path, finalists=1, runs=4)
    assert trial.val_accuracy == pytest.approx(0.675)
    assert trial.val_std == pytest.approx(math.sqrt((0.175**2 + 0.075**2 + 0.225**2 + 0.025**2) / 3))


def test_the_order_of_a_grid_follows_the_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow_scripts(monkeypatch, lambda config, run: [0.5] * 6)
    rates, orders = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06], []
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        config = replace(CONFIG, runs=1, seed=seed)
        trials = search.search(config, {"lr": rates}, tmp_path / folder, method="grid", prune=False)
        orders.append([trial.params["lr"] for trial in trials])
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert all(sorted(order) == rates for order in orders)


def test_what_a_trial_is_pruned_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: dict[int, list[tuple[float, int]]] = {}
    original = optuna.trial.Trial.report

    def report(self: Any, value: float, step: int) -> None:
        reports.setdefault(self.number, []).append((value, step))
        original(self, value, step)

    monkeypatch.setattr(optuna.trial.Trial, "report", report)
    # Six that are alike; one that is worse at first and then better; one that is worse and gets no better.
    usual = [[0.3, 0.5, 0.4, 0.6, 0.6, 0.8], [0.5, 0.4, 0.7, 0.7, 0.6, 0.6]]
    late, never = [0.1, 0.2, 0.9, 0.9, 0.9, 0.9], [0.2] * 6
    rates = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08]

    def curve(config: TrainConfig, run: int) -> list[float]:
        return late if config.lr == 0.07 else never if config.lr == 0.08 else usual[run]

    follow_scripts(monkeypatch, curve)
    monkeypatch.setattr(search, "_points", lambda *_: [{"lr": rate} for rate in rates])
    trials = search.search(CONFIG, {"lr": rates}, tmp_path, method="grid")
    # The best epoch so far; in the second run its mean with the accuracy of the first.
    expected = [(0.3, 1), (0.5, 2), (0.5, 3), (0.6, 4), (0.6, 5), (0.8, 6)]
    expected += [(0.65, 7), (0.65, 8), (0.75, 9), (0.75, 10), (0.75, 11), (0.75, 12)]
    assert [step for _, step in reports[0]] == [step for _, step in expected]
    assert [value for value, _ in reports[0]] == pytest.approx([value for value, _ in expected])
    # Nobody is judged before half of the first run.
    assert [trial.state for trial in trials] == ["complete"] * 7 + ["pruned"]
    assert [step for _, step in reports[7]] == [1, 2, 3]


def test_a_run_that_stopped_before_its_window_is_full_counts_as_far_as_it_came(tmp_path):
    config = replace(CONFIG, patience=1, runs=1)
    # At this rate nothing gets better after the first epoch but the loss, and that not for long.
    (trial,) = search.search(config, {"lr": [50.0]}, tmp_path, method="grid", window=6)
    (entry,) = (json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines())
    assert entry["epochs"] < 6
    assert 0.0 < trial.val_accuracy <= 1.0


def test_values_go_where_they_belong():
    config = TrainConfig(dataset="texas", model="gat", model_options={"heads": 8})
    params = {"lr": 0.5, "heads": 2, "undirected": True, "schedule": "cosine"}
    expected = replace(config, lr=0.5, schedule="cosine", model_options={"heads": 2}, data_options={"undirected": True})
    assert apply(config, params) == expected


def test_the_best_is_chosen_by_validation_accuracy_then_loss_then_order():
    def trial(number, state, accuracy, loss):
        return Trial(number, {}, CONFIG, state, accuracy, 0.0, loss, 1.0)

    trials = [
        trial(0, "pruned", 0.99, None),
        trial(1, "complete", 0.8, 0.1),
        trial(2, "complete", 0.9, 0.5),
        trial(3, "complete", 0.9, 0.4),
        trial(4, "complete", 0.9, 0.4),
    ]
    assert best_of(trials).number == 3
    assert best_of(trials[:1]) is None


def test_labels_of_test_nodes_change_nothing(tmp_path, monkeypatch):
    def other_labels(**options):
        graph = csbm(**options)
        graph.y = labels
        return graph

    graph = csbm(num_nodes=60, seed=0)
    config = replace(CONFIG, split="released", runs=1)
    masks = search.draw_split(config, 0, graph)
    expected = search.search(config, SPACE, tmp_path / "a", trials=6)
    labels = graph.y.clone()
    # Swapped in pairs of both classes: the split draws within classes and must stay the same.
    zeros, ones = ((masks.test & (graph.y == c)).nonzero().squeeze(1) for c in (0, 1))
    labels[zeros[:15]], labels[ones[:15]] = 1, 0
    monkeypatch.setattr("plufg_fast.experiments.train.csbm", other_labels)
    monkeypatch.setattr("plufg_fast.experiments.search.draw_split", lambda *_: masks)
    assert facts(search.search(config, SPACE, tmp_path / "b", trials=6)) == facts(expected)
    assert "test" not in (tmp_path / "a" / "runs.jsonl").read_text()


def test_a_grid_tries_every_combination_once(tmp_path):
    trials = search.search(CONFIG, GRID, tmp_path, method="grid", trials=100, prune=False)
    assert sorted((t.params["lr"], t.params["hidden_channels"]) for t in trials) == [
        (0.01, 4), (0.01, 8), (0.05, 4), (0.05, 8)
    ]  # fmt: skip
    assert runs(tmp_path) == [(trial, run) for trial in range(4) for run in range(2)]


def test_a_finished_search_is_read_and_a_longer_one_goes_on(tmp_path, monkeypatch):
    # The first ten proposals are random, the others learn.
    whole = search.search(CONFIG, SPACE, tmp_path / "whole", trials=12)
    first = search.search(CONFIG, SPACE, tmp_path / "parts", trials=11)
    more = search.search(CONFIG, SPACE, tmp_path / "parts", trials=12)
    assert facts(more) == facts(whole)
    assert more[:11] == first
    monkeypatch.setattr("plufg_fast.experiments.search.run_once", None)
    assert search.search(CONFIG, SPACE, tmp_path / "parts", trials=12) == more


def test_the_storage_makes_no_difference(tmp_path):
    journal, sqlite = (
        search.search(CONFIG, SPACE, tmp_path / storage, trials=2, storage=storage) for storage in ("journal", "sqlite")
    )
    assert facts(journal) == facts(sqlite)


def test_bad_trials_are_pruned(tmp_path, monkeypatch):
    config = replace(CONFIG, epochs=20, runs=2)
    # Nothing is learned with a rate of next to nothing.
    space = {"lr": [0.05, 1e-9]}
    monkeypatch.setattr(search, "_points", lambda *_: [{"lr": 0.05}] * 6 + [{"lr": 1e-9}])
    trials = search.search(config, space, tmp_path / "a", method="grid")
    kept = search.search(config, space, tmp_path / "b", method="grid", prune=False)
    assert [trial.state for trial in trials] == ["complete"] * 6 + ["pruned"]
    assert [trial.state for trial in kept] == ["complete"] * 7
    # Six equal configurations are trained once.
    assert runs(tmp_path / "a") == [(0, 0), (0, 1)]
    assert not any((tmp_path / "a" / "unfinished").glob("*"))


def test_a_steady_trial_is_not_pruned_for_what_others_had_once(tmp_path, monkeypatch):
    epochs = 10

    def told(config, run, data, model, masks, *, progress, **options):
        curve = [0.8] * epochs if config.lr == 0.01 else [0.5, 0.95] + [0.5] * (epochs - 2)
        for epoch in range(1, epochs + 1):
            seen = curve[:epoch]
            progress(search.Epoch(epoch, 1.0, 1.0, 0.0, seen[-1], max(seen), seen))
        return Result(0, max(curve), 0, 0, 0, 1, epochs, 1.0, [], [1.0] * epochs, curve)

    monkeypatch.setattr(search, "run_once", told)
    rates = [0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.01]
    monkeypatch.setattr(search, "_points", lambda *_: [{"lr": rate} for rate in rates])
    config = replace(CONFIG, epochs=epochs, runs=2)
    trials = search.search(config, {"lr": rates}, tmp_path, method="grid", window=5)
    assert trials[-1].state == "complete"
    assert best_of(trials).params["lr"] == 0.01


@pytest.mark.parametrize("seed", range(4))
def test_values_that_do_not_go_together_fail_their_trial_and_no_more(tmp_path, seed):
    config = replace(CONFIG, model="gat", runs=1, epochs=1, seed=seed)
    # 6 channels are for 1 or 3 heads, not for 4.
    found = search.search(config, {"hidden_channels": [6, 8], "heads": [1, 4]}, tmp_path, method="grid")
    states = {(trial.params["hidden_channels"], trial.params["heads"]): trial.state for trial in found}
    assert states == {(6, 1): "complete", (8, 1): "complete", (8, 4): "complete", (6, 4): "failed"}


def test_a_value_of_the_wrong_type_fails_its_trial_and_no_more(tmp_path):
    config = replace(CONFIG, model="pgnn", runs=1, epochs=1)
    found = search.search(config, {"K": [2, 2.5, "two"]}, tmp_path, method="grid")
    assert {trial.params["K"]: trial.state for trial in found} == {2: "complete", 2.5: "failed", "two": "failed"}
    assert search.search(config, {"K": [2, 2.5, "two"]}, tmp_path, method="grid") == found


def test_a_value_that_the_graph_refuses_fails_its_trial_and_no_more(tmp_path, monkeypatch):
    load = search.load_data

    def directed(config):
        data = load(config)
        data.edge_index = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
        return data

    monkeypatch.setattr(search, "load_data", directed)
    config = replace(CONFIG, model="pl-ufg2", runs=1, epochs=1)
    found = search.search(config, {"solver": ["jacobi", "irls"]}, tmp_path / "both", method="grid")
    assert {trial.params["solver"]: trial.state for trial in found} == {"jacobi": "complete", "irls": "failed"}
    with pytest.raises(ValueError, match="undirected for solver 'irls'"):
        search.search(config, {"solver": ["irls"]}, tmp_path / "none", method="grid")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("name", "whole"),
    [("p", False), ("mu", False), ("steps", True), ("hidden_channels", True), ("patience", True), ("lr", False)],
)
def test_counts_are_whole_and_nothing_else(name, whole):
    assert spaces.takes_whole_numbers(TrainConfig(model="pl-ufg2"), name) == whole


def test_a_loss_that_is_not_finite_fails_its_trial_and_no_more(tmp_path, monkeypatch):
    once = search.run_once

    def diverge(config, *args, **options):
        if config.lr == 0.05:
            raise FloatingPointError("loss inf")
        return once(config, *args, **options)

    monkeypatch.setattr(search, "run_once", diverge)
    trials = search.search(CONFIG, GRID, tmp_path, method="grid")
    assert {(trial.params["lr"], trial.state) for trial in trials} == {(0.05, "failed"), (0.01, "complete")}
    assert search.search(CONFIG, GRID, tmp_path, method="grid") == trials


# SQLite syncs with every report, which is slow on a slow disk.
def test_a_folder_holds_one_study(tmp_path):
    search.search(CONFIG, GRID, tmp_path, method="grid", trials=1, storage="sqlite")
    with pytest.raises(ValueError, match="begun with storage 'sqlite', got 'journal'"):
        search.search(CONFIG, GRID, tmp_path, method="grid", trials=1)


def test_a_trial_that_another_process_begins_at_the_last_moment_is_none_of_this_ones(tmp_path, monkeypatch):
    done = search._others_are_done

    def begin_another(study, records):
        found = done(study, records)
        study.enqueue_trial({"lr": 0.01, "hidden_channels": 4})
        return found

    monkeypatch.setattr(search, "_others_are_done", begin_another)
    trials = search.search(CONFIG, GRID, tmp_path, method="grid", trials=1)
    assert [trial.number for trial in trials] == [0]


@pytest.mark.parametrize(("storage", "kills", "trials"), [("journal", 6, 7), ("sqlite", 2, 2)])
def test_a_search_killed_at_random_points_ends_as_if_it_had_not_been(tmp_path, storage, kills, trials):
    options = {"trials": trials, "storage": storage, "save_every": 2}
    expected = search.search(CONFIG, SPACE, tmp_path / "whole", **options)
    chance = random.Random(3)
    folder = tmp_path / "killed"
    heard = []
    for _ in range(kills):
        victim = Victim(search_trials, CONFIG, SPACE, folder, options)
        heard += [victim.hear() for _ in range(chance.randrange(0, 12))]
        time.sleep(chance.random() * 0.05)
        victim.kill()
        heard += victim.end()[0]
    rest, code = Victim(search_trials, CONFIG, SPACE, folder, options).end()
    assert code == 0
    assert any(trial.state == "complete" for trial in expected)
    assert facts(search.search(CONFIG, SPACE, folder, **options)) == facts(expected)
    assert runs(folder) == runs(tmp_path / "whole"), "nothing lost, nothing done twice"
    # What is done again are the epochs since the last save, at most two per kill.
    epochs = [word for word in [*heard, *rest] if word is not None]
    assert len(epochs) <= len({*epochs}) + 2 * kills
    assert not any((folder / "unfinished").glob("*.pt"))


@pytest.mark.parametrize(("storage", "count"), [("journal", 6), ("sqlite", 3)])
def test_processes_share_the_trials(tmp_path, storage, count):
    options = {"trials": count, "storage": storage, "prune": False}
    both = [Victim(search_trials, CONFIG, SPACE, tmp_path, options) for _ in range(2)]
    heard = [word for victim in both for word in victim.end()[0]]
    expected = [(trial, run, epoch) for trial in range(count) for run in range(2) for epoch in range(1, 7)]
    assert sorted(heard) == expected
    trials = search.search(CONFIG, SPACE, tmp_path, **options)
    assert [trial.state for trial in trials] == ["complete"] * count


def test_a_trial_of_a_living_process_is_waited_for_and_that_of_a_killed_one_taken_up(tmp_path):
    def stop(step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search.search(CONFIG, GRID, tmp_path, method="grid", progress=stop)
    owner = Victim(claim_forever, tmp_path / "runs.jsonl", "trial-0")
    assert owner.hear()
    other = Victim(search_trials, CONFIG, GRID, tmp_path, {"method": "grid", "prune": True})
    heard = [other.hear() for _ in range(3 * CONFIG.runs * CONFIG.epochs)]
    assert {trial for trial, _, _ in heard} == {1, 2, 3}
    assert not other.ear.poll(2.0), "neither at work nor at its end"
    owner.kill()
    rest, code = other.end()
    assert code == 0
    assert {trial for trial, _, _ in rest} == {0}
    owner.end()


def test_processes_share_the_runs_of_finalists(tmp_path):
    found = search.search(CONFIG, GRID, tmp_path, method="grid", trials=2)
    both = [Victim(search_finalists, found, tmp_path, {"finalists": 2, "runs": 6}) for _ in range(2)]
    heard = [[*dict.fromkeys((trial, run) for trial, run, _ in victim.end()[0])] for victim in both]
    assert sorted([*heard[0], *heard[1]]) == [(trial, run) for trial in range(2) for run in range(2, 6)]
    assert all(heard), "neither only waits for the other"


def test_a_search_goes_on_from_the_preset_that_it_wrote(tmp_path):
    config = replace(CONFIG, model="pgnn", model_options={"p": 1.5, "K": 2})
    space = {"lr": [0.01, 0.02], "p": Range(1.0, 2.0), "num_nodes": [60, 80]}
    search.search(config, space, tmp_path, trials=1)
    wrote = replace(config, lr=0.02, model_options={"p": 1.75, "K": 2}, data_options={"num_nodes": 80})
    assert len(search.search(wrote, space, tmp_path, trials=2)) == 2
    with pytest.raises(ValueError, match=r"model_options .*'K': 2.*now .*'K': 3"):
        search.search(replace(config, model_options={"K": 3}), space, tmp_path, trials=2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"config": replace(CONFIG, epochs=7)}, r"config.epochs 6, now 7"),
        ({"space": {**GRID, "dropout": [0.5]}}, r"space.dropout None, now \[0.5\]"),
        ({"prune": False}, "prune True, now False"),
        ({"window": 2}, "window 1, now 2"),
    ],
)
def test_a_folder_keeps_one_search(tmp_path, change, words):
    arguments = {"config": CONFIG, "space": GRID, "method": "grid", "trials": 1, "prune": True}
    search.search(out=tmp_path, **arguments)
    with pytest.raises(ValueError, match=f"use another folder; .* other settings: .*{words}"):
        search.search(out=tmp_path, **(arguments | change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": "genetic"}, "unknown method 'genetic'; known are tpe"),
        ({"storage": "redis"}, "unknown storage 'redis'; known are journal"),
        ({"trials": 0}, "trials and runs >= 1, got 0"),
        ({"window": 0}, "a window of 1 to 6 epochs, got 0"),
        ({"window": 7}, "a window of 1 to 6 epochs, got 7"),
        ({"space": {}, "trials": 2}, "nothing varies"),
        ({"space": {"lr": []}}, "no values for lr"),
        ({"space": {"lr": Range(0.0, 1.0, log=True)}}, "above 0 if log"),
        ({"space": {"lr": Range(1.0, 1.0)}}, "from low to high for lr"),
        ({"method": "grid"}, "a grid needs lists of values, got a range for lr"),
        ({"space": {"colour": [1]}}, "mlp on csbm has nothing called 'colour'; it has lr"),
        ({"space": {"seed": [1]}}, "has nothing called 'seed'; it has (?!.*seed)"),
        ({"space": {"schedule": ["up"]}}, "unknown schedule"),
        ({"space": {"lr": [-1.0, 0.1]}}, "at least 0 for lr, got -1.0"),
        ({"space": {"weight_decay": Range(-1.0, 0.1)}}, "at least 0 for weight_decay, got -1.0"),
        ({"space": {"patience": [5, 0]}}, "at least 1 for patience, got 0"),
        ({"space": {"patience": ["abc"]}}, "at least 1 for patience, got 'abc'"),
    ],
)
def test_mistakes_are_named_before_anything_is_written(tmp_path, change, words):
    arguments = {"config": CONFIG, "space": SPACE, "out": tmp_path / "out", **change}
    with pytest.raises(ValueError, match=f"search: .*{words}"):
        search.search(**arguments)
    assert list(tmp_path.iterdir()) == []


def test_per_band_p_is_refused_where_there_is_one_band():
    config = TrainConfig(model="pl-ufg2")
    with pytest.raises(ValueError, match="pl-ufg1 and pl-fufg, which smooth every band, got pl-ufg2"):
        per_band(config, wide(config))


def made_up(count):
    trials = []
    for number in range(count):
        lr, theta = 10.0 ** (-number % 4 - 1), "node" if number % 2 else "band"
        # lr decides, theta hardly does.
        value = 0.5 + 0.1 * (number % 4) + 0.001 * (theta == "node")
        trials.append(Trial(number, {"lr": lr, "theta": theta}, CONFIG, "complete", value, 0.01, 0.5, 1.0))
    return trials


def test_importance_finds_what_decides():
    weights = importances(made_up(40))
    assert list(weights) == ["lr", "theta"]
    assert importances(made_up(2)) == {}


@pytest.mark.parametrize("count", [0, 1, 20])
def test_pictures_and_tables_are_made_of_any_number_of_trials(tmp_path, count):
    trials = made_up(count)
    draw(trials, tmp_path / "search.png", "a search")
    assert (tmp_path / "search.png").read_bytes().startswith(b"\x89PNG")
    write_table(trials, tmp_path / "trials.csv")
    with (tmp_path / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    values = [float(row["val_accuracy"]) for row in rows]
    assert len(rows) == count
    assert values == sorted(values, reverse=True)


def test_finalists_with_more_runs_decide_among_themselves(tmp_path):
    config = replace(CONFIG, runs=1)
    found = search.search(config, GRID, tmp_path, method="grid", prune=False)
    final = search.confirm(found, tmp_path, finalists=2, runs=3)
    best = sorted(found, key=Trial.rank)[:2]
    assert [trial.number for trial in final] == [trial.number for trial in best]
    assert runs(tmp_path) == sorted([(t.number, 0) for t in found] + [(t.number, r) for t in best for r in (1, 2)])
    entries = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    for trial in final:
        mine = [entry["val_accuracy"] for entry in entries if entry["trial"] == trial.number]
        assert trial.val_accuracy == pytest.approx(sum(mine) / 3)
        assert trial.config.runs == 3
    assert search.confirm(found, tmp_path, finalists=2, runs=3) == final, "read, not done again"


def test_a_finalist_whose_loss_is_not_finite_is_out(tmp_path, monkeypatch):
    found = search.search(replace(CONFIG, runs=1), GRID, tmp_path, method="grid", prune=False)
    once, first = search.run_once, min(found, key=Trial.rank)

    def diverge(config, run, *args, **options):
        if config.lr == first.config.lr and config.hidden_channels == first.config.hidden_channels:
            raise FloatingPointError("loss inf")
        return once(config, run, *args, **options)

    monkeypatch.setattr(search, "run_once", diverge)
    final = search.confirm(found, tmp_path, finalists=3, runs=2)
    assert len(final) == 2
    assert first.number not in {trial.number for trial in final}
