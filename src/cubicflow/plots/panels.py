"""Columns of data and samples as positions on one axis, with common bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cubicflow.tables import Column
from cubicflow.tables.query import DAY, axis_of
from cubicflow.weights import Floats

MOST_COLUMNS = 8  # columns of a figure of pairs
MOST_LABELS = 12  # labels of an axis
MOST_BINS = 40  # bins of a column of numbers


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
