import warnings
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from simt.build import Unavailable, build, load

from plufg_fast import extension

OPERATORS = ("plap_step", "plap_steps", "plap_step_backward", "cheb_step", "cheb_analysis", "cheb_synthesis")


def module(stem: str) -> ModuleType:
    try:
        return load(stem, build(stem))
    except Unavailable as reason:
        pytest.skip(f"no emulation of CUDA: {reason}")


@pytest.fixture(scope="session")
def selftest() -> ModuleType:
    return module("selftest")


@pytest.fixture(scope="session")
def kernels() -> ModuleType:
    """The kernels of csrc/cuda, emulated, as torch.ops.plufg_simt."""
    return module("kernels")


@pytest.fixture
def emulated(kernels: ModuleType) -> Iterator[ModuleType]:
    """They serve in place of the CPU kernels, so that tests and gradients are those of every other backend.

    Rows of more than 16 edges are long, as small graphs have to have some.
    """
    if not extension.loaded():
        pytest.skip(f"no extension: {extension.why_not()}")
    library = torch.library.Library("plufg", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        for name in OPERATORS:
            library.impl(name, getattr(torch.ops.plufg_simt, name).default, "CPU", allow_override=True)
    kernels.seed(0)
    kernels.set_chunk_edges(16)
    yield kernels
    library._destroy()
