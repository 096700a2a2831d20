"""Histograms of data and samples: of single columns, and of pairs of columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from cubicflow.plots.panels import Panel
from cubicflow.plots.style import DATA, DATA_MAP, INK, SAMPLES, SAMPLES_MAP, make_figure, panel_grid, plain


def marginals(panels: Sequence[Panel]) -> Figure:
    """Draw a histogram of every column: data as a filled area, samples as a line.

    >>> rng = np.random.default_rng(0)
    >>> panel = Panel("height", rng.normal(size=100), rng.normal(size=100), np.linspace(-3, 3, 13))
    >>> marginals([panel]).axes[0].get_title()
    'height'
    """
    figure, grid = panel_grid(len(panels), 3.0, 2.4)
    for axes, panel in zip(grid, panels, strict=True):
        _draw_one(axes, panel)
        axes.set_title(plain(panel.name), fontsize=9)
        _scale(axes, panel, "x")
    grid[0].legend(frameon=False, fontsize=8)
    return figure


def corner(panels: Sequence[Panel]) -> Figure:
    """Draw all pairs of columns: data below the diagonal, samples above it, both on the diagonal.

    >>> rng = np.random.default_rng(0)
    >>> panel = Panel("height", rng.normal(size=100), rng.normal(size=100), np.linspace(-3, 3, 13))
    >>> len(corner([panel, panel]).axes)
    4
    """
    n = len(panels)
    size = max(1.5 * n, 4)
    figure = make_figure(size, size)
    grid = figure.subplots(n, n, squeeze=False)
    for i, row in enumerate(panels):
        for j, column in enumerate(panels):
            axes = grid[i, j]
            if i == j:
                _draw_one(axes, row)
                axes.set_yticks([])
            else:
                _draw_two(axes, column, row, samples=j > i)
            _scale(axes, column, "x", shown=i == n - 1)
            if i != j:
                _scale(axes, row, "y", shown=j == 0)
            if i == n - 1:
                axes.set_xlabel(plain(column.name), fontsize=8)
            if j == 0:
                axes.set_ylabel(plain(row.name), fontsize=8)
    figure.suptitle("data (blue, below the diagonal) and samples (orange, above)", fontsize=9, color=INK)
    return figure


def _draw_one(axes: Axes, panel: Panel) -> None:
    shares = [np.histogram(values, panel.edges)[0] / max(len(values), 1) for values in (panel.data, panel.samples)]
    axes.stairs(shares[0], panel.edges, fill=True, color=DATA, alpha=0.55, label="data")
    axes.stairs(shares[1], panel.edges, color=SAMPLES, linewidth=1.4, label="samples")
    axes.tick_params(labelsize=7)


def _draw_two(axes: Axes, across: Panel, up: Panel, *, samples: bool) -> None:
    values = (across.samples, up.samples) if samples else (across.data, up.data)
    counts, _, _ = np.histogram2d(*values, bins=(across.edges, up.edges))
    # The square root makes thin tails visible.
    axes.pcolormesh(
        across.edges, up.edges, np.sqrt(counts.T), cmap=SAMPLES_MAP if samples else DATA_MAP, rasterized=True
    )


def _scale(axes: Axes, panel: Panel, which: str, *, shown: bool = True) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xlim if which == "x" else axes.set_ylim)(panel.edges[0], panel.edges[-1])
    axis.set_tick_params(labelsize=6)
    if panel.labels:
        axis.set_ticks(range(len(panel.labels)))
        axis.set_ticklabels([plain(label, 14) for label in panel.labels], rotation=90 if which == "x" else 0)
    elif panel.is_date:
        locator = AutoDateLocator(maxticks=4)
        axis.set_major_locator(locator)
        axis.set_major_formatter(ConciseDateFormatter(locator))
    if not shown:
        axis.set_ticklabels([])
