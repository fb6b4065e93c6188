from types import ModuleType

import pytest
from simt.build import Unavailable, build, load


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
    """The kernels of csrc/cuda, emulated."""
    return module("kernels")
