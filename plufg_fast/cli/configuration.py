"""The options that say what to train: as typer shows them, and as a configuration."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

# Options that train and search share.
Dataset = Annotated[
    str,
    typer.Option(
        help="csbm (generated), cora, citeseer, pubmed, computers, photo, cs, physics,"
        " chameleon, squirrel, actor, wisconsin, texas, cornell or cornell-old (as until July 2022)."
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
Seed = Annotated[int, typer.Option(min=0, help="First seed: of parameters, dropout, drawn splits and graphs.")]
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
LearnP = Annotated[bool, typer.Option("--learn-p/--fixed-p", help="Make p, one or one per band, a parameter.")]
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
Nodes = Annotated[int | None, typer.Option(min=11, help="Nodes of the csbm, of 10 neighbours.", show_default="1000")]
Undirected = Annotated[
    bool,
    typer.Option(
        "--undirected/--directed",
        help="Add the reverse of every edge of a directed dataset.",
        show_default="as published",
    ),
]
Normalize = Annotated[
    bool, typer.Option("--normalize/--no-normalize", help="Scale the feature rows of a dataset to sum 1.")
]
LargestComponent = Annotated[
    bool,
    typer.Option(
        "--largest-component/--all-components", help="Keep only the largest connected component of a dataset."
    ),
]
SelfLoops = Annotated[
    bool, typer.Option("--self-loops/--no-self-loops", help="Give every node of a dataset an edge to itself.")
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


def configuration(ctx: typer.Context) -> Any:
    """The configuration that the options of a command say, a preset's where they say nothing."""
    from ..data import DATASETS, OLD_CORNELL, SPLITS
    from ..experiments import presets
    from ..experiments.spaces import check_value
    from ..experiments.train import SCHEDULES, TrainConfig
    from ..nn.models import MODELS, option_names

    options, given = ctx.params, written(ctx)
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

    said_of_model = model_options_of(ctx)
    model_options = {**base.model_options, **said_of_model}
    unknown = [key for key in model_options if key not in option_names(model)]
    if unknown:
        strange = ", ".join(key for key in unknown if key in said_of_model)
        if not strange:
            raise ValueError(f"the preset {options['preset']} is one for {base.model}, and not for {model}")
        raise ValueError(f"{model} has no option {strange}; it has {', '.join(option_names(model))}")

    only_csbm = {"phi": options["phi"], "num_nodes": options["nodes"]}
    # Where nothing is said, a preset's count, and else the dataset's own.
    only_real = {
        "undirected": given.get("undirected"),
        "normalize_features": given.get("normalize"),
        "largest_component": given.get("largest_component"),
        "self_loops": given.get("self_loops"),
    }
    asked = {key: item for key, item in (only_csbm | only_real).items() if item is not None}
    misplaced = [key for key in asked if key in (only_real if dataset == "csbm" else only_csbm)]
    if misplaced:
        flags = {"num_nodes": "nodes", "normalize_features": "normalize"}
        shown = ", ".join("--" + flags.get(key, key).replace("_", "-") for key in misplaced)
        raise ValueError(f"{dataset} does not take {shown}")
    # What a preset does to a graph that is read says nothing about one that is generated.
    kept = base.data_options if (dataset == "csbm") == (base.dataset == "csbm") else {}

    split_options = {} if "split" in given else dict(base.split_options)
    rates = numbers_of("rates", options["rates"])
    if rates is not None:
        if not isinstance(rates, list) or len(rates) != 2:
            raise ValueError(f"expected --rates TRAIN,VAL, got {options['rates']!r}")
        split_options["rates"] = rates
    if options["overall"]:
        split_options["per_class"] = False
    root = options["root"]
    config = TrainConfig(
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
        data_options={**kept, **asked},
        split_options=split_options,
        root=None if root is None or dataset == "csbm" else str(root),
    )
    for key, item in model_options.items():
        check_value(config, key, item)
    return config


def model_options_of(ctx: typer.Context) -> dict[str, Any]:
    """What the options of a command say about the model."""
    options = ctx.params
    said = {
        "dropout": options["dropout"],
        "p": numbers_of("p", options["p"]),
        "learn_p": written(ctx).get("learn_p"),
        "mu": options["mu"],
    }
    said = {key: item for key, item in said.items() if item is not None}
    for key, text in pairs_of(options["option"] or [], "option"):
        if key in said:
            raise ValueError(f"{key} is given twice, and by --option")
        said[key] = value_of(text)
    return said


def written(ctx: typer.Context) -> dict[str, Any]:
    """The options that the user wrote, by name."""
    # By its name: typer may bring its own copy of click, whose enumeration is another one.
    said = {name: ctx.get_parameter_source(name) for name in ctx.params}
    return {name: ctx.params[name] for name, how in said.items() if how is not None and how.name == "COMMANDLINE"}


def command_line(ctx: typer.Context, leave_out: tuple[str, ...]) -> str:
    """The command as it was given, without what depends on the machine."""
    words = ["plufg", str(ctx.info_name)]
    for parameter in ctx.command.params:
        name = str(parameter.name)
        if name in leave_out or name not in written(ctx):
            continue
        value = ctx.params[name]
        if parameter.param_type_name == "argument":
            words.append(str(value))
            continue
        flag = max(parameter.opts, key=len)
        if isinstance(value, bool):
            words.append(flag if value else max(parameter.secondary_opts, key=len))
            continue
        for item in value if isinstance(value, list | tuple) else [value]:
            words += [flag, str(item)]
    return shlex.join(words)


def value_of(text: str) -> Any:
    """A JSON literal where it is one, in any case if it is true or false, and text otherwise."""
    try:
        return json.loads(text.lower() if text.lower() in ("true", "false") else text)
    except json.JSONDecodeError:
        return text


def pairs_of(pairs: list[str], name: str) -> Iterator[tuple[str, str]]:
    """What stands before and behind the equals signs of a repeatable option."""
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise ValueError(f"expected --{name} KEY=VALUE, got {pair!r}")
        yield key, value


def numbers_of(name: str, text: str | None) -> float | list[float] | None:
    """A number, or several with commas between them."""
    if text is None:
        return None
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"expected numbers with commas between them for --{name}, got {text!r}") from None
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"expected finite numbers for --{name}, got {text!r}")
    return numbers[0] if len(numbers) == 1 else numbers
