"""Columns of data and samples with common bins, and their histograms: of single columns, and of pairs of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cubicflow.plots.style import DATA, DATA_MAP, INK, SAMPLES, SAMPLES_MAP, make_figure, panel_grid, plain
from cubicflow.tables import Column
from cubicflow.tables.query import DAY, axis_of
from cubicflow.weights import Floats

MOST_COLUMNS = 8  # columns of a figure of pairs
MOST_LABELS = 12  # labels of an axis
MOST_BINS = 40  # bins of a column of numbers
PANEL = 3.0, 2.4  # width and height of the panel of one column, in inches
LABEL = 6  # size of the labels of ticks, in points
LETTER = 0.6 * LABEL / 72  # width of a letter of such a label, in inches
BELOW = 9  # points below the labels of ticks, which leave room for a factor such as 1e7


@dataclass(frozen=True)
class Panel:
    """Column of a table: its values in the data and in the samples, and common bins.

    >>> Panel("height", np.array([1.0, 2.0]), np.array([1.5]), np.array([0.0, 1.0, 2.0, 3.0])).labels
    ()
    """

    name: str
    data: Floats
    samples: Floats
    edges: Floats
    labels: tuple[str, ...] = ()  # labels of the positions 0, 1, 2, ...
    is_date: bool = False  # positions are days since 1970


def make_panel(column: Column, data: Floats, samples: Floats) -> Panel:
    """Return the panel of a column, from the plain numbers of data and samples.

    Words have the order of their codes. A step lies in the middle of its bin.
    """
    bars = len(column.labels) if column.is_list and column.is_ordered else MOST_LABELS
    axis = axis_of(column, data, bins=MOST_BINS, bars=bars)
    if axis.is_list:
        axis = replace(axis, levels=tuple(sorted(axis.levels)))
        edges, labels = np.arange(axis.bins + 1, dtype=np.float64) - 0.5, axis.bars if axis.bins <= MOST_LABELS else ()
        return Panel(column.name, axis.positions(data), axis.positions(samples), edges, labels)
    unit = DAY if axis.is_date else 1.0
    real, drawn, edges = (axis.shown(y) / unit for y in (data, samples, np.asarray(axis.edges) - 0.5 * axis.is_whole))
    return Panel(column.name, real, drawn, edges, is_date=axis.is_date)


def most_correlated(panels: Sequence[Panel], most: int = MOST_COLUMNS) -> list[Panel]:
    """Return the ``most`` columns with the largest sum of absolute rank correlations, in their original order."""
    if len(panels) <= most:
        return list(panels)
    ranks = np.stack([_ranks(panel.data) for panel in panels])
    with np.errstate(invalid="ignore"):  # a column with one value has no correlation
        strength = np.abs(np.nan_to_num(np.corrcoef(ranks))).sum(axis=0)
    chosen = sorted(np.argsort(-strength, kind="stable")[:most])
    return [panels[i] for i in chosen]


def _ranks(values: Floats) -> Floats:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - counts / 2)[place]


# --- figures ---


def marginals(panels: Sequence[Panel]) -> Figure:
    """Draw a histogram of every column: data as a filled area, samples as a line.

    >>> rng = np.random.default_rng(0)
    >>> panel = Panel("height", rng.normal(size=100), rng.normal(size=100), np.linspace(-3, 3, 13))
    >>> marginals([panel]).axes[0].get_title()
    'height'
    """
    figure, grid = panel_grid(len(panels), *PANEL)
    for axes, panel in zip(grid, panels, strict=True):
        _draw_one(axes, panel)
        axes.set_title(plain(panel.name, 36), fontsize=9)
        _scale(axes, panel, "x", width=PANEL[0])
        missing = [float(np.isnan(values).mean()) if len(values) else 0.0 for values in (panel.data, panel.samples)]
        if any(missing):
            words = f"missing: {missing[0]:.1%} of the data, {missing[1]:.1%} of the samples"
            axes.set_xlabel(words, fontsize=7, labelpad=BELOW)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    return figure


def corner(panels: Sequence[Panel], left_out: int = 0) -> Figure:
    """Draw all pairs of columns: data below the diagonal, samples above it, both on the diagonal.

    The title gives the number of columns that were left out.

    >>> rng = np.random.default_rng(0)
    >>> panel = Panel("height", rng.normal(size=100), rng.normal(size=100), np.linspace(-3, 3, 13))
    >>> len(corner([panel, panel]).axes)
    4
    """
    n = len(panels)
    size = max(1.5 * n, 4)
    figure = make_figure(size, size)
    grid = figure.subplots(n, n, squeeze=False)
    for (i, j), axes in np.ndenumerate(grid):
        row, column = panels[i], panels[j]
        if i == j:
            _draw_one(axes, row)
            axes.set_yticks([])
        else:
            _draw_two(axes, column, row, samples=j > i)
            _scale(axes, row, "y", width=size / n, shown=j == 0)
        _scale(axes, column, "x", width=size / n, shown=i == n - 1)
        if i == n - 1:
            axes.set_xlabel(plain(column.name, 18), fontsize=8, labelpad=BELOW)
        if j == 0:
            axes.set_ylabel(plain(row.name, 18), fontsize=8)
    title = "data (blue, below the diagonal) and samples (orange, above)"
    if left_out:
        title += f"\n{n} of {n + left_out} columns, those with the largest rank correlations"
    figure.suptitle(title, fontsize=9, color=INK)
    figure.align_labels()
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


def _scale(axes: Axes, panel: Panel, which: str, *, width: float, shown: bool = True) -> None:
    """Set the limits, ticks and labels of an axis. ``width`` is that of the panel, in inches."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xlim if which == "x" else axes.set_ylim)(panel.edges[0], panel.edges[-1])
    axis.set_tick_params(labelsize=LABEL)
    axis.get_offset_text().set_fontsize(LABEL)
    if panel.labels:
        labels = [plain(label, 14) for label in panel.labels]
        fits = max(map(len, labels)) * LETTER < 0.7 * width / len(labels)
        axis.set_tick_params(labelsize=LABEL - (len(labels) > 8 and width < PANEL[0]))
        axis.set_ticks(range(len(labels)))
        axis.set_ticklabels(labels, rotation=90 if which == "x" and not fits else 0)
    elif panel.is_date:
        # Two to five ticks: every span of time has such ticks, and matplotlib warns where it finds none.
        locator = AutoDateLocator(minticks=2, maxticks=5)
        axis.set_major_locator(locator)
        axis.set_major_formatter(ConciseDateFormatter(locator))
    else:
        axis.set_major_locator(_ticks(axis, panel, width))
    if not shown:
        axis.set_tick_params(labelbottom=False, labelleft=False)
        axis.get_offset_text().set_visible(False)


def _ticks(axis: Axis, panel: Panel, width: float) -> MaxNLocator:
    """Return the ticks of an axis of numbers: as many as have room for their labels, at most six."""
    low, high = float(panel.edges[0]), float(panel.edges[-1])
    most = 5 if width >= PANEL[0] else 3
    while True:
        locator = MaxNLocator(most, steps=[1, 2, 3, 4, 5, 10])
        inside = [tick for tick in locator.tick_values(low, high) if low <= tick <= high]
        labels = axis.get_major_formatter().format_ticks(inside)
        if most == 1 or sum(map(len, labels)) * LETTER < 0.6 * width:
            return locator
        most -= 1
