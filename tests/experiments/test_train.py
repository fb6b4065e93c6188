"""Training: what is chosen, repeated and written down."""

import inspect
import json
import math
import random
import time
from dataclasses import asdict, replace
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from killing import Victim, train_runs
from torch import Tensor, nn
from torch_geometric.data import Data

from plufg_fast.data import Split, csbm, split
from plufg_fast.experiments import train as training
from plufg_fast.experiments.train import (
    TrainConfig,
    checkpoint_path,
    fit,
    load_checkpoint,
    load_data,
    mean_and_std,
    run_key,
    train,
)
from plufg_fast.label_shift import Corrected, correct
from plufg_fast.nn.models import MODELS, build


@pytest.fixture
def data():
    return csbm(120, 6, avg_degree=6.0, phi=0.5, seed=0)


class Scripted(nn.Module):
    """Answers by a script: which nodes it is right on in each evaluation, and how sure it is."""

    def __init__(self, label: Tensor, script: list[tuple[Tensor, float]]) -> None:
        super().__init__()
        self.label, self.script, self.calls = label, script, 0
        self.weight = nn.Parameter(torch.zeros(()))

    def reset_parameters(self):
        self.calls = 0

    def forward(self, x, edge_index, edge_weight=None):
        if self.training:
            return F.log_softmax(self.weight * x[:, :2], dim=-1)
        right, margin = self.script[self.calls]
        self.calls += 1
        answer = torch.where(right, self.label, 1 - self.label)
        return F.log_softmax(margin * F.one_hot(answer, 2).float(), dim=-1)


def scripted(data: Data, val: list[int], test: list[int], margins: list[float]) -> tuple[nn.Module, Split]:
    """A model right on the first ``val[t]`` validation and ``test[t]`` test nodes, and the split for it."""
    part = torch.arange(120) // 40
    masks = Split(part == 0, part == 1, part == 2)
    place = torch.arange(120) % 40
    script = [
        ((part == 1) & (place < v) | (part == 2) & (place < t), m) for v, t, m in zip(val, test, margins, strict=True)
    ]
    return Scripted(data.y, script), masks


def test_the_best_epoch_is_chosen_by_validation_not_by_test(data):
    model, masks = scripted(data, val=[10, 30, 20], test=[40, 5, 39], margins=[1.0, 1.0, 1.0])
    result = fit(model, data, masks, epochs=3)
    assert result.best_epoch == 2
    assert result.val_accuracy == 30 / 40
    assert result.test_accuracy == 5 / 40


def test_what_is_corrected_is_what_the_network_said_at_its_best_epoch(data, monkeypatch):
    monkeypatch.setattr(training, "correct", lambda out, *_: Corrected(out, torch.ones(2)))
    model, masks = scripted(data, val=[10, 30, 20], test=[40, 5, 39], margins=[1.0, 1.0, 1.0])
    assert fit(model, data, masks, epochs=3).corrected_test_accuracy == 5 / 40


def test_equal_validation_accuracy_is_decided_by_validation_loss(data):
    # 30 of 40 right: a small margin costs less on the wrong ones than a large one, and 1 less than 0.1.
    model, masks = scripted(data, val=[30, 30, 30], test=[1, 2, 3], margins=[0.1, 1.0, 9.0])
    result = fit(model, data, masks, epochs=3)
    assert result.val_loss[1] == min(result.val_loss)
    assert (result.best_epoch, result.test_accuracy) == (2, 2 / 40)


def test_a_full_tie_keeps_the_first_epoch(data):
    model, masks = scripted(data, val=[30, 30], test=[1, 40], margins=[1.0, 1.0])
    assert fit(model, data, masks, epochs=2).best_epoch == 1


def test_patience_counts_epochs_without_a_better_one(data):
    model, masks = scripted(data, val=[10, 20, 5, 5, 5, 40], test=[0] * 6, margins=[1.0] * 6)
    result = fit(model, data, masks, epochs=6, patience=2)
    assert (result.epochs, result.best_epoch) == (4, 2)


