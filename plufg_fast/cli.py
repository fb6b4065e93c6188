"""The ``plufg`` command. Results go to stdout, progress and messages to stderr."""

from __future__ import annotations

import json
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from .version import __version__

app = typer.Typer(
    name="plufg",
    help="p-Laplacian framelet graph networks on fused kernels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _consoles() -> tuple[Console, Console]:
    """Made per command, so that they follow a redirected stdout and stderr."""
    return Console(), Console(stderr=True)


def _fail(message: str) -> typer.Exit:
    Console(stderr=True).print(f"[bold red]Error:[/] {escape(message)}", highlight=False)
    return typer.Exit(2)


@contextmanager
def _readable(stderr: Console) -> Iterator[None]:
    """What a user can mend is one line without a traceback; warnings are one line each, said once."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        stderr.print(f"[yellow]Warning:[/] {escape(str(message))}", highlight=False)

    from .ops.backend import BackendError

    with warnings.catch_warnings():
        # A run repeats what the run before it warned of.
        warnings.simplefilter("once", UserWarning)
        warnings.showwarning = show
        try:
            yield
        except (ValueError, TypeError, OSError, FloatingPointError, BackendError) as error:
            raise _fail(str(error)) from None


def _print_version(value: bool) -> None:
    if value:
        print(f"plufg {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """p-Laplacian framelet graph networks on fused kernels."""


@app.command()
def info(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show what is installed and which backend serves: paste it into a bug report."""
    import plufg_fast

    facts = plufg_fast.info()
    if as_json:
        print(json.dumps(facts, indent=2, default=str))
        return
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in _flat(facts):
        table.add_row(escape(key.replace("_", " ")), escape(value))
    Console().print(table)


def _flat(facts: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Rows of nested facts: one per leaf, named by the way to it."""
    for key, value in facts.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key} · ")
        elif isinstance(value, (list, tuple)):
            yield f"{prefix}{key}", ", ".join(map(str, value)) or "none"
        elif isinstance(value, bool):
            yield f"{prefix}{key}", "yes" if value else "no"
        else:
            yield f"{prefix}{key}", "none" if value is None else str(value)


@app.command()
def train(
    dataset: Annotated[
        str,
        typer.Option(
            help="csbm (generated), cora, citeseer, pubmed, computers, photo, cs, physics,"
            " chameleon, squirrel, actor, wisconsin, texas or cornell."
        ),
    ] = "csbm",
    model: Annotated[
        str,
        typer.Option(help="pl-ufg1, pl-ufg2, pl-fufg, pgnn, ufg, mlp, gcn, sgc, gat, jknet, appnp or gprgnn."),
    ] = "pl-ufg2",
    split: Annotated[
        str,
        typer.Option(help="random (by class), released (the paper's), public (Planetoid's) or geom-gcn (ten)."),
    ] = "random",
    runs: Annotated[int, typer.Option(min=1, help="Runs; run r uses the seed SEED + r.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="First seed: parameters, dropout, split, generated graph.")] = 0,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of every run.")] = 200,
    patience: Annotated[
        int | None,
        typer.Option(min=1, help="Stop a run after so many epochs without a better one.", show_default="never"),
    ] = None,
    lr: Annotated[float, typer.Option(min=0, help="Learning rate of Adam.")] = 0.01,
    weight_decay: Annotated[float, typer.Option(min=0, help="L2 penalty on the parameters.")] = 5e-4,
    hidden: Annotated[int, typer.Option(min=1, help="Hidden channels.")] = 32,
    dropout: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of values dropped.", show_default="the model's")
    ] = None,
    p: Annotated[
        float | None, typer.Option(help="p of the p-Laplacian (pL models, pgnn).", show_default="the model's")
    ] = None,
    mu: Annotated[
        float | None,
        typer.Option(help="How strongly the p-solve holds on to its input.", show_default="the model's"),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="KEY=VALUE",
            show_default=False,
            help="Any other keyword of the model, such as -o framelet=haar or -o K=4. Repeatable.",
        ),
    ] = None,
    phi: Annotated[
        float | None,
        typer.Option(min=-1, max=1, help="Homophily of the csbm, from -1 to 1.", show_default="0.5"),
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=4, help="Nodes of the csbm.", show_default="1000")] = None,
    undirected: Annotated[
        bool, typer.Option("--undirected", help="Add the reverse of every edge of a directed dataset.")
    ] = False,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Scale the feature rows of a dataset to sum 1.")
    ] = False,
    root: Annotated[
        Path | None,
        typer.Option(
            envvar="PLUFG_DATA",
            help="Datasets in PyG's layout; may be read-only.",
            show_default="PyG downloads",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for results.jsonl, one line per run.")] = Path("out/train"),
) -> None:
    """Train a model on a dataset and report its test accuracy.

    The epoch is chosen by validation accuracy alone.
    Without --dataset it trains on a generated contextual stochastic block model.
    """
    stdout, stderr = _consoles()
    with _readable(stderr):
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        from .data import DATASETS, SPLITS
        from .experiments import train as experiment
        from .nn.models import MODELS, option_names

        for what, value, known in (
            ("dataset", dataset.lower(), ("csbm", *DATASETS)),
            ("model", model.lower(), tuple(MODELS)),
            ("split", split.lower(), SPLITS),
        ):
            if value not in known:
                raise ValueError(f"unknown {what} {value!r}; choose from {', '.join(known)}")
        model_options = {"dropout": dropout, "p": p, "mu": mu, **_parse(option or [])}
        model_options = {key: value for key, value in model_options.items() if value is not None}
        unknown = [key for key in model_options if key not in option_names(model)]
        if unknown:
            known = tuple(option_names(model))
            raise ValueError(f"{model} has no option {', '.join(unknown)}; it has {', '.join(known)}")
        generated = dataset.lower() == "csbm"
        only_csbm = {"phi": phi, "num_nodes": nodes}
        only_real = {"undirected": undirected or None, "normalize_features": normalize or None}
        data_options = {k: v for k, v in (only_csbm | only_real).items() if v is not None}
        misplaced = [key for key in data_options if key in (only_real if generated else only_csbm)]
        if misplaced:
            raise ValueError(f"{dataset} does not take {', '.join(misplaced)}")
        config = experiment.TrainConfig(
            dataset=dataset.lower(),
            model=model.lower(),
            split=split.lower(),
            runs=runs,
            seed=seed,
            epochs=epochs,
            patience=patience,
            lr=lr,
            weight_decay=weight_decay,
            hidden_channels=hidden,
            model_options=model_options,
            data_options=data_options,
            root=None if root is None or generated else str(root),
        )
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("val {task.fields[val]}"),
            TimeRemainingColumn(),
            console=stderr,
            transient=True,
        )
        with bar:
            task = bar.add_task("loading", total=runs * epochs, val="?")

            def progress(run: int) -> experiment.Progress:
                def step(epoch: experiment.Epoch) -> None:
                    bar.update(task, completed=run * epochs + epoch.number, val=f"{epoch.val_accuracy:6.1%}")

                bar.update(task, description=f"run {run + 1} of {runs}")
                return step

            results = experiment.train(config, out, progress)
    _report(stdout, config, results, out)


def _report(console: Console, config: Any, results: list[Any], out: Path) -> None:
    from rich.table import Table

    from .experiments.train import mean_and_std

    table = Table(title=f"{config.model} on {config.dataset}, {config.split} split, {len(results)} runs")
    for name in ("", "accuracy", "± std"):
        table.add_column(name, justify="left" if name == "" else "right")
    for name, field in (
        ("train", "train_accuracy"),
        ("validation", "val_accuracy"),
        ("test", "test_accuracy"),
    ):
        mean, std = mean_and_std([getattr(result, field) for result in results])
        table.add_row(name, f"{mean:.2%}", f"{std:.2%}", style="bold" if name == "test" else "")
    majority, _ = mean_and_std([result.majority_accuracy for result in results])
    table.add_row("largest class of the test nodes", f"{majority:.2%}", "", style="dim")
    console.print(table)
    epoch = sum(result.seconds for result in results) / sum(result.epochs for result in results)
    console.print(f"{1000 * epoch:.1f} ms per epoch; every run is a line of {out / 'results.jsonl'}", soft_wrap=True)


def _parse(pairs: list[str]) -> dict[str, Any]:
    """``key=value`` pairs, a value being a JSON literal where it is one and a string otherwise."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise ValueError(f"expected --option KEY=VALUE, got {pair!r}")
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = value
    return options


@app.command()
def demo(out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("out/demo")) -> None:
    """Train pL-UFG2, GCN and MLP on a homophilic and a heterophilic generated graph: under two minutes."""
    stdout, stderr = _consoles()
    with _readable(stderr):
        from .experiments.demo import run

        run(out, stdout, stderr)


@app.command()
def bench(
    out: Annotated[Path, typer.Option(help="Folder for bench.json and bench.png.")] = Path("out/bench"),
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="GROUP", help="Measure this group only; see --list. Repeatable.", show_default="all"),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny graphs, a few rounds: shows that it runs, in seconds.")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds of every case.", show_default="30, or 60 s; quick: 3")
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            envvar="PLUFG_DATA",
            help="Datasets in PyG's layout, for Computers and Cora.",
            show_default="generated graphs of their size",
        ),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch.")] = 2,
    show_groups: Annotated[bool, typer.Option("--list", help="List the groups and exit.")] = False,
) -> None:
    """Measure the operators beside torch, PyG, the reference and the released code, on this machine.

    Contestants take turns in one run; every result is compared with the reference before anything is timed.
    Tables show medians and quartiles, and ratios against their bars. A bar that is not met is no error.
    """
    stdout, stderr = _consoles()
    with _readable(stderr):
        from .bench.cases import Settings
        from .bench.run import GROUPS, describe, run

        if show_groups:
            for name in GROUPS:
                stdout.print(f"[bold]{name:<10}[/] {describe(name)}", highlight=False, soft_wrap=True)
            return
        settings = Settings(quick, rounds or (3 if quick else 30), threads, root)
        run(settings, out, only or (), stdout, stderr, command=shlex.join(["plufg", *sys.argv[1:]]))
