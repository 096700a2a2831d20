"""Similarities of single columns (shape) and of pairs of columns (trend), which SDMetrics calls scores: 1 is best.

Single columns, without missing values:

- numbers: 1 - the Kolmogorov-Smirnov statistic (KSComplement)
- words: 1 - the total variation distance (TVComplement)

Pairs of columns:

- two columns of numbers: 1 - half the absolute difference of Pearson's correlations, over rows with both values
  (CorrelationSimilarity)
- other pairs: 1 - the total variation distance of the contingency tables, in which missing counts as a value
  (ContingencySimilarity). Numbers are put into ten bins of equal width, and missing values into an eleventh.

SDMetrics has two rules for the edges of the bins. ContingencySimilarity uses the edges of the real column for both
tables, and opens the outermost bins. The QualityReport, whose scores are often published, bins each table by the edges
of that table: the report misses a shift, and one distant sampled value moves all edges. :func:`trend` returns both.
Both count all pairs, as do the reports of SDMetrics 0.11 and 0.20. The report of SDMetrics 0.32 omits pairs that are
weakly related in the real table.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.model.rules import Codes, codes_of

BINS = 10
MOST_CELLS = 1 << 22  # cells of a contingency table; only occurring cells of a larger table are counted
Similarity = float | None  # None if it is not defined


class Pair(NamedTuple):
    """The similarity of a pair of columns, given by their indices, with the bins of the real table and with own bins.

    The two are the same for two columns of numbers, which need no bins.
    """

    first: int
    second: int
    similarity: Similarity
    with_own_bins: Similarity


def shape(real: Floats, sampled: Floats, is_word: NDArray[np.bool_]) -> list[Similarity]:
    """Return the similarity of each column; None for a column without values in one of the tables.

    >>> real, sampled = np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([[3.0], [4.0], [5.0], [6.0]])
    >>> shape(real, sampled, np.array([False]))
    [0.5]
    """
    found: list[Similarity] = []
    for a, b, has_words in zip(real.T, sampled.T, is_word, strict=True):
        a, b = a[~np.isnan(a)], b[~np.isnan(b)]
        if not len(a) or not len(b):
            found.append(None)
            continue
        values = np.unique(np.concatenate([a, b]))
        below = [np.searchsorted(np.sort(column), values, side="right") / len(column) for column in (a, b)]
        if has_words:
            shares = [np.diff(cumulative, prepend=0) for cumulative in below]
            found.append(1 - float(np.abs(shares[0] - shares[1]).sum()) / 2)
        else:
            found.append(1 - float(np.abs(below[0] - below[1]).max()))
    return found


def trend(real: Floats, sampled: Floats, is_word: NDArray[np.bool_]) -> list[Pair]:
    """Return the similarity of each pair of columns; None if the correlation of two columns of numbers is not defined.

    >>> x = np.arange(8.0)
    >>> [round(pair.similarity, 6) for pair in trend(np.stack([x, x], 1), np.stack([x, -x], 1), np.array([False] * 2))]
    [0.0]
    """
    real, sampled = np.asfortranarray(real), np.asfortranarray(sampled)  # contiguous columns, which are read many times
    pairs = list(combinations(range(real.shape[1]), 2))
    of_numbers = {(i, j) for i, j in pairs if not is_word[i] and not is_word[j]}
    correlations = {(i, j): _correlation_similarity(real, sampled, i, j) for i, j in of_numbers}
    codes = codes_of(real, sampled)
    found: list[list[Similarity]] = []
    for has_own_bins in (False, True):
        for column in np.flatnonzero(~is_word):
            own = [_edges(table[:, column], closed=has_own_bins) for table in (real, sampled)]
            for table, coded, edges in zip((real, sampled), codes, own if has_own_bins else own[:1] * 2, strict=True):
                coded[:, column] = np.digitize(table[:, column], edges)  # np.digitize puts NaN after the last edge
        found.append(
            [correlations[p] if p in of_numbers else _contingency_similarity(codes[0], codes[1], *p) for p in pairs]
        )
    return [Pair(i, j, *both) for (i, j), *both in zip(pairs, *found, strict=True)]


def mean_similarity(similarities: Iterable[Similarity]) -> Similarity:
    """Return the mean of the defined similarities; None if no similarity is defined."""
    known = [each for each in similarities if each is not None]
    return float(np.mean(known)) if known else None


def _edges(values: Floats, *, closed: bool) -> Floats:
    """Return the edges of ten equal bins from the smallest value to the largest.

    The outermost edges are infinite unless ``closed``. The edges equal those of ``numpy.histogram_bin_edges``, which
    refuses very narrow bins.
    """
    known = values[~np.isnan(values)]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 1.0)
    edges = np.linspace(low - 0.5 * (low == high), high + 0.5 * (low == high), BINS + 1)
    if not closed:
        edges[0], edges[-1] = -np.inf, np.inf
    return edges


def _correlation_similarity(real: Floats, sampled: Floats, i: int, j: int) -> Similarity:
    correlations = []
    for table in (real, sampled):
        known = ~np.isnan(table[:, i] + table[:, j])
        x, y = (values if known.all() else values[known] for values in (table[:, i], table[:, j]))
        if len(x) < 2 or x.min() == x.max() or y.min() == y.max():
            return None
        x, y = _centred(x), _centred(y)
        correlations.append(float(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1, 1)))
    return 1 - abs(correlations[0] - correlations[1]) / 2


def _centred(values: Floats) -> Floats:
    """Return the values shifted to mean 0 and scaled to about 1. The values must not all be equal."""
    moved = values / 2 - values[0] / 2  # exact if all values are close to one another; halves cannot overflow
    moved /= np.abs(moved).max()
    centred: Floats = moved - moved.mean()
    return centred


def _contingency_similarity(real: Codes, sampled: Codes, i: int, j: int) -> float:
    """Return 1 - the total variation distance between the shares of the cells (value of i, value of j)."""
    first, second = (np.concatenate([real[:, column], sampled[:, column]]) + 1 for column in (i, j))  # 0: missing
    cells = first * (second.max() + 1) + second
    count = int(cells.max()) + 1
    if count > MOST_CELLS:
        known, cells = np.unique(cells, return_inverse=True)
        count = len(known)
    split = len(real)
    shares = [np.bincount(part, minlength=count) / len(part) for part in (cells[:split], cells[split:])]
    return 1 - float(np.abs(shares[0] - shares[1]).sum()) / 2