def test_the_network_is_left_at_its_best_epoch(data):
    masks = split(data, "random", 0, rates=(0.4, 0.3))
    model = build("mlp", data, hidden_channels=4)
    result = fit(model, data, masks, epochs=40, lr=0.05)
    assert result.best_epoch < 40, "the test needs a network that was better before"
    model.eval()
    with torch.no_grad():
        out = model(data.x, data.edge_index)
    assert float((out.argmax(1) == data.y)[masks.val].double().mean()) == result.val_accuracy
    assert float((out.argmax(1) == data.y)[masks.test].double().mean()) == result.test_accuracy
    corrected = correct(out, data.y, masks).log_prob.argmax(1)
    assert float((corrected == data.y)[masks.test].double().mean()) == result.corrected_test_accuracy


class Told(nn.Module):
    """Keeps which labels it is told, and which of its answers are trained."""

    takes_labels = True

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(classes))
        self.known: dict[bool, list[Tensor]] = {True: [], False: []}
        self.trained: list[Tensor] = []

    def reset_parameters(self):
        pass

    def forward(self, x, edge_index, edge_weight=None, known=None):
        self.known[self.training].append(known)
        out = self.weight.expand(len(x), -1).clone()
        if self.training:
            out.register_hook(lambda grad: self.trained.append(grad.abs().sum(1) > 0))
        return F.log_softmax(out, dim=-1)


def test_no_node_is_trained_on_a_class_that_it_is_told(data):
    masks = split(data, "random", 0)
    model = Told(2)
    fit(model, data, masks, epochs=6)
    for known, trained in zip(model.known[True], model.trained, strict=True):
        told = known >= 0
        assert torch.equal(known[told], data.y[told])
        assert int(told.sum()) == int(masks.train.sum()) // 2
        assert torch.equal(told ^ trained, masks.train)
        assert not (told & trained).any()
    assert any(not torch.equal(model.trained[0], other) for other in model.trained[1:])
    # Judged as it will be used: it knows the training nodes, and neither validation nor test nodes.
    assert all(torch.equal(known, torch.where(masks.train, data.y, -1)) for known in model.known[False])


def test_a_single_training_node_is_trained_on_and_not_told(data):
    one = torch.arange(120) == 5
    model = Told(2)
    fit(model, data, Split(one, torch.arange(120) > 60, torch.arange(120) > 60), epochs=2)
    assert all(torch.equal(trained, one) for trained in model.trained)
    assert not any((known >= 0).any() for known in model.known[True])


@pytest.mark.parametrize("name", [*MODELS, "labels"])
def test_same_seed_same_bits(name, data):
    masks = split(data, "random", 0)
    name, options = ("pl-ufg2", {"labels": True}) if name == "labels" else (name, {})
    model = build(name, data, hidden_channels=8, **options)
    first = fit(model, data, masks, epochs=4, seed=7)
    torch.rand(13)  # nobody's business
    again = fit(build(name, data, hidden_channels=8, **options), data, masks, epochs=4, seed=7)
    assert first.train_loss == again.train_loss
    assert first.val_loss == again.val_loss
    assert fit(model, data, masks, epochs=4, seed=8).train_loss != first.train_loss


def test_edge_weights_of_the_graph_are_used(data):
    masks = split(data, "random", 0)
    model = build("gcn", data, hidden_channels=8)
    plain = fit(model, data, masks, epochs=2)
    data.edge_weight = 1.0 + data.edge_index.sum(0).float()
    assert fit(model, data, masks, epochs=2).train_loss != plain.train_loss


def test_progress_sees_every_epoch(data):
    seen = []
    result = fit(build("mlp", data), data, split(data), epochs=3, progress=seen.append)
    assert [epoch.number for epoch in seen] == [1, 2, 3]
    assert [epoch.train_loss for epoch in seen] == result.train_loss
    assert [epoch.val_accuracy for epoch in seen] == result.val_accuracies
    assert seen[-1].best_val_accuracy == result.val_accuracy
    assert seen[result.best_epoch - 1].train_accuracy == result.train_accuracy


