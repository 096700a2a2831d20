"""Are samples copies of training rows? New rows of the same table say how many copies are no cause for alarm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats

MOST_QUERIES = 2_000  # rows whose closest training row is looked for
MOST_TRAIN = 20_000  # training rows that are looked through
AT_ONCE = 1 << 22  # distances in memory
LOW = 0.05


@dataclass(frozen=True)
class Closeness:
    """Copies of training rows, and distances to the closest training row.

    Attributes:
        copies: the share of rows that are equal to a training row in every column, over all rows.
        median, low: the median and the 5 % quantile of the distance to the closest training row.
        rows, train_rows: how many rows were measured, and among how many training rows.
    """

    copies: float
    median: float
    low: float
    rows: int
    train_rows: int


def closeness(rows: Floats, train: Floats, is_word: NDArray[np.bool_], seed: int = 0) -> Closeness:
    """How close ``rows`` (M, D) come to the training rows (N, D).

    Distances are taken from at most 2,000 rows to at most 20,000 training rows, drawn by the seed: the same training
    rows for every table that is measured with that seed.

    >>> train = np.array([[1.0, 0.0], [2.0, 1.0], [3.0, 1.0], [4.0, 0.0]])
    >>> closeness(np.array([[1.0, 0.0], [2.0, 0.0]]), train, np.array([False, True]))
    Closeness(copies=0.5, median=0.0625, low=0.00625, rows=2, train_rows=4)
    """
    known = _drawn(train, MOST_TRAIN, seed)
    queries = _drawn(rows, MOST_QUERIES, seed)
    distances = closest_distances(queries, known, is_word)
    low, median = np.quantile(distances, [LOW, 0.5])
    return Closeness(share_of_copies(rows, train), float(median), float(low), len(queries), len(known))


def share_of_copies(rows: Floats, train: Floats) -> float:
    """The share of ``rows`` that are a training row in every column; a gap equals a gap.

    >>> share_of_copies(np.array([[1.0, np.nan], [1.0, 2.0]]), np.array([[1.0, np.nan]]))
    0.5
    """
    known = set(_row_bytes(train))
    return float(np.mean([row in known for row in _row_bytes(rows)]))


def closest_distances(rows: Floats, train: Floats, is_word: NDArray[np.bool_]) -> Floats:
    """The distance (M,) of each of ``rows`` (M, D) to the closest training row (N, D): the mean over columns.

    A column of numbers counts the difference of quantiles: the share of training rows between two values. So no unit
    matters, and no long tail. A column of words counts 0 or 1. A gap is at distance 1 from any value, 0 from a gap.

    >>> closest_distances(np.array([[2.5]]), np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([False]))
    array([0.125])
    """
    scaled = np.stack([_quantiles(rows[:, j], train[:, j], bool(is_word[j])) for j in range(rows.shape[1])])
    known = np.stack([_quantiles(train[:, j], train[:, j], bool(is_word[j])) for j in range(rows.shape[1])])
    at_once = max(AT_ONCE // len(train), 1)
    closest = []
    for start in range(0, len(rows), at_once):
        total = np.zeros((min(at_once, len(rows) - start), len(train)))
        for values, others, wordy in zip(scaled[:, start : start + at_once], known, is_word, strict=True):
            # the code of a gap is -1: apart from other words as it is, and at least 1 from all quantiles
            total += values[:, None] != others if wordy else np.minimum(np.abs(values[:, None] - others), 1)
        closest.append(total.min(axis=1))
    distances: Floats = np.concatenate(closest) / rows.shape[1]
    return distances


def _quantiles(values: Floats, train: Floats, wordy: bool) -> Floats:
    """Places in [0, 1] among the training values, in the middle of those that are equal; codes as they are; -1 for
    gaps."""
    if wordy:
        return np.where(np.isnan(values), -1, values)
    known = np.sort(train[~np.isnan(train)])
    below, through = (np.searchsorted(known, values, side) for side in ("left", "right"))
    return np.where(np.isnan(values), -1, (below + through) / (2 * max(len(known), 1)))


def _drawn(rows: Floats, most: int, seed: int) -> Floats:
    if len(rows) <= most:
        return rows
    return rows[np.random.default_rng(seed).choice(len(rows), most, replace=False)]


def _row_bytes(rows: Floats) -> list[bytes]:
    plain = np.where(np.isnan(rows), np.nan, rows + 0.0)  # one NaN of many, and no -0.0
    return [row.tobytes() for row in np.ascontiguousarray(plain)]
