"""What a search may try: the paper's grid, ranges around it, and where the values go."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

from ..data import HETEROPHILIC, OLD_CORNELL, csbm, load
from ..framelets import Framelet
from ..nn.conv import PLUFGConv
from ..nn.models import MODELS, option_names
from .train import TrainConfig

_FIELDS: Final = ("lr", "schedule", "weight_decay", "hidden_channels", "patience")


class Range(NamedTuple):
    """Values from ``low`` to ``high``: whole ones if both are, on a logarithmic scale if asked for."""

    low: float
    high: float
    log: bool = False


Space: TypeAlias = dict[str, list[Any] | Range]
"""What varies, by the name of a field of TrainConfig, of an option of the network or of one of the data; ``p.0``,
``p.1`` ... are the p of the bands."""


def grid(config: TrainConfig) -> Space:
    """The paper's grid for a model and a graph, and what the paper leaves open: hidden channels, dropout, decay.

    Options of the network that the configuration sets do not vary.

    The paper's dilations s > 1 all give the same filters on one level, where the largest eigenvalue is mapped to pi:
    ``scale`` is ``"fit"`` for them and ``"none"`` for its s = 1.
    """
    heterophilic = _is_heterophilic(config)
    model: dict[str, list[Any]] = {
        "p": [1.0, 1.5, 2.0, 2.5],
        "mu": [3.0, 5.0, 10.0, 20.0, 30.0, 50.0, 70.0] if heterophilic else [0.1, 0.5, 1.0, 5.0, 10.0],
        "steps": [4, 5],
        "degree": [2, 3, 7],
        "scale": ["fit", "none"],
        "dropout": [0.2, 0.5, 0.8],
        "heads": [4, 8],
        "layers": [2, 3],
        "alpha": [0.1, 0.2, 0.5, 0.9],
        "K": [4, 5] if config.model == "pgnn" else [2, 3] if config.model == "sgc" else [10],
    }
    space: Space = {"lr": [0.01, 0.005], "weight_decay": [0.0, 5e-4], "hidden_channels": [16, 32, 64]}
    return _for_model(config, space, model)


def wide(config: TrainConfig) -> Space:
    """Ranges around and beyond the paper's grid, for a search that learns from what it tried."""
    model: dict[str, list[Any] | Range] = {
        "p": Range(1.0, 3.0),
        "mu": Range(0.1, 100.0, log=True) if _is_heterophilic(config) else Range(0.02, 10.0, log=True),
        "steps": Range(1, 8),
        "warmup": [0, 10],
        "degree": Range(2, 7),
        "framelet": ["linear", "quadratic"],
        "levels": Range(1, 2),
        "scale": ["fit", "none"],
        "theta": ["node", "channel", "band"],
        "dropout": Range(0.0, 0.9),
        "input_dropout": Range(0.0, 0.9),
        "head": [True, False],
        "heads": [1, 4, 8],
        "layers": Range(1, 4),
        "jump": ["cat", "max"],
        "alpha": Range(0.05, 0.95),
        "K": Range(1, 4) if config.model == "sgc" else Range(2, 10),
        "activation": ["relu", "leaky_relu", "soft" if config.model == "ufg" else "none"],
    }
    space: Space = {
        "lr": Range(0.002, 0.05, log=True),
        "weight_decay": Range(1e-5, 1e-2, log=True),
        "hidden_channels": [16, 32, 64],
    }
    return _for_model(config, space, model)


def _is_heterophilic(config: TrainConfig) -> bool:
    return config.dataset in (*HETEROPHILIC, OLD_CORNELL) or config.data_options.get("phi", 1.0) < 0


def _for_model(config: TrainConfig, space: Space, options: Mapping[str, list[Any] | Range]) -> Space:
    known = option_names(config.model)
    space = {**space, **{name: values for name, values in options.items() if name in known}}
    if config.model == "sgc":
        del space["hidden_channels"]  # it has none
    return {name: values for name, values in space.items() if name not in config.model_options}


def per_band(config: TrainConfig, space: Space) -> Space:
    """A space with one p for every band in place of one for all."""
    if config.model not in ("pl-ufg1", "pl-fufg"):
        raise ValueError(f"search: p per band is for pl-ufg1 and pl-fufg, which smooth every band, got {config.model}")
    if "p" not in space:
        raise ValueError("search: p per band needs a p that varies, got one that is fixed")
    # What decides the number of bands cannot vary beside them.
    rest = {name: options for name, options in space.items() if name not in ("p", "framelet", "levels")}
    return {**{f"p.{band}": space["p"] for band in range(num_bands(config))}, **rest}


