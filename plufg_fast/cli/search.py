"""``plufg search``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

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
    command_line,
    configuration,
    model_options_of,
    pairs_of,
    value_of,
    written,
)
from .console import consoles, epoch_line, progress_bar, readable


def search(
    ctx: typer.Context,
    dataset: Dataset = "csbm",
    model: Model = "pl-ufg2",
    method: Annotated[
        str, typer.Option(help="tpe (learns from the trials so far), random, or grid (the paper's, shuffled).")
    ] = "tpe",
    trials: Annotated[
        int, typer.Option(min=1, help="Configurations to try, by all calls and processes together.")
    ] = 100,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES",
            show_default=False,
            help="Values of an option: theta=node,band or mu=0.1..50:log (a range; :log on that scale). Repeatable.",
        ),
    ] = None,
    only_vary: Annotated[bool, typer.Option("--only-vary", help="Vary what --vary says and nothing else.")] = False,
    per_band_p: Annotated[
        bool, typer.Option("--per-band-p", help="Search one p for every band (pl-ufg1, pl-fufg).")
    ] = False,
    prune: Annotated[bool, typer.Option(help="Give up trials that stay below the median.")] = True,
    window: Annotated[
        int,
        typer.Option(
            min=1,
            help="Judge a run by its highest mean validation accuracy over so many epochs in a row, not by one epoch.",
        ),
    ] = 1,
    similar: Annotated[
        bool,
        typer.Option(
            "--similar",
            help="First try the presets of this model on the other graphs of this kind (homo-, heterophilic).",
        ),
    ] = False,
    relatives: Annotated[
        bool,
        typer.Option(
            "--relatives",
            help="First try what makes a pL-UFG network nearly PGNN, APPNP or UFG, by their presets for this graph, and"
            " what the other pL-UFG networks have there.",
        ),
    ] = False,
    cross_validate: Annotated[
        bool,
        typer.Option(
            "--cross-validate",
            help="Let run r validate on the r-th fold of training and validation nodes: for graphs with few of them.",
        ),
    ] = False,
    finalists: Annotated[
        int, typer.Option(min=1, help="So many of the best trials get --final-runs runs, and decide among themselves.")
    ] = 5,
    final_runs: Annotated[
        int | None, typer.Option(min=1, help="Runs of the finalists.", show_default="as many as of all trials")
    ] = None,
    storage: Annotated[str, typer.Option(help="Where the study is kept: journal or sqlite.")] = "journal",
    write_preset: Annotated[
        bool,
        typer.Option("--write-preset", help="Put the best into the package: plufg train --preset DATASET/MODEL."),
    ] = False,
    preset: PresetName = None,
    split: SplitKind = "random",
    rates: Rates = None,
    overall: Overall = False,
    runs: Annotated[int, typer.Option(min=1, help="Runs of every trial; run r uses the seed SEED + r.")] = 3,
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
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of this search.", show_default="out/search/DATASET-MODEL-SPLIT"),
    ] = None,
    save_every: SaveEvery = 100,
) -> None:
    """Search for the configuration of a model on a dataset, by validation accuracy alone.

    What is given as an option is fixed; the rest varies, see --vary. Killed and started again, with the same
    options, it goes on where it was; started several times at once, the processes share the trials.
    Writes trials.csv, search.png and preset.toml.
    """
    stdout, stderr = consoles()
    with readable(stderr, resumable=True):
        from ..experiments import presets, spaces
        from ..experiments import search as experiment
        from ..experiments.trials import best_of, draw, preset_facts, write_table

        config = configuration(ctx)
        # What a preset says is where to start from, not what is fixed.
        said = replace(config, model_options=model_options_of(ctx))
        space = {} if only_vary else (spaces.grid if method == "grid" else spaces.wide)(said)
        fixed = {"hidden_channels" if name == "hidden" else name for name in written(ctx)}
        space = {name: values for name, values in space.items() if name not in fixed}
        wanted = _space(vary or [], config)
        both = sorted((fixed | model_options_of(ctx).keys()) & wanted.keys())
        if both:
            raise ValueError(f"{both[0]} is given, and varies by --vary: one of the two")
        space |= wanted
        if per_band_p:
            if {"framelet", "levels"} & wanted.keys():
                raise ValueError("--per-band-p: framelet and levels decide how many bands there are and cannot vary")
            space = spaces.per_band(config, space)
        if "finalists" in written(ctx) and final_runs is None:
            raise ValueError("--finalists have --final-runs, more than the --runs of a trial: give both")
        if final_runs is not None and final_runs <= runs:
            raise ValueError(f"expected --final-runs above the {runs} --runs of a trial, got {final_runs}")
        split_options = config.split_options
        if cross_validate:
            config = replace(config, split_options={**split_options, "cross_validate": True})
        starts = [
            *(presets.of_relatives(config) if relatives else []),
            *(presets.of_similar_graphs(config) if similar else []),
        ]
        folder = out or Path("out/search") / f"{config.dataset}-{config.model}-{config.split}"
        stderr.print(_intent(config, space, trials), highlight=False, markup=False)
        with progress_bar(
            stderr, "{task.description}", "{task.completed} of {task.total} trials", "{task.fields[now]}"
        ) as bar:
            task = bar.add_task("loading", total=trials, now="")

            def progress(step: experiment.Step) -> None:
                best = "" if step.best is None else f"  best trial {step.best:6.1%}"
                bar.update(
                    task,
                    description=f"trial {step.trial + 1}, run {step.run + 1} of {config.runs}",
                    completed=step.finished,
                    now=epoch_line(step.epoch) + best,
                )

            found = experiment.search(
                config,
                space,
                folder,
                method=method,
                trials=trials,
                storage=storage,
                prune=prune,
                window=window,
                starts=starts,
                progress=progress,
                save_every=save_every,
            )
            final = found
            if final_runs is not None:
                config = replace(config, runs=final_runs)
                final = experiment.confirm(
                    found,
                    folder,
                    finalists=finalists,
                    runs=final_runs,
                    window=window,
                    progress=progress,
                    save_every=save_every,
                )
        best = best_of(final)
        command = command_line(ctx, leave_out=("root", "out", "write_preset", "save_every"))
        write_table(found, folder / "trials.csv")
        draw(found, folder / "search.png", command)
        _report(stdout, config, found, final, folder)
        if best is None:
            raise ValueError("no trial came to its end")
        facts = preset_facts(found, best, command, window)
        chosen = replace(best.config, split_options=split_options)
        presets.write(folder / "preset.toml", chosen, facts)
        stdout.print(f"plufg train --preset {folder / 'preset.toml'}", soft_wrap=True)
        if write_preset:
            name = f"{config.dataset}/{config.model}"
            if presets.write_better(presets.path_of(name), chosen, facts):
                stdout.print(f"plufg train --preset {name}")
            else:
                kept = "better proven (cross-validation, runs, window) or no worse on the validation nodes"
                stdout.print(f"{name} stays as it is: of another split, {kept}", soft_wrap=True)


def _intent(config: Any, space: dict[str, Any], trials: int) -> str:
    """What is about to take long, in a line: in time to see that it is not what was meant."""
    from ..experiments.spaces import Range

    def shown(values: Any) -> str:
        if isinstance(values, Range):
            return f"{values.low:g}..{values.high:g}" + (":log" if values.log else "")
        return ",".join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)

    what = f"{_subject(config)}: {_count(trials, 'trial')} of {_count(config.runs, 'run')}"
    return what + "".join([f", {name}={shown(values)}" for name, values in space.items()])


def _subject(config: Any) -> str:
    return f"{config.model} on {config.dataset}, {config.split} split"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("s" if number > 1 else "")


def _space(pairs: list[str], config: Any) -> dict[str, Any]:
    """What ``--vary`` says."""
    from ..experiments.spaces import Range, check_value, takes_whole_numbers

    names = {"hidden": "hidden_channels", "normalize": "normalize_features"}
    space: dict[str, Any] = {}
    for key, text in pairs_of(pairs, "vary"):
        low, dots, high = text.partition("..")
        high, colon, scale = high.partition(":")
        name = names.get(key.replace("-", "_"), key.replace("-", "_"))
        whole = takes_whole_numbers(config, name)
        if not dots:
            space[name] = [value_of(part) for part in text.split(",")]
            for value in space[name]:
                check_value(config, name, value)
            continue
        ends = [value_of(low), value_of(high)]
        if not all(type(end) in (int, float) for end in ends) or (colon and scale != "log"):
            raise ValueError(f"expected --vary {key}=LOW..HIGH or {key}=LOW..HIGH:log, got {text!r}")
        if whole and any(type(end) is float for end in ends):
            raise ValueError(f"expected whole numbers for {name}, got {text!r}")
        low_end, high_end = ends if whole else map(float, ends)
        space[name] = Range(low_end, high_end, log=bool(colon))
    return space


def _report(console: Console, config: Any, trials: list[Any], final: list[Any], folder: Path) -> None:
    from collections import Counter

    from rich.table import Table

    from ..experiments.trials import Trial

    counts = Counter(trial.state for trial in trials)
    title = f"{_subject(config)}: the best of {_count(len(trials), 'trial')}, {_count(config.runs, 'run')}"
    table = Table(title=title)
    complete = sorted((trial for trial in final if trial.state == "complete"), key=Trial.rank)
    for name in ("trial", "validation", "± std"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("configuration")
    for trial in complete[:10]:
        items = trial.params.items()
        values = (f"{name} {item:.4g}" if isinstance(item, float) else f"{name} {item}" for name, item in items)
        numbers = (str(trial.number), f"{trial.val_accuracy:.2%}", f"{trial.val_std:.2%}")
        table.add_row(*numbers, escape(", ".join(values)), end_section=True)
    console.print(table)
    shown = ", ".join(f"{count} {state}" for state, count in counts.items())
    console.print(f"{shown}; all in {folder / 'trials.csv'}, pictures in {folder / 'search.png'}", soft_wrap=True)
