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


_TRANSFORMS: Final = "the transforms of torch.func"
_FORWARD: Final = "forward-mode derivatives"


class BackendError(RuntimeError):
    """A backend was asked for by name and cannot serve."""


def _without_rule(values: tuple[Any, ...]) -> str | None:
    """What is done with these values that no kernel has a rule for, or None."""
    if torch.compiler.is_compiling():
        traced: str | None = _traced_transform()
        return traced
    if torch._C._are_functorch_transforms_active():
        return _TRANSFORMS
    unpack: Any = forward_ad.unpack_dual
    # torch would take the tangents of their results for zero.
    forward = any(isinstance(t, Tensor) and unpack(t).tangent is not None for t in values)
    return _FORWARD if forward else None


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _traced_transform() -> str | None:
    """What a compiler is in the middle of tracing that no kernel has a rule for; it enters transforms as it goes."""
    if torch._C._are_functorch_transforms_active():
        return _TRANSFORMS
    return _FORWARD if forward_ad._current_level >= 0 else None


# The GPU as (major, minor), once it was asked.
_GPU: Final[list[tuple[int, int]]] = []


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _wrong_gpu() -> str | None:
    """Why this GPU cannot run the compiled CUDA kernels, or None; it is not asked before CUDA is in use."""
    if not _GPU:
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return None
        _GPU.append(torch.cuda.get_device_capability())
    archs, gpu = extension.cuda_archs(), _GPU[0]
    # Of the last one there is PTX, which newer GPUs compile for themselves.
    newer = archs and archs[-1].isdigit() and gpu >= divmod(int(archs[-1]), 10)
    if not archs or newer or any(_runs(arch, gpu) for arch in archs):
        return None
    return f"its CUDA kernels are for sm_{', sm_'.join(archs)}, this GPU is sm_{gpu[0]}{gpu[1]} (PLUFG_CUDA_ARCHS)"


def _runs(arch: str, gpu: tuple[int, int]) -> bool:
    """Whether a GPU runs what was compiled for an architecture: a newer one of the same major version does, of 90a
    only that one.
    """
    major, minor = divmod(int(arch.rstrip("af")), 10)
    return gpu == (major, minor) if arch.endswith("a") else gpu[0] == major and gpu[1] >= minor


def _obstacle(backend: str, family: str, device: str) -> str | None:
    """Why `backend` cannot serve `family` on `device`, or None if it can."""
    if backend == "reference":
        return None
    found = _OBSTACLE.get((backend, family, device), f"it does not support {device} tensors")
    return _wrong_gpu() if found is None and (backend, device) == ("cpp", "cuda") else found


def refuse_without_rule(where: str, what: str, *values: Any) -> None:
    """Refuse what torch does with these values if `what`, on whichever backend, has a rule for reverse mode alone."""
    missing = _without_rule(values)
    if missing is not None:
        raise BackendError(f"{where}: {what} has no rule for {missing}")


def choose(where: str, family: str, backend: str, device: str, *values: Any) -> str:
    """The backend for an operator of `family` on a device type, of which `values` may be differentiated.

    Kernels know reverse mode, as `Tensor.backward` and `torch.autograd` use it, and nothing else.
    """
    missing = None if backend == "reference" else _without_rule(values)
    if missing is not None:
        if backend == "auto":
            return "reference"
        check_name(where, backend)
        raise BackendError(f"{where}: backend {backend!r} cannot serve: its kernels have no rules for {missing}")
    if backend == "auto":
        for candidate in _ORDER:
            # The reference always can. Nobody wants the interpreter who did not ask for it.
            interpreted = (candidate, device) == ("triton", "cpu")
            if not interpreted and _obstacle(candidate, family, device) is None:
                return candidate
    check_name(where, backend)
    obstacle = _obstacle(backend, family, device)
    if obstacle is not None:
        raise BackendError(f"{where}: backend {backend!r} cannot serve: {obstacle}")
    return backend


def available() -> dict[str, dict[str, list[str]]]:
    """The families of operators that each backend serves, by device."""
    return {
        backend: {d: [f for f in _KERNEL if _obstacle(backend, f, d) is None] for d in _DEVICES}
        for backend in reversed(_ORDER)
    }
