"""Layers with PyG's contract, and the networks made of them (`models`)."""

from . import models
from .conv import ChebConv, PLaplacianConv, PLUFGConv, UFGConv

__all__ = ["ChebConv", "PLUFGConv", "PLaplacianConv", "UFGConv", "models"]
