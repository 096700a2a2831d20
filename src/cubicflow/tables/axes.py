"""The axis of a column: the bins of a histogram, their labels, and the values on the axis.

The page, the report and the figures count the rows of a column in the bins of its axis. A column of words, or of a few
numbers, has a bar for each of its frequent values, and one bar for all other values. A column of numbers or dates has
bins between the outermost thousandths of its rows. Bins of steps span whole steps, and bins of a circle cover one turn.
Missing values have a bin of their own, the last one.

Rows are plain numbers y: codes of words and steps, values of real numbers, NaN for a missing value. The axis shows the
value ``start + unit * y``; for a date, it is the seconds since 1970.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.laws.cells import Cells, NumberCells
from cubicflow.tables.schema.sets import Set
from cubicflow.weights import weighted_quantiles

MOST_BINS = 48  # largest number of bins of a column of numbers
MOST_BARS = 24  # largest number of values with their own bar
QUANTILES = (0.05, 0.5, 0.95)  # levels of the quantiles of a column
DAY = 86_400.0  # seconds
OUTERMOST = 0.001  # fraction of the rows beyond the axis, on either side


@dataclass(frozen=True)
class Axis:
    """The bins of one column.

    Attributes:
        column: the column.
        has_gaps: whether values may be missing.
        start, unit: the value of the plain number 0, and the distance of the values of neighbouring plain numbers.
        values, labels: the plain numbers and the texts of all values of a list; empty for numbers.
        levels: for a list, the plain numbers with their own bar; one more bar has all other values, if any.
        edges: for numbers, the edges of the bins, in plain numbers; a bin is [edge, next edge).
    """

    column: Column
    has_gaps: bool = False
    start: float = 0.0
    unit: float = 1.0
    values: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    levels: tuple[float, ...] = ()
    edges: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def is_list(self) -> bool:
        return bool(self.labels)

    @property
    def is_date(self) -> bool:
        return self.column.on_calendar

    @property
    def is_whole(self) -> bool:
        """Whether plain numbers are the codes of steps."""
        return self.column.counts_mass and not self.column.is_list

    @property
    def has_others(self) -> bool:
        """Whether the last bar has the values without their own bar."""
        return len(self.levels) < len(self.values)

    @cached_property
    def bins(self) -> int:
        """The number of bins, without the bin of missing values."""
        return len(self.levels) + self.has_others if self.is_list else len(self.edges) - 1

    @cached_property
    def bars(self) -> tuple[str, ...]:
        """The labels of the bars of a list."""
        own = (self.labels[self.values.index(level)] for level in self.levels)
        return (*own, *([f"{len(self.values) - len(self.levels):,} others"] if self.has_others else []))

    @cached_property
    def sets(self) -> Set:
        """The plain numbers of every bin, and the missing value: a set for each of the bins + 1 masses."""
        found = [Set.points([level]) for level in self.levels]
        if self.has_others:
            among = np.ones(len(self.values), np.bool_)
            among[np.asarray(self.levels, np.int64)] = False
            found.append(Set.codes(among))
        for first, after in pairwise(self.edges):
            found.append(Set.between((first, after - 1 if self.is_whole else math.nextafter(after, -math.inf))))
        return Set.stacked([*found, Set.between(gap=True)])

    def shown(self, y: Floats) -> Floats:
        """Convert plain numbers to the values on the axis."""
        return y if self.is_list else self.start + self.unit * y

    def bin_of(self, y: Floats) -> NDArray[np.int64]:
        """Return the bin of every plain number: ``bins`` for a missing value, -1 for a number beyond the axis."""
        gap = np.isnan(y)
        if self.is_list:
            levels = np.asarray(self.levels)
            order = np.argsort(levels)
            place = np.clip(np.searchsorted(levels[order], np.where(gap, 0, y)), 0, len(levels) - 1)
            found = np.where(levels[order][place] == y, order[place], self.bins - 1 if self.has_others else -1)
        else:
            edges = np.asarray(self.edges)
            found = np.searchsorted(edges, np.where(gap, edges[0], y), side="right") - 1
            found = np.where(found < self.bins, found, -1)
        return np.where(gap, self.bins, found).astype(np.int64)

    def positions(self, y: Floats) -> Floats:
        """Return where points of rows are drawn: the number of the bar for a list, else the value; NaN for a missing
        value, and for a value that a list has not.
        """
        if not self.is_list:
            return self.shown(y)
        bar = self.bin_of(y)
        return np.where((bar < 0) | (bar == self.bins), np.nan, bar)

    def masses(self, y: Floats) -> Floats:
        """Return the share of rows in every bin, (bins + 1,). The last bin has missing values."""
        bin = self.bin_of(y)
        return np.bincount(bin[bin >= 0], minlength=self.bins + 1) / max(len(y), 1)

    def quantiles(self, y: Floats, weights: Floats | None = None) -> Floats:
        """Return the quantiles of the rows at the levels QUANTILES, as values on the axis; NaN for a list, and if all
        values are missing.

        A quantile is the value of a row, so single values with a large share are found exactly. On a circle, the order
        of the values begins opposite to their mean direction.

        >>> from cubicflow.tables.kinds.real import Real
        >>> axis_of(Real("x", "double"), np.arange(101.0)).quantiles(np.arange(101.0)).tolist()
        [5.0, 50.0, 95.0]
        """
        known = np.isfinite(y)
        if weights is not None:
            known &= weights > 0
        if self.is_list or not known.any():
            return np.full(len(QUANTILES), np.nan)
        y, mass = y[known], np.ones(known.sum()) if weights is None else weights[known]
        order = y  # along the line, or once around the circle
        if self.column.turn is not None:
            low, high = self.column.turn
            angle = (y - low) * (2 * math.pi / (high - low))
            start = math.atan2(-(mass @ np.sin(angle)), -(mass @ np.cos(angle)))
            order = np.mod(angle - start, 2 * math.pi)
        rows = np.argsort(order, kind="stable")
        places = weighted_quantiles(np.arange(float(len(y))), mass[rows], np.asarray(QUANTILES) * mass.sum())
        return self.shown(y[rows[places.astype(np.int64)]])


def axis_of(
    column: Column, y: Floats, cells: Cells | None = None, *, bins: int = MOST_BINS, bars: int = MOST_BARS
) -> Axis:
    """Return the axis of a column, with at most so many bins or bars, which fit the plain numbers y.

    ``cells`` are those of a model of columns: the numbers of a short list have a bar each.

    >>> from cubicflow.tables.kinds.real import Real
    >>> axis_of(Real("x", "double"), np.linspace(0, 1, 100)).bins
    48
    """
    known = y[np.isfinite(y)]
    has_gaps = cells.gaps if cells is not None else bool(np.isnan(y).any())
    if column.is_list:
        values = tuple(float(i) for i in range(len(column.levels)))
        return Axis(column, has_gaps, values=values, labels=column.labels, levels=_frequent(column, known, bars))
    start, unit = _affine(column)
    if isinstance(cells, NumberCells) and cells.listed:
        values = tuple(sorted(cells.atoms))
        labels = tuple(str(value) for value in column.decode(np.asarray(values)).to_pylist())
        return Axis(column, has_gaps, start, unit, values, labels, levels=values)
    turn = column.turn
    return Axis(column, has_gaps, start, unit, edges=tuple(_edges(known, turn, bins, whole=column.counts_mass)))


def _affine(column: Column) -> tuple[float, float]:
    """Return start and unit of the map from plain numbers to values on the axis."""
    if not column.counts_mass:
        return 0.0, 1.0
    first, second = column.axis_values(column.decode(np.array([0.0, 1.0]))).tolist()
    # A limit of the column may clip codes 0 and 1 to the same value, so the step is read from the column.
    step = second - first if second > first else column.axis_step or 1.0
    scale = DAY if column.on_calendar else 1.0
    return first * scale, step * scale


def _frequent(column: Column, y: Floats, most: int) -> tuple[float, ...]:
    """Return the codes of the values with their own bar: all values if there are few, else the most frequent ones.

    A short list of ordered values keeps its order. All others are sorted by frequency.
    """
    count = len(column.levels)
    if count <= most and column.is_ordered:
        return tuple(float(i) for i in range(count))
    order = np.argsort(-np.bincount(y.astype(np.int64), minlength=count), kind="stable")
    return tuple(float(i) for i in order[: most if count <= most else most - 1])


def _edges(y: Floats, turn: tuple[float, float] | None, bins: int, *, whole: bool) -> list[float]:
    """Return bin edges that cover one turn of a circle, or all but the outermost thousandths of the rows.

    Bins of codes span whole steps. The last bin of a turn may be narrower. An axis of real numbers ends at 0 or 1 if
    the rows end near them, as shares do.

    >>> [round(edge, 9) for edge in _edges(np.linspace(0, 1, 101), None, 4, whole=False)]
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    if turn is None and not len(y):
        return [0.0, 1.0]
    low, high = turn or (float(v) for v in np.quantile(y, [OUTERMOST, 1 - OUTERMOST]))
    if turn is None and whole:
        low, high = math.floor(low), math.floor(high) + 1
    elif turn is None:
        margin = 0.01 * (high - low) or max(abs(low), 1.0) * 1e-3
        low = 0.0 if y.min() >= 0 > low - margin else low - margin
        high = math.nextafter(1.0, 2.0) if y.max() <= 1 < high + margin else high + margin  # 1 is inside the last bin
    if not whole:
        return list(np.linspace(low, high, bins + 1).tolist())
    width = max(1, math.ceil((high - low) / bins))
    edges = np.arange(low, high, width, dtype=np.float64).tolist()
    return [*edges, high if turn else edges[-1] + width]
