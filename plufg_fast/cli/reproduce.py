"""``plufg reproduce`` and ``plufg denoise``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .configuration import Root, Seed, SplitKind, command_line, numbers_of
from .console import consoles, progress_bar, readable

# Options of both.
Datasets = Annotated[
    str | None,
    typer.Option(metavar="NAME,…", help="Graphs, with commas between them.", show_default="the experiment's"),
]
Models = Annotated[
    str | None,
    typer.Option(metavar="NAME,…", help="Models, with commas between them.", show_default="the experiment's"),
]
Ps = Annotated[
    str | None,
    typer.Option(
        metavar="P,…",
        help="p of the models that have one: numbers, learned, bands (one per band), learned-bands, searched"
        " (the preset's).",
        show_default="the experiment's",
    ),
]
Values = Annotated[
    str | None,
    typer.Option(
        metavar="X,…",
        help="What a curve goes over: shares of flipped features, mu or p.",
        show_default="the experiment's",
    ),
]
Runs = Annotated[
    int | None,
    typer.Option(min=1, help="Runs; run r uses the seed SEED + r.", show_default="10; isomap, convergence: 1"),
]
MaybeEpochs = Annotated[
    int | None, typer.Option(min=1, help="Epochs of every run.", show_default="the preset's, or 200")
]
MaybePatience = Annotated[
    int | None,
    typer.Option(
        min=1, help="Stop a run after so many epochs without a better one.", show_default="the preset's, or never"
    ),
]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes, of one thread each.", show_default="one per core")]
Presets = Annotated[
    bool,
    typer.Option("--presets/--no-presets", help="Take settings from presets where there are any, or the defaults."),
]
Out = Annotated[Path, typer.Option(help="Folder for reports, pictures and results.jsonl.")]


def reproduce(
    ctx: typer.Context,
    experiment: Annotated[
        str,
        typer.Argument(metavar="EXPERIMENT", help="homophilic, heterophilic, denoise, isomap, mu, p or convergence."),
    ],
    datasets: Datasets = None,
    models: Models = None,
    p: Ps = None,
    values: Values = None,
    runs: Runs = None,
    seed: Seed = 0,
    epochs: MaybeEpochs = None,
    patience: MaybePatience = None,
    split: SplitKind = "released",
    jobs: Jobs = None,
    presets: Presets = True,
    root: Root = None,
    out: Out = Path("out/reproduce"),
) -> None:
    """Reproduce a table or a figure of the paper, beside the paper's figures: Markdown, HTML and pictures.

    Settings are those of the presets, and the defaults where there is none; the report says which.
    Stopped or killed and started again, it goes on where it was. All experiments share their runs.
    """
    _run(ctx, experiment)


def denoise(
    ctx: typer.Context,
    datasets: Datasets = None,
    models: Models = None,
    p: Ps = None,
    values: Values = None,
    runs: Runs = None,
    seed: Seed = 0,
    epochs: MaybeEpochs = None,
    patience: MaybePatience = None,
    split: SplitKind = "released",
    jobs: Jobs = None,
    presets: Presets = True,
    root: Root = None,
    out: Out = Path("out/reproduce"),
) -> None:
    """Flip binary features of a graph and train: accuracy over the share flipped, by model and by p.

    The same as plufg reproduce denoise, in the same folder.
    """
    _run(ctx, "denoise")


def _run(ctx: typer.Context, experiment: str) -> None:
    given = ctx.params
    stdout, stderr = consoles()
    with readable(stderr, resumable=True):
        from ..experiments import reproduce as experiments

        numbers = numbers_of("values", given["values"])
        with progress_bar(stderr, "{task.description:<34}", "{task.fields[now]}", all_of_it=True) as bar:
            task = bar.add_task("loading", total=None, now="")

            def progress(step: Any) -> None:
                last = "training" if step.last is None else f"{step.last.dataset}, {step.last.model}"
                now = f"{step.done} of {step.total} {step.of}"
                bar.update(task, description=last, completed=step.done, total=step.total, now=now)

            report = experiments.reproduce(
                experiment,
                given["out"],
                datasets=_names(given["datasets"]),
                models=_names(given["models"]),
                ps=_names(given["p"]),
                values=[numbers] if isinstance(numbers, float) else numbers,
                runs=given["runs"],
                seed=given["seed"],
                epochs=given["epochs"],
                patience=given["patience"],
                split=given["split"].lower(),
                root=None if given["root"] is None else str(given["root"]),
                use_presets=given["presets"],
                jobs=given["jobs"] or _cores(),
                command=command_line(ctx, leave_out=("root", "out", "jobs")),
                progress=progress,
            )
    from rich.markdown import Markdown

    if stdout.is_terminal:
        stdout.print(Markdown(report.read_text(encoding="utf-8")))
    stdout.print(f"{report} and {report.with_suffix('.html')}", soft_wrap=True)


def _names(text: str | None) -> list[str] | None:
    """Names with commas between them."""
    if text is None:
        return None
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError(f"expected names with commas between them, got {text!r}")
    return names


def _cores() -> int:
    """Cores that this process may use."""
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
