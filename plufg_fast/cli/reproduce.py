"""``plufg reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .configuration import Root, Seed, SplitKind, command_line, numbers_of
from .console import consoles, progress_bar, readable


def reproduce(
    ctx: typer.Context,
    experiment: Annotated[
        str,
        typer.Argument(metavar="EXPERIMENT", help="homophilic, heterophilic, denoise, isomap, mu, p or convergence."),
    ],
    datasets: Annotated[
        str | None,
        typer.Option(metavar="NAME,…", help="Graphs, with commas between them.", show_default="the experiment's"),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(metavar="NAME,…", help="Models, with commas between them.", show_default="the experiment's"),
    ] = None,
    p: Annotated[
        str | None,
        typer.Option(
            metavar="P,…",
            help="p of the models that have one: numbers, learned, bands (one per band), learned-bands, searched"
            " (the preset's).",
            show_default="the experiment's",
        ),
    ] = None,
    values: Annotated[
        str | None,
        typer.Option(
            metavar="X,…",
            help="What a curve goes over: shares of flipped features, mu or p.",
            show_default="the experiment's",
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(min=1, help="Runs; run r uses the seed SEED + r.", show_default="10; isomap, convergence: 1"),
    ] = None,
    seed: Seed = 0,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs of every run.", show_default="the preset's, or 200")
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            min=1, help="Stop a run after so many epochs without a better one.", show_default="the preset's, or never"
        ),
    ] = None,
    split: SplitKind = "released",
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Processes, of one thread each.", show_default="one per core"),
    ] = None,
    presets: Annotated[
        bool, typer.Option(help="Take settings from presets where there are any, or the defaults for all.")
    ] = True,
    root: Root = None,
    out: Annotated[Path, typer.Option(help="Folder for reports, pictures and results.jsonl.")] = Path("out/reproduce"),
) -> None:
    """Reproduce a table or a figure of the paper, beside the paper's figures: Markdown, HTML and pictures.

    Settings are those of the presets, and the defaults where there is none; the report says which.
    Stopped or killed and started again, it goes on where it was. All experiments share their runs.
    """
    stdout, stderr = consoles()
    with readable(stderr):
        from ..experiments import reproduce as experiments

        numbers = numbers_of("values", values)
        with progress_bar(stderr, "{task.description:<34}", "{task.fields[now]}", all_of_it=True) as bar:
            task = bar.add_task("loading", total=None, now="")

            def progress(step: Any) -> None:
                last = "training" if step.last is None else f"{step.last.dataset}, {step.last.model}"
                now = f"{step.done} of {step.total} runs"
                bar.update(task, description=last, completed=step.done, total=step.total, now=now)

            report = experiments.reproduce(
                experiment,
                out,
                datasets=_names(datasets),
                models=_names(models),
                ps=_names(p),
                values=[numbers] if isinstance(numbers, float) else numbers,
                runs=runs,
                seed=seed,
                epochs=epochs,
                patience=patience,
                split=split.lower(),
                root=None if root is None else str(root),
                use_presets=presets,
                jobs=jobs or _cores(),
                command=command_line(ctx, leave_out=("root", "out", "jobs")),
                progress=progress,
            )
    from rich.markdown import Markdown

    if stdout.is_terminal:
        stdout.print(Markdown(report.read_text(encoding="utf-8")))
    stdout.print(f"{report} and {report.with_suffix('.html')}", soft_wrap=True)


def _names(text: str | None) -> list[str] | None:
    """Names with commas between them."""
    return None if text is None else [name.strip().lower() for name in text.split(",") if name.strip()]


def _cores() -> int:
    """Cores that this process may use."""
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
