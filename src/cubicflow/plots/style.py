"""What all pictures share."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

DATA = "#3b6fb6"
SAMPLES = "#e07b39"
INK = "#333333"
DATA_MAP = "Blues"
SAMPLES_MAP = "Oranges"


def plain(text: str, most: int = 40) -> str:
    """A column's name as a label: dollars are dollars, not mathematics, and long names end in dots."""
    return (text if len(text) <= most else f"{text[: most - 1]}…").replace("$", r"\$")


def make_figure(width: float, height: float) -> Figure:
    """A figure that belongs to no window."""
    return Figure(figsize=(width, height), layout="constrained")


def panel_grid(count: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure of ``count`` panels of this size, four in a line."""
    columns = min(4, max(count, 1))
    lines = max(-(-count // columns), 1)
    figure = make_figure(width * columns, height * lines)
    grid = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axes in grid[count:]:
        axes.set_axis_off()
    return figure, grid[:count]
