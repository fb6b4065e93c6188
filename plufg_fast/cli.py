"""The ``plufg`` command. Results go to stdout, progress and messages to stderr."""

from __future__ import annotations

import json
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
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


# Options that train and search share.
Dataset = Annotated[
    str,
    typer.Option(
        help="csbm (generated), cora, citeseer, pubmed, computers, photo, cs, physics,"
        " chameleon, squirrel, actor, wisconsin, texas, cornell or cornell-old (as before 2022)."
    ),
]
Model = Annotated[
    str,
    typer.Option(help="pl-ufg1, pl-ufg2, pl-fufg, pgnn, ufg, mlp, gcn, sgc, gat, jknet, appnp or gprgnn."),
]
SplitKind = Annotated[
    str,
    typer.Option(help="random (by class), released (the paper's), public (Planetoid's) or geom-gcn (ten)."),
]
Rates = Annotated[
    str | None,
    typer.Option(
        metavar="TRAIN,VAL",
        help="Shares of training and validation nodes for random and released.",
        show_default="0.6,0.2 on heterophilic datasets, else 0.2,0.1",
    ),
]
Overall = Annotated[bool, typer.Option("--overall", help="Let random draw from all nodes, not within classes.")]
Seed = Annotated[int, typer.Option(min=0, help="First seed: parameters, dropout, split, generated graph.")]
Epochs = Annotated[int, typer.Option(min=1, help="Epochs of every run.")]
Patience = Annotated[
    int | None,
    typer.Option(min=1, help="Stop a run after so many epochs without a better one.", show_default="never"),
]
LearningRate = Annotated[float, typer.Option(min=0, help="Learning rate of Adam.")]
Schedule = Annotated[
    str, typer.Option(help="constant (the paper's), cosine (to 0), plateau (halved as validation loss stands still).")
]
WeightDecay = Annotated[float, typer.Option(min=0, help="L2 penalty on the parameters.")]
Hidden = Annotated[int, typer.Option(min=1, help="Hidden channels.")]
Dropout = Annotated[
    float | None, typer.Option(min=0, max=1, help="Share of values dropped.", show_default="the model's")
]
P = Annotated[
    str | None,
    typer.Option(
        help="p of the p-Laplacian (pL models, pgnn); 2,1.5,1 is one per band (pl-ufg1, pl-fufg).",
        show_default="the model's",
    ),
]
LearnP = Annotated[bool, typer.Option("--learn-p", help="Make p, one or one per band, a parameter.")]
Mu = Annotated[
    float | None,
    typer.Option(help="How strongly the p-solve holds on to its input.", show_default="the model's"),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="KEY=VALUE",
        show_default=False,
        help="Any other keyword of the model, such as -o framelet=haar or -o K=4. Repeatable.",
    ),
]
Phi = Annotated[
    float | None,
    typer.Option(min=-1, max=1, help="Homophily of the csbm, from -1 to 1.", show_default="0.5"),
]
Nodes = Annotated[int | None, typer.Option(min=4, help="Nodes of the csbm.", show_default="1000")]
Undirected = Annotated[bool, typer.Option("--undirected", help="Add the reverse of every edge of a directed dataset.")]
Normalize = Annotated[bool, typer.Option("--normalize", help="Scale the feature rows of a dataset to sum 1.")]
LargestComponent = Annotated[
    bool, typer.Option("--largest-component", help="Keep only the largest connected component of a dataset.")
]
Root = Annotated[
    Path | None,
    typer.Option(
        envvar="PLUFG_DATA",
        help="Datasets in PyG's layout; may be read-only.",
        show_default="PyG downloads",
    ),
]
PresetName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Start from what a search found, such as cora/pl-ufg2 or a .toml file; other options override it.",
        show_default="none",
    ),
]
SaveEvery = Annotated[int, typer.Option(min=1, help="Epochs after which an unfinished run is saved.")]