def test_a_loss_that_is_not_a_number_stops_the_fit(data):
    data.x[0] = math.nan
    with pytest.raises(FloatingPointError, match="epoch 1"):
        fit(build("gcn", data), data, split(data), epochs=3)


@pytest.mark.parametrize("bad", [{"epochs": 0}, {"patience": 0}])
def test_fit_refuses_bad_numbers(data, bad):
    with pytest.raises(ValueError, match="fit"):
        fit(build("mlp", data), data, split(data), **bad)


def test_every_run_is_a_complete_json_line(tmp_path):
    config = TrainConfig(
        model="gprgnn",
        runs=2,
        seed=5,
        epochs=3,
        model_options={"K": 3},
        data_options={"num_nodes": 80, "phi": -0.5},
    )
    results = train(config, tmp_path)
    train(config, tmp_path / "again")
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [(line["run"], line["seed"]) for line in lines] == [(0, 5), (1, 6)]
    for line, result in zip(lines, results, strict=True):
        assert TrainConfig(**line["config"]) == config
        assert line["result"]["test_accuracy"] == result.test_accuracy
        assert line["result"]["train_loss"] == result.train_loss
        assert line["result"]["seconds"] > 0
        assert line["nodes"] == {"train": 16, "val": 8, "test": 56}
        assert line["versions"]["torch"] == torch.__version__
        assert line["versions"].keys() >= {"plufg_fast", "python", "torch_geometric", "numpy"}
    # The same configuration again: another time, the same outcome.
    repeated = [json.loads(line) for line in (tmp_path / "again" / "results.jsonl").read_text().splitlines()]
    for a, b in zip(lines, repeated, strict=True):
        assert a["result"] | {"seconds": 0} == b["result"] | {"seconds": 0}


def test_a_run_is_on_disk_before_the_next_one_starts(tmp_path):
    seen = []

    def progress(run):
        path = tmp_path / "results.jsonl"
        seen.append(len(path.read_text().splitlines()) if path.exists() else 0)
        return lambda *_: None

    train(TrainConfig(model="mlp", runs=3, epochs=1, data_options={"num_nodes": 60}), tmp_path, progress)
    assert seen == [0, 1, 2]


def test_runs_differ_in_split_and_parameters_unless_the_split_is_the_released_one(monkeypatch):
    drawn = []

    def spy(data, kind, seed, **options):
        drawn.append((kind, seed))
        return split(data, kind, seed)

    monkeypatch.setattr("plufg_fast.experiments.train.split", spy)
    for kind in ("random", "released"):
        train(TrainConfig(model="mlp", split=kind, runs=2, seed=3, epochs=1, data_options={"num_nodes": 60}))
    assert drawn == [("random", 3), ("random", 4), ("released", None), ("released", None)]


def test_standard_deviation_is_the_samples_own():
    assert mean_and_std([1.0, 3.0]) == (2.0, pytest.approx(math.sqrt(2)))
    assert mean_and_std([5.0]) == (5.0, 0.0)


SMALL = TrainConfig(model="pl-ufg2", runs=3, epochs=12, hidden_channels=8, data_options={"num_nodes": 60})


