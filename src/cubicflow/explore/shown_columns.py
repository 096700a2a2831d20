"""What the page knows of a column: its name, its axis, and the bins in which its probability is shown.

Rows are plain numbers y here, as :mod:`cubicflow.tables` has them: codes of words and steps, values of real numbers,
NaN for a gap. The page sees ``start + unit * y``: the value itself, or seconds since 1970 of a date.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.cells import Cells, NumberCells
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.kinds.levels import Levelled

MOST_BINS = 48
MOST_LISTED = 24  # words that are shown one by one
MOST_MENU = 400  # words that a menu offers
DAY = 86_400.0
OUTERMOST = 0.001  # of the rows on either side are beyond the axis


@dataclass(frozen=True)
class ShownColumn:
    """One column, with bins of plain numbers.

    Attributes:
        levels: for a list of values, those that have a bar of their own; the last bar is for all others, if any.
        labels: the texts of all levels, empty for numbers.
        edges: for numbers, of the bins, in plain numbers; a bin is [edge, next edge).
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
    values: tuple[float, ...] = ()  # the plain number of every label
    edges: tuple[float, ...] = ()

    @property
    def is_list(self) -> bool:
        return bool(self.labels)

    @cached_property
    def bins(self) -> int:
        """How many masses there are, without that of the gap."""
        return len(self.levels) + (len(self.levels) < len(self.values)) if self.is_list else len(self.edges) - 1

    def shown(self, y: Floats) -> Floats:
        """Plain numbers as the page has them."""
        return y if self.is_list else self.start + self.unit * y

    def bin_of(self, y: Floats) -> NDArray[np.int64]:
        """Return the bin of every plain number: ``bins`` for a gap, -1 for what is beyond the axis."""
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
        """Return the share of rows in every bin, (bins + 1,), the last for gaps."""
        place = self.bin_of(y)
        there = place >= 0
        counted = np.bincount(
            place[there], None if weights is None else weights[there], minlength=self.bins + 1
        ).astype(np.float64)
        total = float(len(y)) if weights is None else float(weights.sum())
        found: Floats = counted / max(total, 1e-300)
        return found

    def to_json(self) -> dict[str, Any]:
        """What the page is told. Of many words, a menu has the first; any may be typed."""
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
    """Return a column of a fitted table, with bins for these plain numbers."""
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
    return ShownColumn(**about, edges=tuple(_edges(there, whole=column.counts_mass).tolist()))


def plain_column(name: str, y: Floats) -> ShownColumn:
    """Return a column of an array: real numbers without a schema.

    >>> plain_column("x", np.linspace(0, 1, 100)).bins
    48
    """
    return ShownColumn(name, "real", "density per unit", edges=tuple(_edges(y[np.isfinite(y)], whole=False).tolist()))


def _affine(column: Column) -> tuple[float, float]:
    """From plain numbers to what is shown."""
    if not column.counts_mass:
        return 0.0, 1.0
    first, second = column.drawn(column.decode(np.array([0.0, 1.0]))).tolist()
    scale = DAY if column.on_calendar else 1.0
    if second > first:
        return first * scale, (second - first) * scale
    step = column.drawn_step or 1.0  # limits keep samples from one of the two codes
    return first * scale, step * scale


def _decimals(column: Column) -> int | None:
    if column.on_calendar:
        return None
    if column.decimals is not None:
        return column.decimals
    step = column.drawn_step
    if step is None:
        return None
    return next((d for d in range(10) if abs(round(step, d) - step) < 1e-12 * max(1.0, abs(step))), 9)


def _frequent(values: tuple[float, ...], y: Floats, column: Levelled) -> tuple[float, ...]:
    """Return the levels that have a bar: all of a few, else the most frequent ones; words by frequency, numbers by size."""
    counts = np.bincount(y.astype(np.int64), minlength=len(values))
    if len(values) <= MOST_LISTED and column.is_ordered:
        return values
    order = np.argsort(-counts, kind="stable")
    most = MOST_LISTED if len(values) <= MOST_LISTED else MOST_LISTED - 1
    return tuple(float(i) for i in order[:most])


def _edges(y: Floats, *, whole: bool) -> Floats:
    """Bins over all but the outermost thousandth of the rows; those of codes are whole numbers of steps wide."""
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
