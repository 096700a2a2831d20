"""A column as the page shows it: its name, its axis, and the bins that show its probability.

Rows are plain numbers y, as in :mod:`cubicflow.tables`: codes for words and steps, values for real numbers, NaN for a
missing value. The page shows ``start + unit * y``: the value, or for a date the seconds since 1970.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.kinds.circular import CircularColumn
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.kinds.levels import Levelled
from cubicflow.tables.model.cells import Cells, NumberCells
from cubicflow.tables.model.law import Law
from cubicflow.tables.schema.sets import Set

MOST_BINS = 48  # largest number of bins of a column of numbers
MOST_LISTED = 24  # largest number of words with their own bar
MOST_MENU = 400  # largest number of words in a menu
LEVELS = (0.05, 0.5, 0.95)  # levels of the quantiles that the page prints
DAY = 86_400.0  # seconds
OUTERMOST = 0.001  # fraction of the rows beyond the axis, on either side


@dataclass(frozen=True)
class ShownColumn:
    """One column, with bins of plain numbers.

    Attributes:
        levels: for a list of values, the values with their own bar; one more bar shows all other values, if any.
        labels: the texts of all values of a list; empty for numbers.
        values: the plain numbers of all labels.
        edges: for numbers, the edges of the bins, in plain numbers; a bin is [edge, next edge).
    """

    name: str
    kind: str
    about: str
    start: float = 0.0
    unit: float = 1.0
    is_whole: bool = False
    is_date: bool = False
    has_gaps: bool = False
    is_given: bool = False
    decimals: int | None = None
    levels: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    values: tuple[float, ...] = ()
    edges: tuple[float, ...] = ()

    @property
    def is_list(self) -> bool:
        return bool(self.labels)

    @cached_property
    def bins(self) -> int:
        """The number of bins, without the bin of missing values."""
        return len(self.levels) + (len(self.levels) < len(self.values)) if self.is_list else len(self.edges) - 1

    @cached_property
    def sets(self) -> Set:
        """The plain numbers of every bin, and the missing value: a set for each of the bins + 1 masses."""
        found = [Set.points([level]) for level in self.levels]
        if self.is_list and self.bins > len(found):
            among = np.ones(len(self.values), np.bool_)
            among[np.asarray(self.levels, np.int64)] = False
            found.append(Set.codes(among))
        for first, after in pairwise(self.edges):
            found.append(Set.between((first, after - 1 if self.is_whole else math.nextafter(after, -math.inf))))
        return Set.stacked([*found, Set.between(gap=True)])

    @torch.no_grad()
    def law_masses(self, law: Law) -> Floats:
        """Return the probability of every bin in each row, (N, bins + 1). The last bin is for missing values."""
        return law.masses(law.coder.of(self.sets))

    def shown(self, y: Floats) -> Floats:
        """Convert plain numbers to the values on the page."""
        return y if self.is_list else self.start + self.unit * y

    def bin_of(self, y: Floats) -> NDArray[np.int64]:
        """Return the bin of every plain number: ``bins`` for a missing value, -1 for a number beyond the axis."""
        gap = np.isnan(y)
        if self.is_list:
            values = np.asarray(self.levels)
            order = np.argsort(values)
            place = np.clip(np.searchsorted(values[order], np.where(gap, 0, y)), 0, len(values) - 1)
            found = np.where(values[order][place] == y, order[place], self.bins - 1 if len(values) < self.bins else -1)
        else:
            edges = np.asarray(self.edges)
            found = np.searchsorted(edges, np.where(gap, edges[0], y), side="right") - 1
            found = np.where((found < 0) | (found >= self.bins), -1, found)
        return np.where(gap, self.bins, found).astype(np.int64)

    def masses(self, y: Floats, weights: Floats | None = None) -> Floats:
        """Return the share of rows in every bin, (bins + 1,). The last bin is for missing values."""
        place = self.bin_of(y)
        there = place >= 0
        counted = np.bincount(
            place[there], None if weights is None else weights[there], minlength=self.bins + 1
        ).astype(np.float64)
        total = float(len(y)) if weights is None else float(weights.sum())
        found: Floats = counted / max(total, 1e-300)
        return found

    def quantiles(self, y: Floats, weights: Floats | None = None) -> Floats:
        """Return the quantiles of the rows at LEVELS, as values on the page; NaN for words, or if all values are
        missing.

        A quantile is the value of a row, so single values with a large share are found exactly.

        >>> plain_column("x", np.arange(101.0)).quantiles(np.arange(101.0)).tolist()
        [5.0, 50.0, 95.0]
        """
        there = np.isfinite(y)
        if weights is not None:
            there &= weights > 0
        if self.is_list or not there.any():
            return np.full(len(LEVELS), np.nan)
        order = np.argsort(y[there], kind="stable")
        below = np.cumsum(np.ones(len(order)) if weights is None else weights[there][order])
        place = np.searchsorted(below, np.asarray(LEVELS) * below[-1]).clip(max=len(order) - 1)
        return self.shown(y[there][order][place])

    def to_json(self) -> dict[str, Any]:
        """Return the description for the page. A menu has the first MOST_MENU words; the user can type any word."""
        bars = [self.labels[self.values.index(level)] for level in self.levels] if self.is_list else []
        if self.is_list and len(bars) < self.bins:
            bars.append(f"{len(self.values) - len(self.levels):,} others")
        return {
            "name": self.name,
            "kind": self.kind,
            "about": self.about,
            "isList": self.is_list,
            "isDate": self.is_date,
            "isWhole": self.is_whole,
            "hasGaps": self.has_gaps,
            "isGiven": self.is_given,
            "decimals": self.decimals,
            "step": self.unit if self.is_whole else None,
            "bars": bars,
            "hasOthers": self.is_list and len(self.levels) < len(self.values),
            "menu": list(self.labels[:MOST_MENU]),
            "words": len(self.labels),
            "edges": [self.start + self.unit * edge for edge in self.edges],
        }


def shown_column(column: Column, y: Floats, cells: Cells | None = None, *, is_given: bool = False) -> ShownColumn:
    """Return a column of a fitted table, with bins that fit the plain numbers y."""
    about: dict[str, Any] = {"name": column.name, "kind": column.kind, "about": column.describe()}
    there = y[np.isfinite(y)]
    about |= {"has_gaps": cells.gaps if cells is not None else bool(np.isnan(y).any()), "is_given": is_given}
    if isinstance(column, Levelled):
        values = tuple(float(i) for i in range(len(column.levels)))
        return ShownColumn(**about, labels=column.labels, values=values, levels=_frequent(values, there, column))
    start, unit = _affine(column)
    about |= {"start": start, "unit": unit, "is_date": column.on_calendar, "decimals": _decimals(column)}
    about["is_whole"] = column.counts_mass
    if isinstance(cells, NumberCells) and cells.listed:
        values = tuple(sorted(cells.atoms))
        labels = tuple(str(value) for value in column.decode(np.asarray(values)).to_pylist())
        return ShownColumn(**about, labels=labels, values=values, levels=values)
    edges = _edges_of_turn(column) if isinstance(column, CircularColumn) else _edges(there, whole=column.counts_mass)
    return ShownColumn(**about, edges=tuple(edges.tolist()))


def plain_column(name: str, y: Floats) -> ShownColumn:
    """Return a column of an array, with real numbers and no schema.

    >>> plain_column("x", np.linspace(0, 1, 100)).bins
    48
    """
    return ShownColumn(name, "real", "density per unit", edges=tuple(_edges(y[np.isfinite(y)], whole=False).tolist()))


def _affine(column: Column) -> tuple[float, float]:
    """Return start and unit of the map from plain numbers to values on the page."""
    if not column.counts_mass:
        return 0.0, 1.0
    first, second = column.axis_values(column.decode(np.array([0.0, 1.0]))).tolist()
    scale = DAY if column.on_calendar else 1.0
    if second > first:
        return first * scale, (second - first) * scale
    # A limit of the column may clip codes 0 and 1 to the same value, so the step is read from the column.
    step = column.axis_step or 1.0
    return first * scale, step * scale


def _decimals(column: Column) -> int | None:
    if column.on_calendar:
        return None
    if column.decimals is not None:
        return column.decimals
    step = column.axis_step
    if step is None:
        return None
    return next((d for d in range(10) if abs(round(step, d) - step) < 1e-12 * max(1.0, abs(step))), 9)


def _frequent(values: tuple[float, ...], y: Floats, column: Levelled) -> tuple[float, ...]:
    """Return the levels with their own bar: all levels if there are few, else the most frequent ones.

    Words are sorted by frequency, a short list of ordered levels by size.
    """
    counts = np.bincount(y.astype(np.int64), minlength=len(values))
    if len(values) <= MOST_LISTED and column.is_ordered:
        return values
    order = np.argsort(-counts, kind="stable")
    most = MOST_LISTED if len(values) <= MOST_LISTED else MOST_LISTED - 1
    return tuple(float(i) for i in order[:most])


def _edges_of_turn(column: CircularColumn) -> Floats:
    """Return bin edges that cover a circle once. Bins of codes span whole steps; the last bin may be narrower."""
    low, high = column.turn
    if not column.counts_mass:
        return np.linspace(low, high, MOST_BINS + 1)
    return np.append(np.arange(low, high, math.ceil((high - low) / MOST_BINS)), high)


def _edges(y: Floats, *, whole: bool) -> Floats:
    """Return bin edges that cover all but the outermost thousandths of the rows. Bins of codes span whole steps."""
    if not len(y):
        return np.array([0.0, 1.0])
    low, high = (float(v) for v in np.quantile(y, [OUTERMOST, 1 - OUTERMOST]))
    if whole:
        first, last = math.floor(low), math.floor(high) + 1
        wide = max(1, math.ceil((last - first) / MOST_BINS))
        return np.arange(first, last + wide, wide, dtype=np.float64)
    margin = 0.01 * (high - low) or max(abs(low), 1.0) * 1e-3
    if y.min() >= 0 and low - margin < 0:
        return np.linspace(0.0, high + margin, MOST_BINS + 1)
    return np.linspace(low - margin, high + margin, MOST_BINS + 1)