@app.command()
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
    stdout, stderr = _consoles()
    with _readable(stderr):
        from .experiments import train as experiment

        config = _config(ctx)
        with _bar(stderr, "{task.description}", "{task.fields[now]}") as bar:
            task = bar.add_task("loading", total=runs * config.epochs, now="")

            def progress(run: int) -> experiment.Progress:
                def step(epoch: experiment.Epoch) -> None:
                    bar.update(task, completed=run * config.epochs + epoch.number, now=_now(epoch))

                bar.update(task, description=f"run {run + 1} of {runs}")
                return step

            results = experiment.train(config, out, progress, checkpoints=checkpoint, save_every=save_every)
    _report(stdout, config, results, out)


def _bar(console: Console, *texts: str, all_of_it: bool = False) -> Any:
    """A progress bar with texts before it and behind it, and the time that is left.

    That is told by the last half minute, or by all of the time where steps are as different as they are slow.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    before, *behind = (TextColumn(text) for text in texts)
    columns = (before, BarColumn(), *behind, TimeRemainingColumn())
    period = 24 * 3600.0 if all_of_it else 30.0
    return Progress(*columns, console=console, transient=True, speed_estimate_period=period)


def _now(epoch: Any) -> str:
    return (
        f"epoch {epoch.number:4d}  loss {epoch.train_loss:6.3f}  accuracy: train {epoch.train_accuracy:6.1%}"
        f"  val {epoch.val_accuracy:6.1%} (best {epoch.best_val_accuracy:6.1%})"
    )


def _given(ctx: typer.Context) -> dict[str, Any]:
    """The options that the user wrote, by name."""
    # By its name: typer may bring its own copy of click, whose enumeration is another one.
    said = {name: ctx.get_parameter_source(name) for name in ctx.params}
    return {name: ctx.params[name] for name, how in said.items() if how is not None and how.name == "COMMANDLINE"}


def _config(ctx: typer.Context) -> Any:
    """The configuration that the options of a command say, a preset's where they say nothing."""
    from .data import DATASETS, OLD_CORNELL, SPLITS
    from .experiments import presets
    from .experiments.train import SCHEDULES, TrainConfig
    from .nn.models import MODELS, option_names

    options, given = ctx.params, _given(ctx)
    base = TrainConfig() if options["preset"] is None else presets.read(options["preset"])[0]
    # Without a preset the defaults of the command count, which its help shows.
    said = options if options["preset"] is None else given

    def chosen(name: str, field: str | None = None) -> Any:
        value = said[name] if name in said else getattr(base, field or name)
        return value.lower() if isinstance(value, str) else value

    dataset, model, kind, schedule = (chosen(name) for name in ("dataset", "model", "split", "schedule"))
    for what, value, known in (
        ("dataset", dataset, ("csbm", *DATASETS, OLD_CORNELL)),
        ("model", model, tuple(MODELS)),
        ("split", kind, SPLITS),
        ("schedule", schedule, SCHEDULES),
    ):
        if value not in known:
            raise ValueError(f"unknown {what} {value!r}; choose from {', '.join(known)}")

    model_options = {**base.model_options, **_model_options(options)}
    unknown = [key for key in model_options if key not in option_names(model)]
    if unknown:
        raise ValueError(f"{model} has no option {', '.join(unknown)}; it has {', '.join(option_names(model))}")

    only_csbm = {"phi": options["phi"], "num_nodes": options["nodes"]}
    only_real = {
        "undirected": options["undirected"] or None,
        "normalize_features": options["normalize"] or None,
        "largest_component": options["largest_component"] or None,
    }
    asked = {key: item for key, item in (only_csbm | only_real).items() if item is not None}
    misplaced = [key for key in asked if key in (only_real if dataset == "csbm" else only_csbm)]
    if misplaced:
        raise ValueError(f"{dataset} does not take {', '.join(misplaced)}")

    split_options = {} if "split" in given else dict(base.split_options)
    rates = _numbers("rates", options["rates"])
    if rates is not None:
        if not isinstance(rates, list) or len(rates) != 2:
            raise ValueError(f"expected --rates TRAIN,VAL, got {options['rates']!r}")
        split_options["rates"] = rates
    if options["overall"]:
        split_options["per_class"] = False
    root = options["root"]
    return TrainConfig(
        dataset=dataset,
        model=model,
        split=kind,
        runs=options["runs"],
        seed=options["seed"],
        epochs=chosen("epochs"),
        patience=chosen("patience"),
        lr=chosen("lr"),
        schedule=schedule,
        weight_decay=chosen("weight_decay"),
        hidden_channels=chosen("hidden", "hidden_channels"),
        model_options=model_options,
        data_options={**base.data_options, **asked},
        split_options=split_options,
        root=None if root is None or dataset == "csbm" else str(root),
    )


