"""Configurations that a search found, kept as small TOML files: ``presets/<dataset>/<model>.toml``."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Final

from ..data import HETEROPHILIC, HOMOPHILIC
from ..nn.conv.base import RECTIFIERS
from ..nn.models import option_names
from .spaces import check_value, current
from .train import TrainConfig

FOLDER: Final = Path(__file__).parent / "presets"
# What a preset leaves to whoever uses it.
_FREE: Final = ("runs", "seed", "root")
_SIBLINGS: Final = ("pl-ufg2", "pl-ufg1", "pl-fufg")
# A mu above all that a search tries.
_STRONG: Final = 1e9


def names() -> list[str]:
    """The presets of the package, such as ``cora/pl-ufg2``."""
    return sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.glob("*/*.toml"))


def path_of(preset: str) -> Path:
    """The file of a preset of the package, or of one's own, whose name ends in ``.toml``."""
    return Path(preset) if preset.endswith(".toml") else FOLDER / f"{preset.lower()}.toml"


def read(preset: str) -> tuple[TrainConfig, dict[str, Any]]:
    """A configuration, and how it was found: its score on the validation nodes, the command, the versions.

    Raises:
        ValueError: If there is no such preset, or it is none.
    """
    path = path_of(preset)
    if not path.is_file() and preset.endswith(".toml"):
        raise ValueError(f"preset: no file {preset}")
    if not path.is_file():
        known = ", ".join(names()) or "none yet"
        raise ValueError(f"preset: no {preset!r}; there are {known}, and files of one's own, by their .toml")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"preset: {path} is no TOML: {error}") from None
    found = content.pop("found", {})
    known_fields = {item.name for item in fields(TrainConfig)} - {*_FREE}
    unknown = sorted(set(content) - known_fields)
    if unknown or not {"dataset", "model"} <= set(content):
        wrong = f"unknown {', '.join(unknown)}" if unknown else "no dataset and model"
        raise ValueError(f"preset: {path}: {wrong}; expected the fields {', '.join(sorted(known_fields))}")
    for name, value in content.items():
        kind, wanted = (dict, "a table") if name.endswith("_options") else (str, "a name")
        if (kind is dict or name in ("dataset", "model", "split")) and not isinstance(value, kind):
            raise ValueError(f"preset: {path}: expected {wanted} for {name}, got {value!r}")
    config = TrainConfig(**content)
    values = {name: value for name, value in content.items() if not isinstance(value, dict)}
    for name, value in {**values, **config.data_options}.items():
        try:
            check_value(config, name, value)
        except (ValueError, KeyError) as error:
            raise ValueError(f"preset: {path}: {error}") from None
    return config, found


def of_similar_graphs(config: TrainConfig) -> list[TrainConfig]:
    """The presets of the same network on the other graphs of the same kind, homophilic or heterophilic."""
    kinds = [kind for kind in (HOMOPHILIC, HETEROPHILIC) if config.dataset in kind]
    others = [f"{name}/{config.model}" for kind in kinds for name in kind if name != config.dataset]
    return [read(preset)[0] for preset in others if path_of(preset).is_file()]


def of_relatives(config: TrainConfig) -> list[TrainConfig]:
    """What makes a pL-UFG network nearly one of its relatives, by their presets on its graph.

    It contains three. PGNN is the step on predictions, without framelets; APPNP is that at p = 2 with self-loops; UFG
    is the framelets without a step, which the strongest hold to its source comes close to; its shrinkage is left out.
    pL-UFG1 and pL-fUFG take the step in every band and are PGNN at p = 2 only. The two other pL-UFG networks have the
    same options.
    """
    if config.model not in _SIBLINGS:
        raise ValueError(f"relatives: expected a pL-UFG network, which contains others, got {config.model}")
    found = []
    for model in ("pgnn", "appnp", "ufg"):
        if not path_of(f"{config.dataset}/{model}").is_file():
            continue
        relative, _ = read(f"{config.dataset}/{model}")
        options = {**relative.model_options, "warmup": 0}
        if model == "ufg":
            options |= {"mu": _STRONG, "steps": 1, "framelet": current(relative, "framelet")}
            activation = current(relative, "activation")
            options["activation"] = activation if activation in RECTIFIERS else "none"
        else:
            options |= {"steps": current(relative, "K"), "head": False, "theta": "band"}
        if model == "pgnn":
            options |= {name: current(relative, name) for name in ("p", "mu")}
        if model == "appnp":
            alpha = current(relative, "alpha")
            mu = alpha / (1 - alpha) if alpha < 1 else _STRONG
            options |= {"p": 2.0, "mu": mu, "input_dropout": current(relative, "dropout")}
            relative = replace(relative, data_options={**relative.data_options, "self_loops": True})
        known = option_names(config.model)
        options = {name: value for name, value in options.items() if name in known}
        found.append(replace(relative, model=config.model, model_options=options))
    for model in _SIBLINGS:
        if model != config.model and path_of(f"{config.dataset}/{model}").is_file():
            found.append(replace(read(f"{config.dataset}/{model}")[0], model=config.model))
    return found


def write(path: Path, config: TrainConfig, found: Mapping[str, Any]) -> None:
    """Keep a configuration and how it was found."""
    content = {name: value for name, value in asdict(config).items() if name not in _FREE and value is not None}
    tables = {name: content.pop(name) for name in [*content] if isinstance(content[name], dict)}
    lines = [f"{name} = {_toml(value)}" for name, value in content.items()]
    for table, entries in {**tables, "found": found}.items():
        if entries:
            lines += ["", f"[{table}]", *(f"{name} = {_toml(value)}" for name, value in entries.items())]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_better(path: Path, config: TrainConfig, found: Mapping[str, Any]) -> bool:
    """:func:`write`, unless there is one for another split, or one as well proven and as good on the validation nodes.

    Cross-validation proves more than one set of validation nodes, and the mean of many runs more than that of few: the
    best of many single runs is the luckiest, too, as is the best of many epochs.
    """
    if path.is_file():
        before, score = read(str(path))
        same = (before.split, before.split_options) == (config.split, config.split_options)
        if not same or _weight(score) >= _weight(found):
            return False
    write(path, config, found)
    return True


def _weight(found: Mapping[str, Any]) -> tuple[bool, int, int, float]:
    proven = found.get("cross_validated", False), found.get("runs", 0), found.get("window", 1)
    return *proven, found.get("val_accuracy", 0.0)


def _toml(value: Any) -> str:
    # JSON's way to write text, truth, numbers and lists of them is TOML's as well.
    return json.dumps(value, allow_nan=False)
