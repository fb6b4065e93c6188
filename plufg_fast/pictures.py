"""The style of all pictures: of reports, searches, benchmarks and the demonstration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Of the networks.
COLORS: Final = {
    "mlp": "#868e96",
    "gcn": "#f08c00",
    "sgc": "#e8590c",
    "gat": "#ffd43b",
    "jknet": "#a61e4d",
    "appnp": "#37b24d",
    "gprgnn": "#0ca678",
    "ufg": "#15aabf",
    "pgnn": "#9c36b5",
    "pl-ufg1": "#1c7ed6",
    "pl-ufg2": "#3b5bdb",
    "pl-fufg": "#0b2f8a",
}
# Of lines that belong to one network.
CYCLE: Final = ("#f08c00", "#37b24d", "#3b5bdb", "#a61e4d", "#15aabf", "#868e96", "#212529", "#e8590c")
# What is looked at, what stands out against it, and what is there for comparison.
MAIN, ACCENT, NEUTRAL = "#3b5bdb", "#f08c00", "#868e96"
INK, GRID = "#212529", "#dee2e6"


def new_figure(width: float, height: float) -> Any:
    """A figure of a size in inches."""
    # Figures made without pyplot need no display and leave no global state behind.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=130, layout="constrained")


def finish(axes: Axes, title: str, grid: Any = "y") -> None:
    """Give a panel its title and its style."""
    axes.set_title(title, fontsize=9.5, loc="left", fontweight="bold", color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color=GRID, lw=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)
