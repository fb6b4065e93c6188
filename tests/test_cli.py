"""The command line."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from typer.testing import CliRunner
from webkb import write_webkb

import plufg_fast
from plufg_fast.cli import app
from plufg_fast.experiments import reproduce as reproducing
from plufg_fast.experiments import train as training
from plufg_fast.experiments.train import Result, TrainConfig

Invoke: TypeAlias = Callable[..., Any]


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("PLUFG_DATA", raising=False)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


TINY = ("train", "--nodes", 60, "--epochs", 2, "--runs", 2, "--hidden", 8)


def test_version(invoke):
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout.strip() == f"plufg {plufg_fast.__version__}"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ((), ["train", "search", "reproduce", "denoise", "plot", "info", "demo", "bench"]),
        (
            ("train",),
            ["--dataset", "--model", "--split", "--root", "[default: 0.01]", "--preset", "--checkpoint", "--schedule"],
        ),
        (
            ("train",),
            ["--learn-p", "--rates", "--overall", "--largest-component", "--save-every", "cornell-old"],
        ),
        (("search",), ["--dataset", "--method", "--trials", "--vary", "--only-vary", "--per-band-p", "--learn-p"]),
        (("search",), ["--storage", "--write-preset", "--no-prune", "[default: 100]", "validation accuracy alone"]),
        (("reproduce",), ["--datasets", "--models", "--runs", "--epochs", "--jobs", "--values", "learned-bands"]),
        (("reproduce",), ["heterophilic", "denoise", "isomap", "convergence", "[default: released]"]),
        (("denoise",), ["--datasets", "--models", "--runs", "--epochs", "--values", "the share flipped"]),
        (("plot",), ["RESULTS", "--out"]),
        (("info",), ["--json"]),
        (("demo",), ["--out"]),
        (("bench",), ["--out", "--only", "--quick", "--rounds", "--root", "--threads", "--list"]),
    ],
)
def test_help_names_commands_and_defaults(invoke, command, words):
    result = invoke(*command, "--help")
    assert result.exit_code == 0
    for word in words:
        assert word in result.stdout


def test_info_is_a_table_for_people_and_json_for_programs(invoke):
    facts = json.loads(invoke("info", "--json").stdout)
    assert plufg_fast.__version__ in json.dumps(facts)
    result = invoke("info")
    assert result.exit_code == 0
    assert plufg_fast.__version__ in result.stdout


@pytest.mark.parametrize("model", ["pl-ufg2", "GCN"])
def test_train_writes_results_and_prints_them_apart_from_progress(invoke, tmp_path, model):
    result = invoke(*TINY, "--model", model, "--out", tmp_path / "here")
    assert result.exit_code == 0, result.output
    assert "test" in result.stdout
    assert "largest class" in result.stdout
    assert "run 1 of 2" not in result.stdout
    lines = [json.loads(line) for line in (tmp_path / "here" / "results.jsonl").read_text().splitlines()]
    assert [line["config"]["model"] for line in lines] == [model.lower()] * 2


def test_without_a_terminal_long_work_says_how_far_it_is_in_lines(invoke, tmp_path, monkeypatch):
    monkeypatch.setattr("plufg_fast.cli.console._BETWEEN_LINES", 0.0)
    result = invoke(*TINY, "--out", tmp_path)
    lines = [line for line in result.stderr.splitlines() if "epoch" in line]
    assert "run 1 of 2  epoch    1" in lines[0]
    assert lines[-1].startswith("run 2 of 2")
    assert lines[-1].endswith(" left")
    monkeypatch.setattr("plufg_fast.cli.console._BETWEEN_LINES", 1e9)
    assert "epoch" not in invoke(*TINY, "--seed", 9, "--out", tmp_path).stderr, "what ends soon says nothing"


def test_train_passes_every_option_on(invoke, tmp_path):
    result = invoke(
        *TINY, "--model", "pgnn", "--p", 1.25, "--mu", 3, "--dropout", 0.1, "-o", "K=2", "--phi", -0.5,
        "--lr", 0.02, "--weight-decay", 0, "--seed", 9, "--split", "released", "--patience", 1,
        "--schedule", "cosine", "--learn-p", "--rates", "0.5,0.2", "--out", tmp_path, "--checkpoint", tmp_path / "kept",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    config = json.loads((tmp_path / "results.jsonl").read_text().splitlines()[0])["config"]
    assert config["model_options"] == {"p": 1.25, "learn_p": True, "mu": 3.0, "dropout": 0.1, "K": 2}
    assert (config["schedule"], config["split_options"]) == ("cosine", {"rates": [0.5, 0.2]})
    assert len(list((tmp_path / "kept").glob("csbm-pgnn-seed*.pt"))) == 2
    assert "learned p: 1.2" in result.stdout
    assert config["data_options"] == {"phi": -0.5, "num_nodes": 60}
    assert (config["lr"], config["weight_decay"], config["seed"]) == (0.02, 0.0, 9)
    assert (config["split"], config["patience"], config["hidden_channels"]) == ("released", 1, 8)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What ``plufg train`` asks for: nothing is trained, and two runs have finished with these accuracies."""
    asked: dict[str, Any] = {}

    def train(config: TrainConfig, out: Path, progress: object, **options: Any) -> list[Result]:
        asked.update(config=config, out=out, **options)
        losses: list[list[float]] = [[1.0], [1.0], [0.5]]
        return [Result(0.9, 0.8, test, 0.6, 0.25, 1, 1, 0.1, *losses) for test in (0.3, 0.35)]

    monkeypatch.setattr(training, "train", train)
    return asked


