"""Tests that run the Triton kernels in Triton's interpreter; `../test_interpreter.py` starts them in a process of
their own, where TRITON_INTERPRET is set before anything imports Triton.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
collect_ignore_glob = [] if INTERPRETED else ["test_*.py"]

if INTERPRETED:
    import triton.language as tl
    from triton.runtime import interpreter
    from triton_forms import KERNELS, SCALES


@pytest.fixture(scope="session", autouse=True)
def launched() -> set[tuple[Any, ...]]:
    """The forms in which kernels were launched, so far."""
    seen: set[tuple[Any, ...]] = set()

    def watch(name: str) -> None:
        kernel, optional, flags, _ = KERNELS[name]
        names = kernel.fn.arg_names

        def note(*args: Any, **kwargs: Any) -> None:
            values = dict(zip(names, args, strict=False)) | kwargs
            form = {key: values[key] is not None for key in optional} | {key: values[key] for key in (*flags, "WINDOW")}
            seen.add((name, *form.items()))
            if name == "recur":
                seen.update((key, values[key] is not None, values["WINDOW"]) for key in SCALES)

        kernel.fn.add_pre_run_hook(note)

    for name in KERNELS:
        watch(name)
    return seen


@pytest.fixture(scope="session", autouse=True)
def _quick() -> Iterator[None]:
    """The interpreter patches triton.language anew in every function that a kernel calls; once a launch will do."""
    patch_language, running = interpreter._patch_lang, []

    class Scope:
        def __init__(self, *functions: Any) -> None:
            self.scopes = [patch_language(function) for function in functions]
            running.append(self)

        def restore(self) -> None:
            running.remove(self)
            for scope in reversed(self.scopes):
                scope.restore()

    def once(function: Any) -> Any:
        # Functions of the language itself, as tl.sum, see its names through another module.
        return running[0] if running else Scope(function, tl.sum.fn)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", once)
        yield
