"""The layers."""

from .cheb import ChebConv
from .plaplacian import PLaplacianConv
from .plufg import PLUFGConv
from .ufg import UFGConv

__all__ = ["ChebConv", "PLUFGConv", "PLaplacianConv", "UFGConv"]
