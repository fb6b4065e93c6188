"""Which backend serves a call.

``auto`` takes the fastest that has a kernel for the device; a backend asked for by name that cannot serve raises.
"""

from __future__ import annotations

import importlib
from typing import Any, Final, Literal, TypeAlias

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .. import checks, extension

Backend: TypeAlias = Literal["auto", "reference", "cpp", "triton"]

# A family is served by `cpp` on a device when the extension has a kernel of this op for it.
_KERNEL: Final = {"plap": "plap_step", "cheb": "cheb_step"}
_DEVICES: Final = ("cpu", "cuda")


def _triton_missing() -> str | None:
    """Why there is no Triton, or None if there is."""
    try:
        importlib.import_module("triton")
    except ImportError as error:
        return f"Triton cannot be imported ({error}); pip install triton"
    return None


TRITON_MISSING: Final = _triton_missing()
# Fastest first.
_ORDER: Final = ("cpp", "triton", "reference")


def _probe(backend: str, family: str, device: str) -> str | None:
    """Why `backend` cannot serve `family` on `device`, or None if it can."""
    if backend == "reference":
        return None
    if backend == "triton":
        return TRITON_MISSING or _not_for_triton(device)
    if not extension.loaded():
        return extension.why_not()
    if not extension.has_op(_KERNEL[family], device):
        return f"this build of the extension has no {device} kernel for {family}"
    return None


def _not_for_triton(device: str) -> str | None:
    if device == "cuda" or importlib.import_module("triton").knobs.runtime.interpret:
        return None
    return (
        "Triton kernels take CUDA tensors; CPU tensors only in Triton's interpreter, with TRITON_INTERPRET=1 in the "
        "environment before Triton is imported"
    )


# Probed once: a lookup is all that a traced call may do.
_OBSTACLE: Final = {
    (backend, family, device): _probe(backend, family, device)
    for backend in _ORDER
    for family in _KERNEL
    for device in _DEVICES
}


def check_name(where: str, backend: str) -> None:
    """Refuse what is not the name of a backend."""
    checks.one_of(where, "backend", backend, ("auto", *reversed(_ORDER)))


class BackendError(RuntimeError):
    """A backend was asked for by name and cannot serve."""


def _has_tangent(values: tuple[Any, ...]) -> bool:
    """Whether forward-mode differentiation passes through any of these."""
    if torch.compiler.is_compiling():
        return False
    unpack: Any = forward_ad.unpack_dual
    return any(isinstance(t, Tensor) and unpack(t).tangent is not None for t in values)


def choose(where: str, family: str, backend: str, device: str, *values: Any) -> str:
    """The backend for an operator of `family` on a device type, of which `values` may be differentiated.

    Kernels know no forward mode, and torch would take their tangents for zero.
    """
    if backend != "reference" and _has_tangent(values):
        if backend == "auto":
            return "reference"
        raise BackendError(f"{where}: backend {backend!r} cannot serve: its kernels have no forward-mode derivatives")
    if backend == "auto":
        for candidate in _ORDER:
            # Nobody wants the interpreter who did not ask for it.
            interpreted = (candidate, device) == ("triton", "cpu")
            if not interpreted and _OBSTACLE.get((candidate, family, device), "unknown device") is None:
                return candidate
        return "reference"
    check_name(where, backend)
    obstacle = (
        None
        if backend == "reference"
        else _OBSTACLE.get((backend, family, device), f"it does not support {device} tensors")
    )
    if obstacle is not None:
        raise BackendError(f"{where}: backend {backend!r} cannot serve: {obstacle}")
    return backend


def available() -> dict[str, dict[str, list[str]]]:
    """The families of operators that each backend serves, by device."""
    return {
        backend: {d: [f for f in _KERNEL if _OBSTACLE[backend, f, d] is None] for d in _DEVICES}
        for backend in reversed(_ORDER)
    }
