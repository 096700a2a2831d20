"""The training curve of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from cubicflow.plots.style import DATA, INK, SAMPLES, make_figure

MOST = 1e30  # larger losses, and losses that are not finite, are left out
LINES = (
    ("loss", "training", DATA),
    ("validation_loss", "validation", SAMPLES),
    ("validation_loss_averaged", "validation, averaged weights", INK),
)


def training_curve(history: Sequence[dict[str, Any]]) -> Figure:
    """Plot losses against steps, from the lines of metrics.jsonl.

    >>> axes = training_curve([{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.5}]).axes[0]
    >>> axes.lines[0].get_label()
    'training'
    """
    figure = make_figure(7, 4)
    axes = figure.subplots()
    values: list[float] = []
    for key, label, colour in LINES:
        points = [
            (line["step"], line[key])
            for line in history
            if isinstance(line.get(key), int | float) and abs(line[key]) < MOST
        ]
        if points:
            axes.plot(*zip(*points, strict=True), color=colour, label=label, linewidth=1.2)
            values += [value for _, value in points]
    if values:  # limit the axis: the large losses of the first steps would flatten the rest
        ordered = sorted(values)
        low, high = ordered[0], ordered[int(0.95 * (len(ordered) - 1))]
        margin = 0.05 * (high - low) or 1.0
        axes.set_ylim(low - margin, high + 3 * margin)
        axes.legend(frameon=False)
    axes.set(title="Training", xlabel="step", ylabel="nats per row, in the model's own units")
    return figure