def num_bands(config: TrainConfig) -> int:
    """Framelet bands of a pL-UFG network."""
    defaults = {name: item.default for name, item in inspect.signature(PLUFGConv).parameters.items()}
    chosen = {**defaults, **config.model_options}
    return Framelet(chosen["framelet"], chosen["levels"]).num_bands


def apply(config: TrainConfig, params: Mapping[str, Any]) -> TrainConfig:
    """The configuration with the values of a trial in place."""
    changed: dict[str, Any] = {}
    model_options, data_options = dict(config.model_options), dict(config.data_options)
    generated = config.dataset == "csbm"
    known_data = [*inspect.signature(csbm if generated else load).parameters]
    # Which graph it is does not vary, nor does what follows from the graph.
    known_data = [name for name in known_data if name not in ("name", "root", "seed")]
    known_model = [name for name in option_names(config.model) if name != "num_nodes"]
    bands = [params[name] for name in sorted(params, key=_band) if name.startswith("p.")]
    if bands:
        model_options["p"] = bands
    for name, value in params.items():
        if name in _FIELDS:
            changed[name] = value
        elif name in known_model:
            model_options[name] = value
        elif name in known_data:
            data_options[name] = value
        elif not name.startswith("p."):
            known = ", ".join([*_FIELDS, *known_model, *known_data])
            raise ValueError(f"search: {config.model} on {config.dataset} has nothing called {name!r}; it has {known}")
    return replace(config, **changed, model_options=model_options, data_options=data_options)


def with_middle_mu(config: TrainConfig) -> TrainConfig:
    """The configuration, with the middle of the paper's grid as the mu of a pL-UFG network that has none.

    That is 1 on homophilic graphs and 20 on others.
    """
    if not config.model.startswith("pl-") or "mu" in config.model_options:
        return config
    mus = grid(config)["mu"]
    assert isinstance(mus, list)
    return replace(config, model_options={**config.model_options, "mu": mus[len(mus) // 2]})


def start(config: TrainConfig, space: Space) -> dict[str, Any]:
    """The configuration itself as a point of a space, or the nearest to it that the space allows."""
    config = with_middle_mu(config)
    found: dict[str, Any] = {}
    for name, values in space.items():
        value = current(config, name)
        if isinstance(values, Range):
            number = value if isinstance(value, int | float) else values.low
            found[name] = type(values.low)(min(max(number, values.low), values.high))
        elif value in values or not _are_numbers([value, *values]):
            found[name] = value if value in values else values[0]
        else:
            found[name] = min(values, key=lambda other: abs(other - value))
    return found


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def current(config: TrainConfig, name: str) -> Any:
    """What a configuration has for a name of a space, by default if nothing else."""
    if name in _FIELDS:
        return getattr(config, name)
    if name.startswith("p."):
        p = current(config, "p")
        # Where it has fewer bands, the others are as its last.
        return p[min(_band(name), len(p) - 1)] if isinstance(p, list) else p
    for options in (config.model_options, config.data_options):
        if name in options:
            return options[name]
    item = _parameter(config, name)
    return None if item is None else item.default


def takes_whole_numbers(config: TrainConfig, name: str) -> bool:
    """Whether a name of a :data:`Space` stands for a count."""
    item = _parameter(config, name)
    return name == "patience" or (item is not None and type(item.default) is int)


def check_value(config: TrainConfig, name: str, value: Any) -> None:
    """Refuse a value that is not of the kind of the default of its name; several are one per band."""
    item = _parameter(config, name)
    kind = type(item.default) if item is not None else None
    values = value if isinstance(value, list) and name == "p" else [value]
    for part in values:
        number = type(part) in (int, float) and math.isfinite(part)
        if kind is bool and type(part) is not bool:
            wanted = "true or false"
        elif kind is int and type(part) is not int:
            wanted = "a whole number"
        elif kind is float and not number:
            wanted = "a number"
        elif kind is str and not isinstance(part, str):
            wanted = "a name"
        else:
            continue
        raise ValueError(f"expected {wanted} for {name}, got {part!r}")


def _parameter(config: TrainConfig, name: str) -> inspect.Parameter | None:
    """Where a name of a space belongs: to the training, the network, its layer or the data."""
    model = MODELS[config.model]
    makers: list[Any] = [
        TrainConfig,
        model,
        getattr(model, "conv_class", None),
        csbm if config.dataset == "csbm" else load,
    ]
    for maker in makers:
        item = None if maker is None else inspect.signature(maker).parameters.get(name)
        if item is not None and item.kind is not item.VAR_KEYWORD:
            return item
    return None


def _band(name: str) -> int:
    return int(name[2:]) if name.startswith("p.") else -1