def test_without_options_train_has_the_defaults_of_the_package(invoke: Invoke, told: dict[str, Any]) -> None:
    result = invoke("train")
    assert told == {"config": TrainConfig(), "out": Path("out/train"), "checkpoints": None, "save_every": 100}
    # Two of the ten runs that were asked for have finished.
    assert (result.exit_code, "8 of 10 runs failed" in result.stderr) == (2, True)
    assert invoke("train", "--runs", 2).exit_code == 0


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--self-loops", {"self_loops": True}),
        ("--largest-component", {"largest_component": True}),
        ("--undirected", {"undirected": True}),
        ("--normalize", {"normalize_features": True}),
    ],
)
def test_what_is_done_to_a_graph_reaches_its_loading(
    invoke: Invoke, told: dict[str, Any], monkeypatch: pytest.MonkeyPatch, flag: str, expected: dict[str, bool]
) -> None:
    assert invoke("train", "--runs", 2, "--dataset", "texas", flag).exit_code == 0
    monkeypatch.setattr(training, "load", lambda name, root, **options: options)
    assert training.load_data(told["config"]) == expected


def test_train_prints_every_accuracy_under_its_name(invoke: Invoke, told: dict[str, Any]) -> None:
    lines = [line.split("│") for line in invoke("train").stdout.splitlines() if line.startswith("│")]
    rows = [[cell.strip() for cell in line[1:-1]] for line in lines]
    assert rows == [
        ["train", "90.00%", "0.00%"],
        ["validation", "80.00%", "0.00%"],
        ["test", "32.50%", "3.54%"],
        ["test, corrected for class shares", "60.00%", "0.00%"],
        ["largest class of the test nodes", "25.00%", ""],
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--dataset", "core"), ["core", "csbm", "cora", "texas"]),
        (("--model", "gnc"), ["gnc", "pl-ufg2", "gprgnn"]),
        (("--split", "half"), ["half", "released", "geom-gcn"]),
        (("--model", "gcn", "--p", "1.5"), ["gcn has no option p", "dropout"]),
        (("--p", "-1"), ["p", "-1"]),
        (("--p", "1,x"), ["numbers with commas", "--p", "1,x"]),
        (("--p", "1,2"), ["p must be one value for pl-ufg2, got 2"]),
        (("--schedule", "up"), ["up", "constant", "cosine"]),
        (("--rates", "0.5"), ["--rates TRAIN,VAL", "0.5"]),
        (("--rates", "0.5,0.5"), ["sum below 1"]),
        (("--split", "released", "--overall"), ["per_class=False", "released"]),
        (("--preset", "cora/gnc"), ["no 'cora/gnc'"]),
        (("-o", "theta"), ["KEY=VALUE", "theta"]),
        (("--p", "1.5", "-o", "p=2"), ["p is given twice"]),
        (("--normalize",), ["csbm does not take --normalize"]),
        (("--split", "public"), ["csbm", "public"]),
        (("--dataset", "cora", "--phi", "0.1"), ["cora does not take", "phi"]),
    ],
)
def test_a_mistake_is_answered_in_one_line_and_with_exit_code_2(invoke, tmp_path, arguments, words):
    size = () if "--dataset" in arguments else ("--nodes", 60)
    result = invoke("train", *size, "--epochs", 1, "--runs", 1, *arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    for word in words:
        assert word in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_where_an_error_came_from_is_shown_on_request(invoke, monkeypatch):
    monkeypatch.setenv("PLUFG_TRACEBACK", "1")
    result = invoke("train", "--nodes", 60, "--epochs", 1, "--dropout", 1)
    assert isinstance(result.exception, ValueError)
    assert "dropout must be at least 0 and below 1, got 1.0" in str(result.exception)


def test_train_repeats_nothing_that_is_on_record(invoke, tmp_path):
    first = invoke(*TINY, "--out", tmp_path)
    before = (tmp_path / "results.jsonl").read_text()
    again = invoke(*TINY, "--out", tmp_path)
    assert again.exit_code == 0, again.output
    assert again.stdout == first.stdout
    assert (tmp_path / "results.jsonl").read_text() == before


def test_p_may_be_one_per_band_given_or_learned(invoke, tmp_path):
    result = invoke(*TINY, "--model", "pl-fufg", "--p", "2,1.5,1", "--learn-p", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    line = json.loads((tmp_path / "results.jsonl").read_text().splitlines()[0])
    assert line["config"]["model_options"] == {"p": [2.0, 1.5, 1.0], "learn_p": True}
    assert len(line["result"]["learned_p"]) == 3


PRESET = """
dataset = "csbm"
model = "pgnn"
lr = 0.5
epochs = 3
[model_options]
p = 2.5
K = 2
[data_options]
num_nodes = 50
"""


def test_a_preset_counts_where_no_option_is_given(invoke, tmp_path):
    (tmp_path / "own.toml").write_text(PRESET)
    result = invoke("train", "--preset", tmp_path / "own.toml", "--runs", 1, "--p", 1.5, "--epochs", 2, "--out", "here")
    assert result.exit_code == 0, result.output
    config = json.loads((tmp_path / "here" / "results.jsonl").read_text())["config"]
    assert (config["model"], config["lr"], config["epochs"], config["runs"]) == ("pgnn", 0.5, 2, 1)
    assert config["model_options"] == {"p": 1.5, "K": 2}
    assert config["data_options"] == {"num_nodes": 50}


SEARCH = ("search", "--model", "pgnn", "--nodes", 60, "--epochs", 2, "--runs", 2, "--trials", 2, "--hidden", 8)


def test_search_writes_a_preset_that_train_takes(invoke, tmp_path, monkeypatch):
    from plufg_fast.experiments import presets

    monkeypatch.setattr(presets, "FOLDER", tmp_path / "presets")
    arguments = (*SEARCH, "--mu", 0.5, "--vary", "K=2,3", "--vary", "p=1..3", "--seed", 3, "--root", tmp_path)
    result = invoke(*arguments, "--write-preset")
    assert result.exit_code == 0, result.output
    assert "2 complete" in result.stdout
    assert "plufg train --preset csbm/pgnn" in result.stdout
    assert "trial 1, run" not in result.stdout
    folder = tmp_path / "out" / "search" / "csbm-pgnn-random"
    assert {"trials.csv", "search.png", "preset.toml", "runs.jsonl", "study.log"} <= {p.name for p in folder.iterdir()}
    config, found = presets.read("csbm/pgnn")
    assert config.model_options["mu"] == 0.5
    assert config.model_options["K"] in (2, 3)
    assert not float(config.model_options["p"]).is_integer(), "of a range whose ends are whole"
    assert config.hidden_channels == 8
    assert found["command"] == (
        "plufg search --model pgnn --trials 2 --vary K=2,3 --vary p=1..3 --runs 2 --seed 3"
        " --epochs 2 --hidden 8 --mu 0.5 --nodes 60"
    )
    again = invoke(*arguments, "--write-preset")
    assert again.exit_code == 0, again.output
    assert "csbm/pgnn stays as it is" in again.stdout
    trained = invoke("train", "--preset", "csbm/pgnn", "--runs", 1, "--seed", 3, "--out", tmp_path)
    assert trained.exit_code == 0, trained.output
    line = json.loads((tmp_path / "results.jsonl").read_text())
    runs = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    assert line["key"] in {run["key"] for run in runs}, "it is the very run that the search did"


def test_a_cross_validated_search_leaves_no_folds_in_its_preset(invoke, tmp_path):
    from plufg_fast.experiments import presets

    result = invoke(*SEARCH, "--split", "released", "--cross-validate", "--similar")
    assert result.exit_code == 0, result.output
    folder = tmp_path / "out" / "search" / "csbm-pgnn-released"
    config, found = presets.read(str(folder / "preset.toml"))
    assert config.split_options == {}
    assert found["cross_validated"]
    assert "--similar --cross-validate" in found["command"]
    runs = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    assert {json.dumps(run["config"]["split_options"]) for run in runs} == {'{"cross_validate": true}'}


def test_what_a_search_is_told_reaches_it(invoke, monkeypatch, tmp_path):
    from plufg_fast.experiments import presets
    from plufg_fast.experiments import search as experiment

    told = {}
    search, confirm = experiment.search, experiment.confirm
    monkeypatch.setattr(experiment, "search", lambda *a, **k: told.update(search=k) or search(*a, **k))
    monkeypatch.setattr(experiment, "confirm", lambda *a, **k: told.update(confirm=k) or confirm(*a, **k))
    alike = presets.read("texas/pgnn")[0]
    monkeypatch.setattr(presets, "of_similar_graphs", lambda config: [alike])
    result = invoke(*SEARCH, "--window", 2, "--similar", "--final-runs", 3)
    assert result.exit_code == 0, result.output
    assert (told["search"]["window"], told["confirm"]["window"]) == (2, 2)
    assert told["search"]["starts"] == [alike]
    monkeypatch.setattr(presets, "of_relatives", lambda config: [replace(alike, lr=0.04)])
    assert invoke(*SEARCH, "--similar", "--relatives", "--out", tmp_path / "other").exit_code == 0
    assert [item.lr for item in told["search"]["starts"]] == [0.04, alike.lr]


def test_flags_of_a_preset_can_be_switched_off(invoke, tmp_path):
    preset = 'dataset = "csbm"\nmodel = "pgnn"\nepochs = 1\n[model_options]\nlearn_p = true\n'
    (tmp_path / "own.toml").write_text(preset)
    result = invoke("train", "--preset", tmp_path / "own.toml", "--runs", 1, "--fixed-p", "--out", "here")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "here" / "results.jsonl").read_text())["result"]["learned_p"] is None
    write_webkb(tmp_path)
    (tmp_path / "own.toml").write_text('dataset = "texas"\nmodel = "mlp"\n[data_options]\nundirected = true\n')
    arguments = ("--preset", tmp_path / "own.toml", "--directed", "--root", tmp_path, "--epochs", 1, "--hidden", 8)
    result = invoke("search", *arguments, "--trials", 1, "--runs", 1, "--out", "searched")
    assert result.exit_code == 0, result.output
    run = json.loads((tmp_path / "searched" / "runs.jsonl").read_text())
    assert run["config"]["data_options"] == {"undirected": False}
    assert "--directed" in (tmp_path / "searched" / "preset.toml").read_text()


