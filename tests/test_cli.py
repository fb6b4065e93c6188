"""The command line."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import plufg_fast
from plufg_fast.cli import app


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
        ((), ["train", "info", "demo", "bench"]),
        (("train",), ["--dataset", "--model", "--split", "--root", "[default: 0.01]"]),
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


def test_train_passes_every_option_on(invoke, tmp_path):
    result = invoke(
        *TINY, "--model", "pgnn", "--p", 1.25, "--mu", 3, "--dropout", 0.1, "-o", "K=2", "--phi", -0.5,
        "--lr", 0.02, "--weight-decay", 0, "--seed", 9, "--split", "released", "--patience", 1,
        "--out", tmp_path,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    config = json.loads((tmp_path / "results.jsonl").read_text().splitlines()[0])["config"]
    assert config["model_options"] == {"p": 1.25, "mu": 3.0, "dropout": 0.1, "K": 2}
    assert config["data_options"] == {"phi": -0.5, "num_nodes": 60}
    assert (config["lr"], config["weight_decay"], config["seed"]) == (0.02, 0.0, 9)
    assert (config["split"], config["patience"], config["hidden_channels"]) == ("released", 1, 8)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--dataset", "core"), ["core", "csbm", "cora", "texas"]),
        (("--model", "gnc"), ["gnc", "pl-ufg2", "gprgnn"]),
        (("--split", "half"), ["half", "released", "geom-gcn"]),
        (("--model", "gcn", "--p", "1.5"), ["gcn has no option p", "dropout"]),
        (("--p", "-1"), ["p", "-1"]),
        (("-o", "theta"), ["KEY=VALUE", "theta"]),
        (("--normalize",), ["csbm does not take normalize_features"]),
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


def test_a_folder_without_the_dataset_is_a_message(invoke, tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    result = invoke("train", "--dataset", "cora", "--root", tmp_path / "empty")
    assert result.exit_code == 2
    assert "no cora in" in " ".join(result.stderr.split())


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
        "print([name for name in ('typer', 'rich', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "plufg_fast", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"plufg {plufg_fast.__version__}"
