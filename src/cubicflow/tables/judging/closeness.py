"""Copies of training rows among samples, and distances to the closest training row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats

MOST_QUERIES = 2_000  # rows whose distance is measured
MOST_TRAIN = 20_000  # training rows that are searched
AT_ONCE = 1 << 22  # distances in memory at once
LOW = 0.05  # level of the low quantile of distances


@dataclass(frozen=True)
class Closeness:
    """Copies of training rows, and distances to the closest training row.

    Attributes:
        copies: the share of all rows that equal a training row in every column.
        median, low: the median and the 5 % quantile of the distance to the closest training row.
        rows, train_rows: the numbers of measured rows and of training rows that were searched.
    """

    copies: float
    median: float
    low: float
    rows: int
    train_rows: int


def closeness(rows: Floats, train: Floats, is_word: NDArray[np.bool_], seed: int = 0) -> Closeness:
    """Return how close ``rows`` (M, D) are to the training rows (N, D).

    Distances are measured from at most 2,000 rows to at most 20,000 training rows, which are drawn with the seed. The
    same seed draws the same training rows for every table.

    >>> train = np.array([[1.0, 0.0], [2.0, 1.0], [3.0, 1.0], [4.0, 0.0]])
    >>> closeness(np.array([[1.0, 0.0], [2.0, 0.0]]), train, np.array([False, True]))
    Closeness(copies=0.5, median=0.0625, low=0.00625, rows=2, train_rows=4)
    """
    known = _subsample(train, MOST_TRAIN, seed)
    queries = _subsample(rows, MOST_QUERIES, seed)
    distances = closest_distances(queries, known, is_word)
    low, median = np.quantile(distances, [LOW, 0.5])
    return Closeness(share_of_copies(rows, train), float(median), float(low), len(queries), len(known))


def share_of_copies(rows: Floats, train: Floats) -> float:
    """Return the share of ``rows`` that equal a training row in every column. Two missing values are equal.

    >>> share_of_copies(np.array([[1.0, np.nan], [1.0, 2.0]]), np.array([[1.0, np.nan]]))
    0.5
    """
    known = set(_row_bytes(train))
    return float(np.mean([row in known for row in _row_bytes(rows)]))


def closest_distances(rows: Floats, train: Floats, is_word: NDArray[np.bool_]) -> Floats:
    """Return the distance (M,) of each of ``rows`` (M, D) to the closest training row (N, D).

    The distance is the mean over columns. A column of numbers counts the difference of quantiles, which is the share of
    training rows between the two values; units and long tails do not matter. A column of words counts 0 or 1. A missing
    value has distance 1 from any value and 0 from another missing value.

    >>> closest_distances(np.array([[2.5]]), np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([False]))
    array([0.125])
    """
    scaled = np.stack([_quantiles(rows[:, j], train[:, j], bool(is_word[j])) for j in range(rows.shape[1])])
    known = np.stack([_quantiles(train[:, j], train[:, j], bool(is_word[j])) for j in range(rows.shape[1])])
    at_once = max(AT_ONCE // len(train), 1)
    closest = []
    for start in range(0, len(rows), at_once):
        total = np.zeros((min(at_once, len(rows) - start), len(train)))
        for values, others, has_words in zip(scaled[:, start : start + at_once], known, is_word, strict=True):
            # The code of a missing value is -1. The code differs from all words, and its distance from quantiles is at
            # least 1.
            total += values[:, None] != others if has_words else np.minimum(np.abs(values[:, None] - others), 1)
        closest.append(total.min(axis=1))
    distances: Floats = np.concatenate(closest) / rows.shape[1]
    return distances


def _quantiles(values: Floats, train: Floats, has_words: bool) -> Floats:
    """Return the quantiles in [0, 1] of values among the training values. Ties get their middle.

    The codes of words are returned unchanged. A missing value is -1.
    """
    if has_words:
        return np.where(np.isnan(values), -1, values)
    known = np.sort(train[~np.isnan(train)])
    below, through = (np.searchsorted(known, values, side) for side in ("left", "right"))
    return np.where(np.isnan(values), -1, (below + through) / (2 * max(len(known), 1)))


def _subsample(rows: Floats, most: int, seed: int) -> Floats:
    if len(rows) <= most:
        return rows
    return rows[np.random.default_rng(seed).choice(len(rows), most, replace=False)]


def _row_bytes(rows: Floats) -> list[bytes]:
    plain = np.where(np.isnan(rows), np.nan, rows + 0.0)  # equal values get equal bytes: one NaN, and 0.0 for -0.0
    return [row.tobytes() for row in np.ascontiguousarray(plain)]
