import pytest
import torch

from plufg_fast.ops import backend


@pytest.fixture(autouse=True)
def device() -> str:
    """The GPU that the tests of this folder need."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if backend.available()["cpp"]["cuda"] != ["plap", "cheb"]:
        pytest.skip("the extension was built without CUDA kernels")
    return "cuda"
