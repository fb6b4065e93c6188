"""The forms that the Triton kernels come in: what is optional, and which combinations the operators launch.

An argument that may be None is a branch of the kernel, as a flag is.
"""

import itertools
from collections.abc import Callable
from typing import Any

from plufg_fast.ops.cheb import triton as cheb
from plufg_fast.ops.plap import triton as plap

Form = dict[str, bool]


def _dots(form: Form) -> bool:
    # A narrow signal of the power penalty takes one pass; a pass speaks for one direction of edges or for both.
    return (form["square"] or form["z"]) and (form["RECEIVE"] or form["SEND"])


def _gradient(form: Form) -> bool:
    return (
        (form["RECEIVE"] or form["SEND"])
        and form["before"] == (form["SEND"] and not form["RECEIVE"])
        and not (form["dp"] and (form["square"] or form["z"] or not form["RECEIVE"]))
    )


def _recur(form: Form) -> bool:
    if not form["bands"]:
        return form["out"] and not (form["first"] or form["before"])
    # An analysis at its first, second or third step, or at a later one that finds bands.
    taps = (form["prev"], form["first"], form["before"])
    return not form["z"] and taps in [(False,) * 3, (True, False, False), (True, True, False), (True, False, True)]


# Of every kernel: the arguments that may be None, the flags beside WINDOW, and what is launched.
KERNELS: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...], Callable[[Form], bool]]] = {
    "norms": (plap.norms, ("weight", "square", "sums"), (), lambda form: form["square"] or form["sums"]),
    "step": (plap.step, ("weight", "square", "z"), (), lambda form: True),
    "dots": (plap.dots, ("weight", "square", "z"), ("RECEIVE", "SEND"), _dots),
    "gradient": (
        plap.gradient,
        ("weight", "square", "z", "dp", "before"),
        ("RECEIVE", "SEND"),
        _gradient,
    ),
    "recur": (cheb.recur, ("out", "bands", "before", "prev", "first", "z"), (), _recur),
}
# The operator's own optional arguments are independent of all that.
SCALES = ("weight", "left", "right", "diag")
FAMILY = {"plap": ("norms", "step", "dots", "gradient"), "cheb": ("recur",)}


def forms(name: str) -> list[Form]:
    """All combinations in which a kernel is launched."""
    _, optional, flags, launched = KERNELS[name]
    names = (*optional, *flags, "WINDOW")
    every = (dict(zip(names, values, strict=True)) for values in itertools.product((True, False), repeat=len(names)))
    return [form for form in every if launched(form)]
