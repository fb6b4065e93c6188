import os
from collections.abc import Iterator

import pytest
import torch

# Several workers share the cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _poisoned_and_seeded() -> Iterator[None]:
    """Fill uninitialised memory with NaN, so that an entry nobody wrote fails a test; and fix the seed."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)