def _model_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the options of a command say about the model."""
    said = {
        "dropout": options["dropout"],
        "p": _numbers("p", options["p"]),
        "learn_p": options["learn_p"] or None,
        "mu": options["mu"],
        **_parse(options["option"] or []),
    }
    return {key: item for key, item in said.items() if item is not None}


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
    if results[0].learned_p is not None:
        bands = zip(*(result.learned_p for result in results), strict=True)
        shown = ", ".join("{:.3f} ± {:.3f}".format(*mean_and_std(values)) for values in bands)
        console.print(f"learned p: {shown}", soft_wrap=True)
    epoch = sum(result.seconds for result in results) / sum(result.epochs for result in results)
    console.print(f"{1000 * epoch:.1f} ms per epoch; every run is a line of {out / 'results.jsonl'}", soft_wrap=True)


def _value(text: str) -> Any:
    """A JSON literal where it is one, and text otherwise."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _pairs(pairs: list[str], name: str) -> Iterator[tuple[str, str]]:
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise ValueError(f"expected --{name} KEY=VALUE, got {pair!r}")
        yield key, value


def _parse(pairs: list[str]) -> dict[str, Any]:
    """``key=value`` pairs."""
    return {key: _value(value) for key, value in _pairs(pairs, "option")}


def _numbers(name: str, text: str | None) -> float | list[float] | None:
    """A number, or several with commas between them."""
    if text is None:
        return None
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"expected numbers with commas between them for --{name}, got {text!r}") from None
    return numbers[0] if len(numbers) == 1 else numbers


