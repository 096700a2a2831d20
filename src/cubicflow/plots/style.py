"""The common style of all figures."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font

DATA = "#3b6fb6"
SAMPLES = "#e07b39"
INK = "#333333"
DATA_MAP = "Blues"
SAMPLES_MAP = "Oranges"
BOX = "□"  # drawn for a character that the font lacks


def plain(text: str, most: int = 40) -> str:
    """Return a column's name as a label of one line.

    Dollar signs are escaped, blanks of any kind become single spaces, characters that the font lacks become boxes, and
    long names lose their middle: names that begin alike often differ at their ends.

    >>> plain("price\\tof 2019 in $", 11)
    'price o…n \\\\$'
    """
    line = " ".join(text.split())
    end = (most - 1) // 3
    shown = line if len(line) <= most else f"{line[: most - 1 - end]}…{line[-end:]}"
    font = get_font(findfont(FontProperties()))
    return "".join(c if font.get_char_index(ord(c)) else BOX for c in shown).replace("$", r"\$")


def make_figure(width: float, height: float) -> Figure:
    """Return a figure without a window. ``width`` and ``height`` are in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def panel_grid(count: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with ``count`` panels, four in a line. ``width`` and ``height`` of a panel are in inches."""
    columns = min(4, max(count, 1))
    lines = max(-(-count // columns), 1)
    figure = make_figure(width * columns, height * lines)
    grid = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axes in grid[count:]:
        axes.set_axis_off()
    return figure, grid[:count]
