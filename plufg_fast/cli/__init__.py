"""The ``plufg`` command. Results go to stdout, progress and messages to stderr."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from ..version import __version__
from .console import consoles, readable
from .reproduce import denoise, reproduce
from .search import search
from .train import train

app = typer.Typer(
    name="plufg",
    help="p-Laplacian framelet graph networks on fused kernels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


app.command()(train)
app.command()(search)
app.command()(reproduce)
app.command()(denoise)


@app.command()
def plot(
    results: Annotated[
        Path,
        typer.Argument(metavar="RESULTS", help="A results.jsonl, or the folder it is in: of train or of reproduce."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the pictures.", show_default="that of the results")
    ] = None,
) -> None:
    """Draw runs on record, a picture for every graph: losses and validation accuracy by epoch, test accuracies."""
    stdout, stderr = consoles()
    with readable(stderr):
        from ..experiments.history import draw

        for path in draw(results, out):
            stdout.print(str(path), soft_wrap=True)


@app.command()
def demo(out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("out/demo")) -> None:
    """Train pL-UFG2, GCN and MLP on a homophilic and a heterophilic generated graph: under two minutes."""
    stdout, stderr = consoles()
    with readable(stderr):
        from ..experiments.demo import run

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
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of torch.", show_default="as torch has them")
    ] = None,
    show_groups: Annotated[bool, typer.Option("--list", help="List the groups and exit.")] = False,
) -> None:
    """Measure the operators beside torch, PyG, the reference and the released code, on this machine.

    Contestants take turns in one run; every result is compared with the reference before anything is timed.
    Tables show medians and quartiles, and ratios against their bars. A bar that is not met is no error.
    """
    stdout, stderr = consoles()
    with readable(stderr):
        import torch

        from ..bench.cases import Settings
        from ..bench.run import GROUPS, describe, run

        if show_groups:
            for name in GROUPS:
                stdout.print(f"[bold]{name:<10}[/] {describe(name)}", highlight=False, soft_wrap=True)
            return
        settings = Settings(quick, rounds or (3 if quick else 30), threads or torch.get_num_threads(), root)
        run(settings, out, only or (), stdout, stderr, command=shlex.join(["plufg", *sys.argv[1:]]))