def test_finalists_of_a_search_make_the_preset(invoke, tmp_path):
    from plufg_fast.experiments import presets

    result = invoke(*SEARCH, "--final-runs", 3, "--finalists", 1)
    assert result.exit_code == 0, result.output
    assert "the best of 2 trials, 3 runs" in " ".join(result.stdout.split())
    found = presets.read(str(tmp_path / "out" / "search" / "csbm-pgnn-random" / "preset.toml"))[1]
    assert (found["runs"], found["trials"]) == (3, 2)


def test_a_search_says_at_once_on_which_split_and_what_varies(invoke):
    varied = ("--only-vary", "--vary", "lr=0.002..0.05:log", "--vary", "learn_p=true,false")
    result = invoke(*SEARCH, "--split", "geom-gcn", *varied)
    assert "pgnn on csbm, geom-gcn split: 2 trials of 2 runs" in " ".join(result.stderr.split()), "even where it fails"
    result = invoke(*SEARCH, *varied)
    said = "pgnn on csbm, random split: 2 trials of 2 runs, lr=0.002..0.05:log, learn_p=true,false"
    assert " ".join(result.stderr.split()).startswith(said)


def test_a_search_from_a_preset_varies_what_is_not_said(invoke, tmp_path):
    from plufg_fast.experiments import presets

    options = {"num_nodes": 60}
    preset = TrainConfig("csbm", "pgnn", epochs=1, model_options={"mu": 0.5, "p": 1.5, "K": 3}, data_options=options)
    presets.write(tmp_path / "own.toml", preset, {})
    result = invoke("search", "--preset", tmp_path / "own.toml", "--runs", 1, "--trials", 1, "--mu", 0.25)
    assert result.exit_code == 0, result.output
    header = (tmp_path / "out" / "search" / "csbm-pgnn-random" / "trials.csv").read_text().splitlines()[0].split(",")
    assert {"p", "K", "lr"} <= {*header}
    assert "mu" not in header


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--vary", "K=1.5..3"), ["whole numbers for K", "1.5..3"]),
        (("--vary", "K=2,2.5"), ["a whole number for K", "2.5"]),
        (("--method", "genetic"), ["unknown method 'genetic'", "tpe"]),
        (("--storage", "redis"), ["unknown storage 'redis'", "sqlite"]),
        (("--vary", "K"), ["--vary KEY=VALUE", "'K'"]),
        (("--vary", "mu=1..x"), ["--vary mu=LOW..HIGH", "1..x"]),
        (("--vary", "mu=1..2:exp"), ["LOW..HIGH:log", "1..2:exp"]),
        (("--vary", "colour=1,2"), ["pgnn on csbm has nothing called 'colour'"]),
        (("--only-vary",), ["nothing varies"]),
        (("--vary", "mu=1,x"), ["a number for mu", "'x'"]),
        (("--finalists", "2"), ["--final-runs"]),
        (("--final-runs", "1"), ["--final-runs above the", "got 1"]),
        (("--lr", "0.5", "--vary", "lr=0.01,0.02"), ["lr is given, and varies"]),
        (("-o", "K=2", "--vary", "K=2,3"), ["K is given, and varies"]),
        (("--per-band-p",), ["pl-ufg1 and pl-fufg", "pgnn"]),
        (("--method", "grid", "--vary", "mu=1..2"), ["a grid needs lists", "mu"]),
        (("--vary", "p=0.5,0.6"), ["p must be"]),
    ],
)
def test_a_mistake_in_a_search_is_answered_in_one_line(invoke, tmp_path, arguments, words):
    result = invoke(*SEARCH, *arguments)
    assert result.exit_code == 2, result.output
    for word in words:
        assert word in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_search_without_optuna_says_what_to_install(invoke, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    result = invoke(*SEARCH)
    assert result.exit_code == 2
    assert "pip install 'optuna>=5'" in " ".join(result.stderr.split())


REPRODUCE = ("reproduce", "heterophilic", "--models", "mlp,PL-UFG2", "--p", "1.5,learned", "--epochs", 2)


def test_reproduce_writes_a_report_that_names_its_command(invoke, tmp_path, monkeypatch):
    monkeypatch.setenv("PLUFG_CACHE", str(tmp_path / "cache"))
    root = write_webkb(tmp_path / "data")
    arguments = (*REPRODUCE, "--datasets", "texas,cornell", "--root", root, "--jobs", 1)
    result = invoke(*arguments, "--runs", 2)
    assert result.exit_code == 0, result.output
    folder = tmp_path / "out" / "reproduce"
    text = (folder / "heterophilic.md").read_text()
    options = "--datasets texas,cornell --models mlp,PL-UFG2 --p 1.5,learned --runs 2 --epochs 2"
    assert f"plufg reproduce heterophilic {options}\n" in text
    assert "pL-UFG2, p learned" in text
    assert str(tmp_path) not in text, "no path of a machine"
    assert "heterophilic.html" in result.stdout
    before = (folder / "results.jsonl").read_text()
    assert len(before.splitlines()) == 2 * 3 * 2
    more = invoke(*arguments, "--runs", 3)
    assert more.exit_code == 0, more.output
    after = (folder / "results.jsonl").read_text()
    assert after.startswith(before)
    assert len(after.splitlines()) == 2 * 3 * 3


@pytest.mark.parametrize("command", [("reproduce", "denoise"), ("denoise",)])
def test_what_is_to_be_reproduced_is_passed_on(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    asked: dict[str, Any] = {}

    def reproduce(experiment: str, out: Path, **options: Any) -> Path:
        asked.update(options, experiment=experiment, out=out)
        report = tmp_path / "report.md"
        report.write_text("")
        return report

    monkeypatch.setattr(reproducing, "reproduce", reproduce)
    result = invoke(
        *command, "--datasets", "texas,Cornell", "--models", "mlp", "--p", "1.5", "--values", "0.1,0.2", "--runs", 3,
        "--seed", 4, "--epochs", 5, "--patience", 6, "--split", "random", "--jobs", 7, "--no-presets",
        "--root", tmp_path, "--out", "here",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    del asked["progress"], asked["command"]
    assert asked == {
        "experiment": "denoise", "out": Path("here"), "datasets": ["texas", "cornell"], "models": ["mlp"],
        "ps": ["1.5"], "values": [0.1, 0.2], "runs": 3, "seed": 4, "epochs": 5, "patience": 6, "split": "random",
        "root": str(tmp_path), "use_presets": False, "jobs": 7,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("reproduce", "tables"), ["unknown experiment 'tables'", "homophilic"]),
        ((*REPRODUCE, "--datasets", "core"), ["unknown dataset 'core'", "cora"]),
        (("reproduce", "mu", "--values", "1,x"), ["numbers with commas", "--values"]),
        ((*REPRODUCE, "--datasets", "csbm", "--split", "half"), ["unknown kind 'half'", "released"]),
        ((*REPRODUCE, "--datasets", "csbm", "--split", "public", "--jobs", 2), ["csbm", "public"]),
    ],
)
def test_a_mistake_in_what_to_reproduce_is_answered_in_one_line(invoke, tmp_path, arguments, words):
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    for word in words:
        assert word in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_the_dataset_is_a_message(invoke, tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: mode != os.W_OK)
    (tmp_path / "empty").mkdir()
    for name, words in (("empty", "no cora in"), ("typo", "no folder")):
        result = invoke("train", "--dataset", "cora", "--root", tmp_path / name)
        assert result.exit_code == 2
        assert words in " ".join(result.stderr.split())


def test_demo_draws_a_picture(invoke, tmp_path, monkeypatch):
    from plufg_fast.experiments import demo

    full = demo.run
    monkeypatch.setattr(demo, "run", lambda *args: full(*args, runs=1, epochs=2, num_nodes=60))
    result = invoke("demo", "--out", tmp_path / "pictures")
    assert result.exit_code == 0, result.output
    assert "pL-UFG2" in result.stdout
    assert (tmp_path / "pictures" / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_importing_the_package_leaves_the_command_lines_libraries_alone():
    code = (
        "import sys, plufg_fast, plufg_fast.data;"
        "print([name for name in ('typer', 'rich', 'matplotlib', 'optuna') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "plufg_fast", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"plufg {plufg_fast.__version__}"


def test_true_and_false_are_taken_in_any_case_and_nothing_else_for_them(invoke, tmp_path):
    assert invoke(*TINY, "-o", "head=False", "--out", tmp_path).exit_code == 0
    assert json.loads((tmp_path / "results.jsonl").read_text().splitlines()[0])["config"]["model_options"] == {
        "head": False
    }
    for option, words in (("head=no", "true or false for head"), ("steps=2.5", "whole number"), ("mu=nan", "number")):
        result = invoke(*TINY, "-o", option)
        assert (result.exit_code, words in result.stderr) == (2, True)


def test_a_preset_of_another_network_is_named(invoke):
    result = invoke("train", "--preset", "texas/pl-ufg2", "--model", "gcn")
    assert result.exit_code == 2
    assert "the preset texas/pl-ufg2 is one for pl-ufg2, and not for gcn" in result.stderr
    result = invoke("train", "--dataset", "texas", "--nodes", 20)
    assert "texas does not take --nodes" in result.stderr


def test_what_a_preset_does_to_its_graph_is_not_done_to_a_generated_one(invoke, tmp_path):
    arguments = ("--dataset", "csbm", "--split", "random", "--epochs", 2, "--runs", 1, "--out", tmp_path)
    assert invoke("train", "--preset", "texas/pl-ufg2", *arguments).exit_code == 0
    assert json.loads((tmp_path / "results.jsonl").read_text())["config"]["data_options"] == {}


@pytest.mark.parametrize("given", ["folder", "file"])
def test_runs_on_record_are_drawn_one_picture_for_a_graph(invoke, tmp_path, given):
    for lr in (0.1, 0.01):
        invoke(*TINY, "--lr", lr, "--out", tmp_path)
    invoke(*TINY, "--phi", -0.5, "--model", "mlp", "--out", tmp_path)
    invoke(*TINY, "--phi", 0, "--out", tmp_path)
    invoke(*TINY, "--seed", 7, "--out", tmp_path)
    results = tmp_path if given == "folder" else tmp_path / "results.jsonl"
    result = invoke("plot", results, "--out", tmp_path / "pictures")
    assert result.exit_code == 0
    names = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert names == {
        f"runs-csbm-random-{traits}.png"
        for traits in ("num_nodes60", "phi-0.5-num_nodes60", "phi0.0-num_nodes60", "num_nodes60-seed7")
    }
    # Runs of a noisy graph differ in the draw of the noise.
    with (tmp_path / "results.jsonl").open() as file:
        entry = json.loads(file.readline())
    noisy = tmp_path / "noisy" / "results.jsonl"
    noisy.parent.mkdir()
    with noisy.open("w") as file:
        for seed in range(3):
            entry["config"]["data_options"] = {"noise": 0.1, "noise_seed": seed}
            file.write(json.dumps({**entry, "key": str(seed)}) + "\n")
    invoke("plot", noisy)
    assert [path.name for path in noisy.parent.glob("*.png")] == ["runs-csbm-random-noise0.1.png"]
    (tmp_path / "empty").mkdir()
    for place, words in (("nothing", "no file or folder"), ("empty", "no finished run")):
        result = invoke("plot", tmp_path / place)
        assert (result.exit_code, words in result.stderr) == (2, True)


def test_lines_are_told_apart_by_what_differs():
    from plufg_fast.experiments import history

    configs = [asdict(TrainConfig(model=model, lr=lr)) for model, lr in (("gcn", 0.1), ("gcn", 0.2), ("mlp", 0.1))]
    configs += [asdict(TrainConfig(model="sgc", epochs=epochs)) for epochs in (5, 200)]
    # What networks are compared by comes first, however they were given.
    options = ({"theta": "band", "p": 1.0}, {"theta": "node", "p": 2.0})
    configs += [asdict(TrainConfig(model="pl-ufg2", lr=i + 1, model_options=item)) for i, item in enumerate(options)]
    labels = history._labels(configs)
    assert [labels[history._identity(config)] for config in configs] == [
        "GCN, lr 0.1",
        "GCN, lr 0.2",
        "MLP",
        "SGC, epochs 5",
        "SGC, epochs 200",
        "pL-UFG2, p 1.0, theta band, lr 1",
        "pL-UFG2, p 2.0, theta node, lr 2",
    ]
    assert history._mean([[1.0, 2.0], [3.0]]) == [2.0, 2.0]
