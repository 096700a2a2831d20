"""The histogram of a column of codes: a bin for every frequent code, and shared bins for the rest."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cubicflow.tables.maps import Histogram

MOST_BINS = 256
FEWEST_ROWS = 32  # in a bin: its share is then known to about a sixth
PRIOR = 0.5  # rows added to every bin, so that none is impossible
FRACTION_OF_RANGE = 40  # how far outside an unseen code may lie, at least, without being a surprise


class CodeCounts:
    """Weighted counts of codes, merged batch by batch. Beyond ``most`` distinct codes, neighbours are pooled."""

    def __init__(self, most: int = 1 << 17) -> None:
        self.most = most
        self.pooled = 1  # neighbouring codes that share a count
        self.codes: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.counts: NDArray[np.float64] = np.empty(0)

    def see(self, codes: NDArray[np.int64], weights: NDArray[np.float64] | None) -> None:
        joined = np.concatenate([self.codes, codes // self.pooled])
        counts = np.concatenate([self.counts, np.ones(len(codes)) if weights is None else weights])
        self._merge(joined, counts)
        while len(self.codes) > self.most:
            self.pooled *= 2
            self._merge(self.codes // 2, self.counts)

    def _merge(self, codes: NDArray[np.int64], counts: NDArray[np.float64]) -> None:
        self.codes, place = np.unique(codes, return_inverse=True)
        self.counts = np.bincount(place, weights=counts, minlength=len(self.codes)).astype(np.float64)


def histogram_of_levels(counts: NDArray[np.float64]) -> Histogram:
    """One bin a level, closed at both ends: for words and truth values."""
    masses = (counts + PRIOR) / (counts + PRIOR).sum()
    return Histogram(tuple(range(len(counts) + 1)), tuple(masses.tolist()))


def histogram_of_codes(seen: CodeCounts, low: int | None, high: int | None) -> Histogram:
    """Bins of ordered codes. ``low`` and ``high`` are hard limits (the first possible code, the last), or None."""
    wide = seen.pooled
    total = float(seen.counts.sum())
    enough = max(FEWEST_ROWS, total / MOST_BINS)
    starts: list[int] = []
    counts: list[float] = []

    def close(start: int, count: float, end: int) -> None:
        if start < end:
            starts.append(start)
            counts.append(count)

    start = int(seen.codes[0]) * wide
    if low is not None and low < start:
        close(low, 0.0, start)
    gathered = 0.0
    for code, count in zip((seen.codes * wide).tolist(), seen.counts.tolist(), strict=True):
        if count >= enough:  # frequent: a bin of its own
            close(start, gathered, code)
            close(code, count, code + wide)
            start, gathered = code + wide, 0.0
            continue
        gathered += count
        if gathered >= enough:
            close(start, gathered, code + wide)
            start, gathered = code + wide, 0.0
    end = int(seen.codes[-1]) * wide + wide
    close(start, gathered, end)
    if high is not None and high + 1 > end:
        close(end, 0.0, high + 1)
        end = high + 1
    edges = [*starts, end]
    shares = np.array(counts) + PRIOR
    outside = PRIOR / (total + 4 * PRIOR)
    span = end - edges[0]
    return Histogram(
        tuple(edges),
        tuple((shares / shares.sum()).tolist()),
        below=0.0 if low is not None else outside,
        above=0.0 if high is not None else outside,
        reach_below=_reach(edges[1] - edges[0], counts[0], span),
        reach_above=_reach(edges[-1] - edges[-2], counts[-1], span),
    )


def _reach(width: int, count: float, span: int) -> float:
    """The mean distance beyond an end. Of n values with exponential tails the furthest is ln n of them out, so the
    outermost bin is about that many of them wide."""
    return max(width / math.log(count + math.e), span / FRACTION_OF_RANGE)
