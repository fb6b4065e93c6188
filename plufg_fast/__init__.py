"""p-Laplacian regularised framelet graph networks for PyTorch Geometric, on fused kernels."""

from . import extension, nn, ops
from .extension import info
from .framelets import Framelet
from .graph import Graph
from .penalties import Penalty
from .version import __version__

__all__ = ["Framelet", "Graph", "Penalty", "__version__", "extension", "info", "nn", "ops"]
