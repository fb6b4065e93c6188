"""In which precision operators sum, and in which order."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

# Numbers that torch sums in one thread.
_ONE_THREAD: Final = 2**14


def working_type(x: Tensor) -> torch.dtype:
    """The precision to compute in: half precision is storage, sums over many edges and recurrences need more."""
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype


def sum_over_nodes(rows: Tensor) -> Tensor:
    """``rows.sum(0)``, in an order that does not depend on the number of threads."""
    while rows.numel() > _ONE_THREAD and rows.size(0) > 1:
        half = rows.size(0) // 2
        # A row in the middle, if there is one, waits for the next round.
        rest = rows[half : rows.size(0) - half]
        rows = torch.cat((rows[:half] + rows[-half:], rest))
    return rows.sum(0)
