"""The compiled extension: loaded once, when the package is imported.

Without it everything works on the reference path. Why it is not there is kept, for `plufg_fast.info` and for
the error of a call that asks for the ``cpp`` backend.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import warnings
from types import ModuleType
from typing import Any, Final

import torch

from .version import __version__

_REBUILD: Final = "pip install --no-build-isolation --force-reinstall --no-deps"
_DISPATCH_KEYS: Final = {"cpu": "CPU", "cuda": "CUDA"}


def _load() -> tuple[ModuleType | None, str | None]:
    """The extension, or the reason why it is not used; warns, unless it was switched off on purpose."""
    if os.environ.get("PLUFG_EXTENSION") == "0":
        return None, "it is switched off by PLUFG_EXTENSION=0"
    name = f"{__package__}._C"
    try:
        module = importlib.import_module(name)
    except (ImportError, OSError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            reason = "it was not built (no C++ compiler at installation, or PLUFG_BUILD=0)"
        else:
            reason = f"it cannot be loaded ({error})"
    else:
        built = getattr(module, "version", "unknown")
        if built == __version__:
            return module, None
        reason = f"it was built for version {built} of the package, this is {__version__}"
    warnings.warn(
        f"plufg_fast: the compiled extension is not used: {reason}. The slower reference path serves "
        f"instead. To build it, install a C++ compiler and run, in the source folder: {_REBUILD} .",
        UserWarning,
        # The line that imports the package: past this function, this module and the package itself.
        stacklevel=4,
    )
    return None, reason


_module, _reason = _load()

# Read once: a lookup in a constant is something torch.compile can trace.
_kernels: Final = frozenset(
    (op.removeprefix("plufg::"), device)
    for device, key in (_DISPATCH_KEYS.items() if _module is not None else ())
    for op in torch._C._dispatch_get_registrations_for_dispatch_key(key)
    if op.startswith("plufg::")
)


def loaded() -> bool:
    """Whether the compiled operators can be used."""
    return _module is not None


def why_not() -> str | None:
    """Why the extension is not used, or None if it is."""
    return _reason


def has_op(name: str, device_type: str) -> bool:
    """Whether the extension has a kernel of operator ``plufg::name`` for ``"cpu"`` or ``"cuda"``."""
    return (name, device_type) in _kernels


def cuda_archs() -> list[str]:
    """The GPUs that the extension has CUDA kernels for, such as ``["80", "90"]``."""
    return [arch for arch in getattr(_module, "cuda_archs", "").split(";") if arch]


def info() -> dict[str, Any]:
    """What is installed, how it was built and which backend can serve what; meant for a bug report."""
    from .ops import backend  # the operators import this module

    return {
        "version": __version__,
        "torch": str(torch.__version__),
        "torch_geometric": _installed("torch_geometric"),
        "triton": _installed("triton"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "extension": {
            "loaded": loaded(),
            "reason": _reason,
            "built_with_torch": getattr(_module, "torch_version", None),
        },
        "cpu_isa": {"chosen": _chosen_isa(), "compiled": list(getattr(_module, "isas", ()))},
        "cuda": {
            "compiled_archs": cuda_archs(),
            "available": torch.cuda.is_available(),
        },
        "threads": torch.get_num_threads(),
        "backends": backend.available(),
    }


def _installed(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _chosen_isa() -> str | None:
    if _module is None:
        return None
    try:
        return str(_module.cpu_isa())
    except RuntimeError as error:
        # PLUFG_CPU_ISA asks for one that cannot run: a report should say so, not fail.
        return f"error: {error}"
