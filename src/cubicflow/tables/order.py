"""The order of the words of a categorical column.

A word becomes a piece of the real line, so some words end up side by side. The best neighbours are words whose rows are
alike: words are ordered by the mean ranks of the table's numbers among their rows, seen along the direction in which
the words differ most. In a table without numbers, by frequency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.tables.column import LEVELLED, Column
from cubicflow.tables.values import to_numbers


def ordered_levels(column: Column, numeric: Sequence[Column], sample: pa.Table) -> Column:
    """The column with its levels in their best order, judged by a sample of rows."""
    codes = to_numbers(column, sample.column(column.name).combine_chunks()).astype(np.int64)
    count = len(column.levels)
    rows = np.bincount(codes, minlength=count).astype(np.float64)
    place = -rows  # the most frequent first
    if numeric:
        means = np.stack([_mean_ranks(other, sample, codes, rows) for other in numeric], axis=1)
        direction = np.linalg.svd(np.sqrt(rows)[:, None] * means, full_matrices=False)[2][0]
        direction *= np.sign(direction[np.abs(direction).argmax()]) or 1.0
        place = np.where(rows > 0, means @ direction, np.inf)  # words outside the sample come last
    return _reordered(column, sorted(range(count), key=lambda i: (float(place[i]), i)))


def _mean_ranks(
    other: Column, sample: pa.Table, codes: NDArray[np.int64], rows: NDArray[np.float64]
) -> NDArray[np.float64]:
    y = to_numbers(other, sample.column(other.name).combine_chunks())
    _, place, counts = np.unique(y, return_inverse=True, return_counts=True)
    ranks = ((np.cumsum(counts) - counts / 2) / len(y) - 0.5)[place]  # ties share their mean rank
    return np.bincount(codes, weights=ranks, minlength=len(rows)) / np.maximum(rows, 1)


def _reordered(column: Column, order: Sequence[int]) -> Column:
    return replace(column, levels=tuple(column.levels[i] for i in order))


def is_numeric(column: Column) -> bool:
    """Whether the column's values have an order of their own."""
    return column.kind not in LEVELLED or column.kind == "levels"
