"""Training: what is chosen, repeated and written down."""

import json
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from plufg_fast.data import Split, csbm, split
from plufg_fast.experiments.train import TrainConfig, fit, mean_and_std, train
from plufg_fast.nn.models import MODELS, build


@pytest.fixture
def data():
    return csbm(120, 6, avg_degree=6.0, phi=0.5, seed=0)


class Scripted(nn.Module):
    """Answers by a script: which nodes it is right on in each evaluation, and how sure it is."""

    def __init__(self, label, script):
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


def scripted(data, val, test, margins):
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


@pytest.mark.parametrize("name", MODELS)
def test_same_seed_same_bits(name, data):
    masks = split(data, "random", 0)
    model = build(name, data, hidden_channels=8)
    first = fit(model, data, masks, epochs=4, seed=7)
    torch.rand(13)  # nobody's business
    again = fit(build(name, data, hidden_channels=8), data, masks, epochs=4, seed=7)
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
    result = fit(build("mlp", data), data, split(data), epochs=3, progress=lambda *step: seen.append(step))
    assert seen == list(enumerate(result.val_accuracies, start=1))


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
    train(config, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [(line["run"], line["seed"]) for line in lines] == [(0, 5), (1, 6)] * 2
    for line, result in zip(lines, results, strict=False):
        assert TrainConfig(**line["config"]) == config
        assert line["result"]["test_accuracy"] == result.test_accuracy
        assert line["result"]["train_loss"] == result.train_loss
        assert line["result"]["seconds"] > 0
        assert line["nodes"] == {"train": 16, "val": 8, "test": 56}
        assert line["versions"]["torch"] == torch.__version__
        assert line["versions"].keys() >= {"plufg_fast", "python", "torch_geometric", "numpy"}
    # The same configuration again: another time, the same outcome.
    for a, b in zip(lines[:2], lines[2:], strict=True):
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

    def spy(data, kind, seed):
        drawn.append((kind, seed))
        return split(data, kind, seed)

    monkeypatch.setattr("plufg_fast.experiments.train.split", spy)
    for kind in ("random", "released"):
        train(TrainConfig(model="mlp", split=kind, runs=2, seed=3, epochs=1, data_options={"num_nodes": 60}))
    assert drawn == [("random", 3), ("random", 4), ("released", None), ("released", None)]


def test_standard_deviation_is_the_samples_own():
    assert mean_and_std([1.0, 3.0]) == (2.0, pytest.approx(math.sqrt(2)))
    assert mean_and_std([5.0]) == (5.0, 0.0)
