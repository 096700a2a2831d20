"""Columns of data and samples as numbers on an axis, with common bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cubicflow.tables.kinds.circular import CircularColumn
from cubicflow.tables.kinds.column import Column

Floats = NDArray[np.float64]

MOST_COLUMNS = 8  # columns of a figure of pairs
MOST_LABELS = 12  # labels of an axis


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
    is_date: bool = False


def make_panel(column: Column, data: pa.Array, samples: pa.Array, bins: int = 40) -> Panel:
    """Return the panel of a column. The width of a bin is a multiple of the column's step."""
    real, drawn = _drawn(column, data), _drawn(column, samples)
    if column.is_list:
        labels = column.labels
        if len(labels) > MOST_LABELS and not column.is_ordered:
            real, drawn, labels = _with_others(real, drawn, labels)
        edges = np.arange(len(labels) + 1, dtype=np.float64) - 0.5
        return Panel(column.name, real, drawn, edges, labels if len(labels) <= MOST_LABELS else ())
    edges = _edges_of_turn(column, bins) if isinstance(column, CircularColumn) else _edges(real, column.axis_step, bins)
    return Panel(column.name, real, drawn, edges, is_date=column.on_calendar)


def _drawn(column: Column, array: pa.Array) -> Floats:
    """Return the position of each value on an axis; NaN for a missing value."""
    missing = pc.is_null(array, nan_is_null=True).to_numpy(zero_copy_only=False)
    if not missing.any():
        return column.axis_values(array)
    places = np.full(len(array), np.nan)
    places[~missing] = column.axis_values(array.filter(pa.array(~missing)))
    return places


def most_correlated(panels: Sequence[Panel], most: int = MOST_COLUMNS) -> list[Panel]:
    """Return the ``most`` columns with the largest sum of absolute rank correlations, in their original order."""
    if len(panels) <= most:
        return list(panels)
    ranks = np.stack([_ranks(panel.data) for panel in panels])
    with np.errstate(invalid="ignore"):  # a column with one value has no correlation
        strength = np.abs(np.nan_to_num(np.corrcoef(ranks))).sum(axis=0)
    chosen = sorted(np.argsort(-strength, kind="stable")[:most])
    return [panels[i] for i in chosen]


def _with_others(real: Floats, drawn: Floats, labels: tuple[str, ...]) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Keep the most frequent labels in their original order, and merge all others into one label. A missing value stays
    missing."""
    rows = np.bincount(real[~np.isnan(real)].astype(np.int64), minlength=len(labels))
    kept = np.sort(np.argsort(-rows, kind="stable")[: MOST_LABELS - 1])
    place = np.full(len(labels) + 1, float(len(kept)))
    place[kept] = np.arange(len(kept))
    place[-1] = np.nan
    others = f"{len(labels) - len(kept):,} others"
    found = [place[np.where(np.isnan(values), len(labels), values).astype(np.int64)] for values in (real, drawn)]
    return found[0], found[1], (*(labels[i] for i in kept), others)


def _ranks(values: Floats) -> Floats:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - counts / 2)[place]


def _edges_of_turn(column: CircularColumn, bins: int) -> Floats:
    """Return edges of bins that cover a circle once. With a step, a bin spans whole steps; the last may be narrower."""
    low, high = column.ends
    step = column.axis_step
    if step is None:
        return np.linspace(low, high, bins + 1)
    codes = round(column.turn[1])
    return low + step * (np.append(np.arange(0, codes, max(1, round(codes / bins))), codes) - 0.5)


def _edges(values: Floats, step: float | None, bins: int) -> Floats:
    """Return edges of bins between the 0.1 % and 99.9 % quantiles. With a step, a bin spans whole steps."""
    here = values[~np.isnan(values)]
    low, high = (float(v) for v in np.quantile(here if len(here) else np.zeros(1), [0.001, 0.999]))
    if step is None:
        margin = 0.02 * (high - low) or 0.02 * abs(low) or 0.5
        return np.linspace(low - margin, high + margin, bins + 1)
    width = step * max(1, round((high - low) / step / bins))
    return np.arange(low - 0.5 * step, high + width, width) if high > low else np.array([low - step, low + step])
