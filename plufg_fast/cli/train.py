"""``plufg train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from .configuration import (
    Dataset,
    Dropout,
    Epochs,
    Hidden,
    LargestComponent,
    LearningRate,
    LearnP,
    Model,
    Mu,
    Nodes,
    Normalize,
    Options,
    Overall,
    P,
    Patience,
    Phi,
    PresetName,
    Rates,
    Root,
    SaveEvery,
    Schedule,
    Seed,
    SelfLoops,
    SplitKind,
    Undirected,
    WeightDecay,
    configuration,
)
from .console import consoles, epoch_line, fail, progress_bar, readable


def train(
    ctx: typer.Context,
    dataset: Dataset = "csbm",
    model: Model = "pl-ufg2",
    preset: PresetName = None,
    split: SplitKind = "random",
    rates: Rates = None,
    overall: Overall = False,
    runs: Annotated[int, typer.Option(min=1, help="Runs; run r uses the seed SEED + r.")] = 10,
    seed: Seed = 0,
    epochs: Epochs = 200,
    patience: Patience = None,
    lr: LearningRate = 0.01,
    schedule: Schedule = "constant",
    weight_decay: WeightDecay = 5e-4,
    hidden: Hidden = 32,
    dropout: Dropout = None,
    p: P = None,
    learn_p: LearnP = False,
    mu: Mu = None,
    option: Options = None,
    phi: Phi = None,
    nodes: Nodes = None,
    undirected: Undirected = False,
    normalize: Normalize = False,
    largest_component: LargestComponent = False,
    self_loops: SelfLoops = False,
    root: Root = None,
    out: Annotated[Path, typer.Option(help="Folder for results.jsonl, one line per run.")] = Path("out/train"),
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Folder for the networks at their best epochs.", show_default="not kept"),
    ] = None,
    save_every: SaveEvery = 100,
) -> None:
    """Train a model on a dataset and report its test accuracy.

    The epoch is chosen by validation accuracy alone.
    Without --dataset it trains on a generated contextual stochastic block model.
    Runs that are in results.jsonl already are not repeated; one that was interrupted goes on where it was saved.
    """
    stdout, stderr = consoles()
    with readable(stderr, resumable=True):
        from ..experiments import train as experiment

        config = configuration(ctx)
        with progress_bar(stderr, "{task.description}", "{task.fields[now]}") as bar:
            task = bar.add_task("loading", total=runs * config.epochs, now="")

            def progress(run: int) -> experiment.Progress:
                def step(epoch: experiment.Epoch) -> None:
                    bar.update(task, completed=run * config.epochs + epoch.number, now=epoch_line(epoch))

                bar.update(task, description=f"run {run + 1} of {runs}")
                return step

            results = experiment.train(config, out, progress, checkpoints=checkpoint, save_every=save_every)
    _report(stdout, config, results, out)
    if len(results) < config.runs:
        raise fail(
            f"{config.runs - len(results)} of {config.runs} runs failed, see above; the same command tries them again"
        )


def _report(console: Console, config: Any, results: list[Any], out: Path) -> None:
    from rich.table import Table

    from ..experiments.train import mean_and_std

    table = Table(title=f"{config.model} on {config.dataset}, {config.split} split, {len(results)} runs")
    for name in ("", "accuracy", "± std"):
        table.add_column(name, justify="left" if name == "" else "right")
    for name, field in (
        ("train", "train_accuracy"),
        ("validation", "val_accuracy"),
        ("test", "test_accuracy"),
        ("test, corrected for class shares", "corrected_test_accuracy"),
    ):
        mean, std = mean_and_std([getattr(result, field) for result in results])
        table.add_row(name, f"{mean:.2%}", f"{std:.2%}", style="bold" if name == "test" else "")
    majority, _ = mean_and_std([result.majority_accuracy for result in results])
    table.add_row("largest class of the test nodes", f"{majority:.2%}", "", style="dim")
    console.print(table)
    if results[0].learned_p is not None:
        bands = zip(*(result.learned_p for result in results), strict=True)
        shown = ", ".join("{:.3f} ± {:.3f}".format(*mean_and_std(values)) for values in bands)
        console.print(f"learned p: {shown}", soft_wrap=True)
    epoch = sum(result.seconds for result in results) / sum(result.epochs for result in results)
    console.print(f"{1000 * epoch:.1f} ms per epoch; every run is a line of {out / 'results.jsonl'}", soft_wrap=True)
