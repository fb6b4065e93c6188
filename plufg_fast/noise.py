"""Feature noise, to see what a network withstands."""

from __future__ import annotations

import torch
from torch import Tensor


def flip_features(x: Tensor, rate: float, seed: int = 0) -> Tensor:
    """Binary features of which every entry is flipped, 0 to 1 and 1 to 0, with probability ``rate``.

    Bags of words have few ones, so that even 5 % of flips add more words than there were.

    Args:
        x: Features of zeros and ones, ``[N, C]``.
        rate: From 0 to 1.
        seed: Fixes what is flipped; the global random state is neither read nor changed.

    Raises:
        ValueError: If the rate is out of range or the features are not binary.
    """
    if not 0.0 <= rate <= 1.0:
        raise ValueError(f"flip_features: expected rate in [0, 1], got {rate}")
    if not bool(((x == 0) | (x == 1)).all()):
        raise ValueError("flip_features: expected features of zeros and ones, got others")
    generator = torch.Generator(x.device).manual_seed(seed)
    flipped = torch.empty(x.shape, dtype=torch.bool, device=x.device).bernoulli_(rate, generator=generator)
    return torch.where(flipped, 1 - x, x)
