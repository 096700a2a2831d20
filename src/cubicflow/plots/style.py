"""What all pictures share."""

from __future__ import annotations

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
