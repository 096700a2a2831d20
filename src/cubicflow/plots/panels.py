"""Columns of a table as numbers that can be drawn, for data and samples alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cubicflow.tables.kinds.column import Column

Floats = NDArray[np.float64]

MOST_COLUMNS = 8
MOST_LABELS = 12


@dataclass(frozen=True)
class Panel:
    """One column: its values among the data and among the samples, and bins to count them in.

    >>> Panel("height", np.array([1.0, 2.0]), np.array([1.5]), np.array([0.0, 1.0, 2.0, 3.0])).labels
    ()
    """

    name: str
    data: Floats
    samples: Floats
    edges: Floats
    labels: tuple[str, ...] = ()  # of the levels 0, 1, 2 ...
    is_date: bool = False


def make_panel(column: Column, data: pa.Array, samples: pa.Array, bins: int = 40) -> Panel:
    """A column of data and one of samples, on common bins that follow the column's own steps."""
    real, drawn = _drawn(column, data), _drawn(column, samples)
    if column.is_list:
        labels = column.labels
        if len(labels) > MOST_LABELS and not column.is_ordered:
            real, drawn, labels = _with_others(real, drawn, labels)
        edges = np.arange(len(labels) + 1, dtype=np.float64) - 0.5
        return Panel(column.name, real, drawn, edges, labels if len(labels) <= MOST_LABELS else ())
    return Panel(column.name, real, drawn, _edges(real, column.axis_step, bins), is_date=column.on_calendar)


def _drawn(column: Column, array: pa.Array) -> Floats:
    """Where values lie on an axis, NaN for those that are missing."""
    missing = pc.is_null(array, nan_is_null=True).to_numpy(zero_copy_only=False)
    if not missing.any():
        return column.axis_values(array)
    places = np.full(len(array), np.nan)
    places[~missing] = column.axis_values(array.filter(pa.array(~missing)))
    return places


def most_telling(panels: Sequence[Panel], most: int = MOST_COLUMNS) -> list[Panel]:
    """The columns that have most to do with the others, by rank correlation, in their own order."""
    if len(panels) <= most:
        return list(panels)
    ranks = np.stack([_ranks(panel.data) for panel in panels])
    strength = np.abs(np.nan_to_num(np.corrcoef(ranks))).sum(axis=0)
    chosen = sorted(np.argsort(-strength, kind="stable")[:most])
    return [panels[i] for i in chosen]


def _with_others(real: Floats, drawn: Floats, labels: tuple[str, ...]) -> tuple[Floats, Floats, tuple[str, ...]]:
    """The words that most rows have, in their own order, and all others together."""
    rows = np.bincount(real.astype(np.int64), minlength=len(labels))
    kept = np.sort(np.argsort(-rows, kind="stable")[: MOST_LABELS - 1])
    place = np.full(len(labels), float(len(kept)))
    place[kept] = np.arange(len(kept))
    others = f"{len(labels) - len(kept):,} others"
    return place[real.astype(np.int64)], place[drawn.astype(np.int64)], (*(labels[i] for i in kept), others)


def _ranks(values: Floats) -> Floats:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - counts / 2)[place]


def _edges(values: Floats, step: float | None, bins: int) -> Floats:
    """Bins over all but the outermost thousandth of the data, a whole number of steps wide."""
    low, high = (float(v) for v in np.nanquantile(values, [0.001, 0.999]))
    if step is None:
        margin = 0.02 * (high - low) or 0.5
        return np.linspace(low - margin, high + margin, bins + 1)
    wide = step * max(1, round((high - low) / step / bins))
    return np.arange(low - 0.5 * step, high + wide, wide) if high > low else np.array([low - step, low + step])
