"""Which backend serves a call.

``auto`` takes the fastest that has a kernel for the device; a backend asked for by name that cannot serve raises.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from .. import checks, extension

Backend: TypeAlias = Literal["auto", "reference", "cpp", "triton"]

# A family is served by `cpp` on a device when the extension has a kernel of this op for it.
_KERNEL: Final = {"plap": "plap_step", "cheb": "cheb_step"}
_DEVICES: Final = ("cpu", "cuda")
# Fastest first.
_ORDER: Final = ("cpp", "triton", "reference")


def _probe(backend: str, family: str, device: str) -> str | None:
    """Why `backend` cannot serve `family` on `device`, or None if it can."""
    if backend == "reference":
        return None
    if backend == "triton":
        return f"there are no Triton kernels for {family}"
    if not extension.loaded():
        return extension.why_not()
    if not extension.has_op(_KERNEL[family], device):
        return f"this build of the extension has no {device} kernel for {family}"
    return None


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


def choose(where: str, family: str, backend: str, device: str) -> str:
    """The backend for an operator of `family` on a device type."""
    if backend == "auto":
        for candidate in _ORDER:
            if _OBSTACLE.get((candidate, family, device), "unknown device") is None:
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