@pytest.fixture
def one_thread():
    """Sums of a matrix product may depend on the number of threads; victims have one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def without_time(results):
    return [replace(result, seconds=0.0) for result in results]


def count_fits(monkeypatch):
    fitted = []
    monkeypatch.setattr(
        "plufg_fast.experiments.train.fit", lambda *args, **kw: (fitted.append(kw["seed"]), fit(*args, **kw))[1]
    )
    return fitted


def test_finished_runs_are_read_and_not_repeated(tmp_path, monkeypatch):
    fitted = count_fits(monkeypatch)
    first = train(replace(SMALL, runs=2), tmp_path)
    assert train(replace(SMALL, runs=2), tmp_path) == first
    assert fitted == [0, 1]
    more = train(SMALL, tmp_path)
    assert more[:2] == first
    # The same runs under other numbers.
    assert train(replace(SMALL, data_options={"seed": 0, "num_nodes": 60}, seed=1, runs=2), tmp_path) == more[1:]
    assert fitted == [0, 1, 2]


@pytest.mark.parametrize("change", [{"lr": 0.02}, {"epochs": 13}, {"model_options": {"p": 2.0}}, {"split": "released"}])
def test_another_configuration_is_another_run(tmp_path, monkeypatch, change):
    fitted = count_fits(monkeypatch)
    config = replace(SMALL, runs=1)
    train(config, tmp_path)
    train(replace(config, **change), tmp_path)
    assert fitted == [0, 0]


def test_names_in_capitals_make_no_other_run():
    loud = TrainConfig(dataset="CSBM", model="PL-UFG2", split="Random", schedule="Constant")
    assert loud == TrainConfig()
    assert run_key(loud, 0) == run_key(TrainConfig(), 0)


def test_another_fold_is_another_run():
    # Not a generated graph, which would be another one for another seed.
    whole = replace(SMALL, dataset="texas", data_options={})
    assert run_key(whole, 1) == run_key(replace(whole, seed=whole.seed + 1), 0)
    folds = replace(whole, split_options={"cross_validate": True})
    assert run_key(folds, 1) != run_key(replace(folds, seed=folds.seed + 1), 0), "other validation nodes"


def test_where_the_data_lie_makes_no_other_run():
    assert run_key(SMALL, 1) == run_key(replace(SMALL, root="elsewhere", runs=7), 1)


@pytest.mark.parametrize("schedule", ["constant", "cosine", "plateau"])
def test_an_interrupted_fit_goes_on_to_the_same_bits(data, tmp_path, schedule):
    masks = split(data, "random", 0)
    options = {"epochs": 11, "seed": 3, "lr": 0.05, "schedule": schedule}
    network = {"hidden_channels": 8, "p": 1.5, "learn_p": True, "labels": True}
    whole = build("pl-ufg1", data, **network)
    expected = fit(whole, data, masks, **options)

    def stop(epoch):
        if epoch.number == 8:
            raise KeyboardInterrupt

    state = tmp_path / "state.pt"
    model = build("pl-ufg1", data, **network)
    with pytest.raises(KeyboardInterrupt):
        fit(model, data, masks, **options, state=state, save_every=3, progress=stop)
    torch.rand(5)
    seen = []
    model = build("pl-ufg1", data, **network)
    result = fit(model, data, masks, **options, state=state, save_every=3, progress=seen.append)
    assert [epoch.number for epoch in seen] == [7, 8, 9, 10, 11]
    assert without_time([result]) == without_time([expected])
    assert result.learned_p != [1.5]
    for name, value in whole.state_dict().items():
        assert torch.equal(value, model.state_dict()[name])
    assert list(tmp_path.iterdir()) == [state]


def test_a_saved_fit_that_was_about_to_stop_stops(data, tmp_path):
    model, masks = scripted(data, val=[10, 20, 5, 5, 5, 40], test=[0] * 6, margins=[1.0] * 6)

    def stop(epoch):
        if epoch.number == 4:
            raise KeyboardInterrupt

    options = {"epochs": 6, "patience": 2, "state": tmp_path / "state.pt", "save_every": 4}
    with pytest.raises(KeyboardInterrupt):
        fit(model, data, masks, progress=stop, **options)
    assert fit(model, data, masks, **options).epochs == 4


def test_the_state_of_another_fit_is_refused(data, tmp_path):
    def stop(epoch):
        raise KeyboardInterrupt

    options = {"state": tmp_path / "state.pt", "save_every": 1, "epochs": 3}
    model, masks = build("mlp", data), split(data)
    with pytest.raises(KeyboardInterrupt):
        fit(model, data, masks, progress=stop, **options)
    with pytest.raises(ValueError, match=r"state\.pt is the state of a fit with .*0\.01.*got .*0\.5"):
        fit(model, data, masks, lr=0.5, **options)


class SeenAdam(torch.optim.Adam):
    """Tells what it is made with, and the learning rate of every step."""

    options: ClassVar[list[dict[str, Any]]] = []
    rates: ClassVar[list[float]] = []

    def __init__(self, params: Any, **options: Any) -> None:
        self.options.append(options)
        super().__init__(params, **options)

    def step(self, closure: Any = None) -> Any:
        self.rates.append(self.param_groups[0]["lr"])
        return super().step(closure)


@pytest.fixture
def adam(monkeypatch: pytest.MonkeyPatch) -> type[SeenAdam]:
    monkeypatch.setattr(torch.optim, "Adam", SeenAdam)
    SeenAdam.options.clear()
    SeenAdam.rates.clear()
    return SeenAdam


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("constant", [0.08, 0.08, 0.08, 0.08]),
        ("cosine", [0.08, 0.04 * (1 + math.sqrt(0.5)), 0.04, 0.04 * (1 - math.sqrt(0.5))]),
    ],
)
def test_rate_schedule_and_weight_decay_of_a_configuration_reach_the_optimiser(
    schedule: str, rates: list[float], adam: type[SeenAdam]
) -> None:
    graph = {"num_nodes": 60, "num_features": 4}
    train(TrainConfig(model="mlp", runs=1, epochs=4, lr=0.08, schedule=schedule, weight_decay=0.03, data_options=graph))
    assert [(made["lr"], made["weight_decay"]) for made in adam.options] == [(0.08, 0.03)]
    assert adam.rates == pytest.approx(rates, rel=1e-12)


def test_plateau_halves_the_learning_rate_when_the_validation_loss_stays(data: Data, adam: type[SeenAdam]) -> None:
    # The loss is lower in epoch 10 alone. 20 epochs may pass without a lower one; the next halves the rate.
    right = [30] * 9 + [35] + [30] * 43
    model, masks = scripted(data, val=right, test=[0] * 53, margins=[1.0] * 53)
    fit(model, data, masks, epochs=53, lr=0.1, schedule="plateau")
    assert adam.rates == pytest.approx([0.1] * 31 + [0.05] * 21 + [0.025])


def test_defaults_are_those_of_the_paper() -> None:
    assert asdict(TrainConfig()) == {
        "dataset": "csbm", "model": "pl-ufg2", "split": "random", "runs": 10, "seed": 0, "epochs": 200,
        "patience": None, "lr": 0.01, "schedule": "constant", "weight_decay": 5e-4, "hidden_channels": 32,
        "model_options": {}, "data_options": {}, "split_options": {}, "root": None,
    }  # fmt: skip
    defaults = {name: item.default for name, item in inspect.signature(fit).parameters.items()}
    same = ("epochs", "patience", "lr", "schedule", "weight_decay", "seed")
    assert {name: defaults[name] for name in same} == {name: getattr(TrainConfig(), name) for name in same}


@pytest.mark.parametrize("kept", [0, 100])
def test_a_state_that_a_power_cut_left_in_pieces_is_not_used(kept, data, tmp_path):
    def stop(epoch):
        raise KeyboardInterrupt

    options = {"state": tmp_path / "state.pt", "save_every": 1, "epochs": 3}
    masks = split(data)
    with pytest.raises(KeyboardInterrupt):
        fit(build("mlp", data), data, masks, progress=stop, **options)
    options["state"].write_bytes(options["state"].read_bytes()[:kept])
    with pytest.warns(UserWarning, match=r"state\.pt cannot be read and is not used"):
        found = fit(build("mlp", data), data, masks, **options)
    assert without_time([found]) == without_time([fit(build("mlp", data), data, masks, epochs=3)])


def test_a_run_whose_loss_is_not_finite_does_not_end_the_others(tmp_path, monkeypatch):
    once, broken, tried = training.run_once, {1, 2}, []

    def diverge(config, run, *args, **options):
        tried.append(run)
        if run in broken:
            raise FloatingPointError("loss inf")
        return once(config, run, *args, **options)

    monkeypatch.setattr(training, "run_once", diverge)
    config = replace(SMALL, runs=4)
    with pytest.warns(UserWarning, match=r"run 2 \(seed 2\) failed: loss inf"):
        found = train(config, tmp_path)
    assert [len(found), len((tmp_path / "results.jsonl").read_text().splitlines())] == [2, 2]
    assert tried == [0, 1, 2, 3]
    broken.clear()
    assert len(train(config, tmp_path)) == 4
    broken |= {*range(4)}
    with pytest.raises(FloatingPointError), pytest.warns(UserWarning, match="failed"):
        train(config, tmp_path / "other")


def test_a_folder_for_networks_that_cannot_be_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "run_once", None)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        train(SMALL, tmp_path / "out", checkpoints=tmp_path / "file")


def test_the_network_of_every_run_is_kept_and_loads_without_trusting_the_file(tmp_path, monkeypatch):
    fitted = count_fits(monkeypatch)
    config = replace(SMALL, runs=2)
    first = train(config, tmp_path)
    results = train(config, tmp_path, checkpoints=tmp_path / "networks")
    assert results == first, "the runs on record count; they are repeated for their networks only"
    assert train(config, tmp_path, checkpoints=tmp_path / "networks") == first
    assert fitted == [0, 1, 0, 1]
    graph = load_data(config)
    for run, result in enumerate(results):
        model, stored = load_checkpoint(checkpoint_path(tmp_path / "networks", config, run))
        assert stored == config
        masks = split(graph, "random", run)
        with torch.no_grad():
            right = model(graph.x, graph.edge_index).argmax(1) == graph.y
        assert float(right[masks.test].double().mean()) == result.test_accuracy
    assert len(list((tmp_path / "networks").iterdir())) == 2


def test_training_killed_at_random_points_goes_on_to_the_same_result(tmp_path, one_thread, monkeypatch):
    expected = train(SMALL)
    chance = random.Random(1)
    heard = []
    for _ in range(5):
        victim = Victim(train_runs, SMALL, tmp_path, 5)
        heard += [victim.hear() for _ in range(chance.randrange(1, 12))]
        time.sleep(chance.random() * 0.02)
        victim.kill()
        heard += victim.end()[0]
    rest, code = Victim(train_runs, SMALL, tmp_path, 5).end()
    assert code == 0
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert sorted(line["run"] for line in lines) == [0, 1, 2], "nothing lost, nothing done twice"
    monkeypatch.setattr("plufg_fast.experiments.train.fit", None)
    assert without_time(train(SMALL, tmp_path)) == without_time(expected)
    # At most the epochs since the last save are repeated, once per kill.
    assert sum(word is not None for word in heard) + len(rest) <= 3 * 12 + 5 * 5
    assert list((tmp_path / "unfinished").iterdir()) == []
    assert len(list((tmp_path / "networks").iterdir())) == 3


def test_a_run_killed_before_its_result_is_written_is_not_lost(tmp_path, monkeypatch):
    def die(*_):
        raise KeyboardInterrupt

    config = replace(SMALL, runs=1)
    with monkeypatch.context() as patch:
        patch.setattr("plufg_fast.experiments.records.Records.append", die)
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path, save_every=5)
    seen = []
    train(config, tmp_path, lambda run: seen.append, save_every=5)
    assert [epoch.number for epoch in seen] == [11, 12]
    assert list((tmp_path / "unfinished").iterdir()) == []


def test_processes_that_share_a_folder_share_the_runs(tmp_path):
    both = [Victim(train_runs, SMALL, tmp_path, 100) for _ in range(2)]
    heard = [word for victim in both for word in victim.end()[0]]
    assert sorted(heard) == [(run, epoch) for run in range(3) for epoch in range(1, 13)]
