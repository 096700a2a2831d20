"""One column at a time and two columns at a time, as SDMetrics defines it: 1 is a perfect score, 0 the worst.

A column of numbers scores 1 - the Kolmogorov-Smirnov statistic (KSComplement), a column of words 1 - the distance in
total variation (TVComplement); gaps are left out. Two columns of numbers score 1 - half the difference of Pearson's
correlations over rows with both (CorrelationSimilarity), two columns of words 1 - the distance in total variation of
their contingency tables, in which a gap is a value (ContingencySimilarity). Beside words, numbers are put into ten bins
of equal width, with the gaps in a bin of their own.

SDMetrics has two rules for those bins. ContingencySimilarity takes the edges of the real column for both tables, and
opens the outermost bins. The QualityReport, whose figures are often published, takes for each table the edges of that
table: it misses a shift, and a single sampled value far away moves all edges. :func:`trend` gives the first, and on
request the second. Either way all pairs count, as they do in the report of SDMetrics 0.11 and 0.20; that of 0.32 leaves
out pairs that are weakly related in the real table.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.dependencies import Codes, codes_of

BINS = 10
MOST_CELLS = 1 << 22  # of a contingency table that is counted in an array
Score = float | None  # None where a score is not defined
Binning = Literal["real", "own"]
BINNINGS: tuple[Binning, ...] = ("real", "own")


@dataclass(frozen=True)
class PairScore:
    """The score of columns ``first`` and ``second``, by their places."""

    first: int
    second: int
    score: Score


def shape(real: Floats, sampled: Floats, is_word: NDArray[np.bool_]) -> list[Score]:
    """The score of each column; None for a column without values in one of the tables.

    >>> real, sampled = np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([[3.0], [4.0], [5.0], [6.0]])
    >>> shape(real, sampled, np.array([False]))
    [0.5]
    """
    scores: list[Score] = []
    for a, b, wordy in zip(real.T, sampled.T, is_word, strict=True):
        a, b = a[~np.isnan(a)], b[~np.isnan(b)]
        if not len(a) or not len(b):
            scores.append(None)
            continue
        values = np.unique(np.concatenate([a, b]))
        below = [np.searchsorted(np.sort(column), values, side="right") / len(column) for column in (a, b)]
        if wordy:
            shares = [np.diff(cumulated, prepend=0) for cumulated in below]
            scores.append(1 - float(np.abs(shares[0] - shares[1]).sum()) / 2)
        else:
            scores.append(1 - float(np.abs(below[0] - below[1]).max()))
    return scores


def trend(real: Floats, sampled: Floats, is_word: NDArray[np.bool_], edges: Binning = "real") -> list[PairScore]:
    """The score of each pair of columns; None where a column of a pair of numbers is constant.

    ``edges="own"`` bins each table by its own edges, as SDMetrics' QualityReport does.

    >>> x = np.arange(8.0)
    >>> [round(pair.score, 6) for pair in trend(np.stack([x, x], 1), np.stack([x, -x], 1), np.array([False, False]))]
    [0.0]
    """
    real, sampled = np.asfortranarray(real), np.asfortranarray(sampled)  # every column is read many times
    codes = codes_of(real, sampled)
    for column in np.flatnonzero(~is_word):
        own = [_edges(table[:, column], closed=edges == "own") for table in (real, sampled)]
        chosen = own if edges == "own" else [own[0], own[0]]
        for table, coded, bounds in zip((real, sampled), codes, chosen, strict=True):
            coded[:, column] = np.digitize(table[:, column], bounds)  # NaN comes after the last edge
    scores = []
    for i, j in combinations(range(real.shape[1]), 2):
        numbers = not is_word[i] and not is_word[j]
        score = _correlation_score(real, sampled, i, j) if numbers else _contingency_score(codes[0], codes[1], i, j)
        scores.append(PairScore(i, j, score))
    return scores


def mean_score(scores: list[Score]) -> Score:
    """The mean of the scores that are defined; None if none is."""
    known = [score for score in scores if score is not None]
    return float(np.mean(known)) if known else None


def _edges(values: Floats, *, closed: bool) -> Floats:
    """Of ten bins from the smallest value to the largest, as numpy.histogram_bin_edges, which refuses narrow bins."""
    known = values[~np.isnan(values)]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 1.0)
    edges = np.linspace(low - 0.5 * (low == high), high + 0.5 * (low == high), BINS + 1)
    if not closed:
        edges[0], edges[-1] = -np.inf, np.inf
    return edges


def _correlation_score(real: Floats, sampled: Floats, i: int, j: int) -> Score:
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
    """Values that are not all the same, without their mean and of size 1, whatever their unit and place."""
    moved = values / 2 - values[0] / 2  # exact where all are close to one another; halves do not overflow
    moved /= np.abs(moved).max()
    centred: Floats = moved - moved.mean()
    return centred


def _contingency_score(real: Codes, sampled: Codes, i: int, j: int) -> float:
    """1 - the total variation distance between the shares of the cells (value of i, value of j)."""
    first, second = (np.concatenate([real[:, column], sampled[:, column]]) + 1 for column in (i, j))  # gaps are 0
    cells = first * (second.max() + 1) + second
    count = int(cells.max()) + 1
    if count > MOST_CELLS:
        known, cells = np.unique(cells, return_inverse=True)
        count = len(known)
    split = len(real)
    shares = [np.bincount(part, minlength=count) / len(part) for part in (cells[:split], cells[split:])]
    return 1 - float(np.abs(shares[0] - shares[1]).sum()) / 2