@app.command()
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
    similar: Annotated[
        bool,
        typer.Option(
            "--similar",
            help="First try the presets of this model on the other graphs of this kind (homo-, heterophilic).",
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
    stdout, stderr = _consoles()
    with _readable(stderr):
        from .experiments import presets, spaces
        from .experiments import search as experiment
        from .experiments.trials import best_of, draw, preset_facts, write_table

        config = _config(ctx)
        # What a preset says is where to start from, not what is fixed.
        said = replace(config, model_options=_model_options(ctx.params))
        space = {} if only_vary else (spaces.grid if method == "grid" else spaces.wide)(said)
        fixed = {"hidden_channels" if name == "hidden" else name for name in _given(ctx)}
        space = {name: values for name, values in space.items() if name not in fixed}
        space |= _space(vary or [], config)
        if per_band_p:
            space = spaces.per_band(config, space)
        split_options = config.split_options
        if cross_validate:
            config = replace(config, split_options={**split_options, "cross_validate": True})
        folder = out or Path("out/search") / f"{config.dataset}-{config.model}-{config.split}"
        with _bar(stderr, "{task.description}", "{task.completed} of {task.total} trials", "{task.fields[now]}") as bar:
            task = bar.add_task("loading", total=trials, now="")

            def progress(step: experiment.Step) -> None:
                best = "" if step.best is None else f"  best trial {step.best:6.1%}"
                bar.update(
                    task,
                    description=f"trial {step.trial + 1}, run {step.run + 1} of {config.runs}",
                    completed=step.finished,
                    now=_now(step.epoch) + best,
                )

            found = experiment.search(
                config,
                space,
                folder,
                method=method,
                trials=trials,
                storage=storage,
                prune=prune,
                starts=presets.of_similar_graphs(config) if similar else (),
                progress=progress,
                save_every=save_every,
            )
            final = found
            if final_runs is not None and final_runs > config.runs:
                config = replace(config, runs=final_runs)
                final = experiment.confirm(
                    found, folder, finalists=finalists, runs=final_runs, progress=progress, save_every=save_every
                )
        best = best_of(final)
        command = _command(ctx, leave_out=("root", "out", "write_preset", "save_every"))
        write_table(found, folder / "trials.csv")
        draw(found, folder / "search.png", command)
        _report_search(stdout, config, found, final, folder)
        if best is None:
            raise ValueError("no trial came to its end")
        facts = preset_facts(found, best, command)
        chosen = replace(best.config, split_options=split_options)
        presets.write(folder / "preset.toml", chosen, facts)
        stdout.print(f"plufg train --preset {folder / 'preset.toml'}", soft_wrap=True)
        if write_preset:
            name = f"{config.dataset}/{config.model}"
            if presets.write_better(presets.path_of(name), chosen, facts):
                stdout.print(f"plufg train --preset {name}")
            else:
                kept = "it is by more runs, or no worse on the validation nodes"
                stdout.print(f"{name} stays as it is: {kept}", soft_wrap=True)


def _space(pairs: list[str], config: Any) -> dict[str, Any]:
    """What ``--vary`` says."""
    from .experiments.spaces import Range, takes_whole_numbers

    names = {"hidden": "hidden_channels", "normalize": "normalize_features"}
    space: dict[str, Any] = {}
    for key, text in _pairs(pairs, "vary"):
        low, dots, high = text.partition("..")
        high, colon, scale = high.partition(":")
        name = names.get(key.replace("-", "_"), key.replace("-", "_"))
        if not dots:
            space[name] = [_value(part) for part in text.split(",")]
            continue
        ends = [_value(low), _value(high)]
        if not all(type(end) in (int, float) for end in ends) or (colon and scale != "log"):
            raise ValueError(f"expected --vary {key}=LOW..HIGH or {key}=LOW..HIGH:log, got {text!r}")
        whole = takes_whole_numbers(config, name)
        if whole and any(type(end) is float for end in ends):
            raise ValueError(f"expected whole numbers for {name}, got {text!r}")
        low_end, high_end = ends if whole else map(float, ends)
        space[name] = Range(low_end, high_end, log=bool(colon))
    return space


def _command(ctx: typer.Context, leave_out: tuple[str, ...]) -> str:
    """The command as it was given, without what depends on the machine."""
    words = ["plufg", str(ctx.info_name)]
    for parameter in ctx.command.params:
        name = str(parameter.name)
        if name in leave_out or name not in _given(ctx):
            continue
        value = ctx.params[name]
        if parameter.param_type_name == "argument":
            words.append(str(value))
            continue
        flag = max(parameter.opts, key=len)
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag.removeprefix('--')}")
            continue
        for item in value if isinstance(value, list | tuple) else [value]:
            words += [flag, str(item)]
    return shlex.join(words)


def _report_search(console: Console, config: Any, trials: list[Any], final: list[Any], folder: Path) -> None:
    from collections import Counter

    from rich.table import Table

    from .experiments.trials import Trial

    counts = Counter(trial.state for trial in trials)
    title = f"{config.model} on {config.dataset}, {config.split} split: the best of {len(trials)} trials"
    table = Table(title=f"{title}, {config.runs} run{'s' if config.runs > 1 else ''}")
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


@app.command()
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
    stdout, stderr = _consoles()
    with _readable(stderr):
        from .experiments import reproduce as experiments

        numbers = _numbers("values", values)
        with _bar(stderr, "{task.description:<34}", "{task.fields[now]}", all_of_it=True) as bar:
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
                command=_command(ctx, leave_out=("root", "out", "jobs")),
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
