"""Argument checks shared by `Graph` and the operators.

Every refusal reads `<where>: <argument> must be <expectation>, got <what came>`, is raised before any kernel
runs, and is a `TypeError` for the wrong kind of thing and a `ValueError` for a wrong value of the right kind.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor


class Shown(str):
    """Words that stand in a message as they are, for a value that is better told than printed."""

    __slots__ = ()


def describe(value: Any) -> str:
    """A short description of `value` for an error message."""
    if isinstance(value, Shown):
        return str(value)
    if isinstance(value, Tensor):
        return f"a {value.dtype} tensor of shape {tuple(value.shape)} on {value.device}"
    if isinstance(value, str | int | float | bool) or value is None:
        return repr(value)
    return f"a {type(value).__name__}"


def wrong_type(where: str, argument: str, expectation: str, got: Any) -> TypeError:
    """The error for an argument of the wrong kind."""
    return TypeError(f"{where}: {argument} must be {expectation}, got {describe(got)}")


def wrong_value(where: str, argument: str, expectation: str, got: Any) -> ValueError:
    """The error for an argument of the right kind with a wrong value."""
    return ValueError(f"{where}: {argument} must be {expectation}, got {describe(got)}")


def one_of(where: str, argument: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse a `value` that is none of `choices`."""
    names = list(choices)
    if not isinstance(value, str) or value not in names:
        raise wrong_value(where, argument, "one of " + ", ".join(map(repr, names)), value)


def count(where: str, argument: str, value: Any, least: int = 0) -> None:
    """Refuse anything but an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | torch.SymInt | numbers.Integral):
        raise wrong_type(where, argument, "an int", value)
    if value < least:
        raise wrong_value(where, argument, f"at least {least}", value)


def number(where: str, argument: str, value: Any, *, above: float | None = None, least: float | None = None) -> None:
    """Refuse anything but a finite Python number, optionally above or not below a bound."""
    if isinstance(value, bool) or not isinstance(value, int | float | torch.SymFloat | numbers.Real):
        raise wrong_type(where, argument, "a number", value)
    number: Any = value
    # Comparisons instead of math.isfinite: a traced call may hold a symbol in place of the number.
    inside = -torch.inf < number < torch.inf
    expectation = "a finite number"
    if above is not None:
        inside, expectation = inside and number > above, f"a finite number above {above}"
    if least is not None:
        inside, expectation = inside and number >= least, f"a finite number of at least {least}"
    if not inside:
        raise wrong_value(where, argument, expectation, value)


def floating_tensor(where: str, argument: str, value: Any) -> None:
    """Refuse anything but a dense floating-point tensor."""
    if not isinstance(value, Tensor):
        raise wrong_type(where, argument, "a torch.Tensor", value)
    if not value.is_floating_point():
        raise wrong_type(where, argument, "a floating-point tensor", value)
    if value.layout != torch.strided:
        raise wrong_type(where, argument, "a dense tensor", value)


def constant(where: str, argument: str, value: Tensor) -> None:
    """Refuse a tensor whose gradient would be lost."""
    if value.requires_grad:
        expectation = f"a constant (pass {argument}.detach())"
        raise wrong_value(where, argument, expectation, Shown("a tensor that requires grad"))


def same_device(where: str, argument: str, value: Tensor, other: str, device: torch.device) -> None:
    """Refuse a tensor that does not live on `device`."""
    if value.device != device:
        raise wrong_value(where, argument, f"on the device of {other} ({device})", value)


def all_true(where: str, argument: str, expectation: str, condition: Tensor, value: Tensor) -> None:
    """Refuse a tensor some of whose entries break `condition`.

    Reading the condition would stall a GPU stream, break a traced graph, and is impossible where there are no
    values; there an asynchronous assertion takes its place. What `torch.func.vmap` goes over is neither to be read nor
    asserted.
    """
    if torch._C._functorch.is_batchedtensor(condition):
        return
    if torch.compiler.is_compiling() or value.device.type != "cpu" or isinstance(value, FakeTensor):
        torch._assert_async(condition.all(), f"{where}: {argument} must be {expectation}")
    elif not bool(condition.all()):
        worst = value.detach()[~condition].flatten()[:3].tolist()
        raise ValueError(f"{where}: {argument} must be {expectation}, got {', '.join(map(str, worst))}")
