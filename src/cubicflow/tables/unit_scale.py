"""The distribution function of a single column, learned from training rows: it maps values to [0, 1] and back.

Between the edges it is piecewise linear. Beyond an open end it continues as an exponential with a small share of its
own, so unseen values have a place too. Beyond a closed end there is no probability. A place on [0, 1] is given by its
distances from 0 and from 1. Both are computed, because one minus a distance near 1 loses relative precision.

A column with steps has codes. Its edges are integers, and code k is the interval [k, k + 1). A frequent code has a bin
of its own. Other codes share bins of several rows each. In a shared bin, a part alpha of the probability is split among
the codes that were seen, in proportion to their counts. The rest is uniform, so no code is impossible. Alpha maximises
the leave-one-out likelihood of the training rows. It is near 0 for a smooth column, and near 1 for a column that holds
a few of many possible values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats

Ends = tuple[float | None, float | None]  # lower and upper hard limit, None for an open end

PRIOR = 0.5  # rows added to every bin, so that no bin is impossible
FEWEST_ROWS = 32  # rows in a bin of codes; with 32 rows, the standard error of the bin's share is a sixth of the share
MOST_BINS = 4096  # bins of codes
MOST_VALUES = 1 << 15  # codes with an interval of their own in shared bins
LEAST_ALPHA = 0.02  # a smaller alpha counts as 0
ROUNDS = 60  # rounds of expectation maximisation, for alpha
MOST_REAL_BINS = 64  # bins of a real column
REAL_ROWS = 50  # rows in a bin of a real column
FEWEST_AT_ENDS = 4  # rows in the outermost bins
FEWEST_RING_BINS = 24  # bins of codes on a circle
RING_ROWS = 20  # rows in a bin of a circle, which has no long tails
NEAR = 0.9  # share of the probability beyond an end that lies close to the end
FRACTION_OF_RANGE = 40  # a tail's mean distance beyond the end is at least the range divided by this


@dataclass(frozen=True)
class UnitScale:
    """A distribution function and its inverse, in float64.

    ``masses`` are the shares of the bins between ``edges``. ``below`` and ``above`` are the shares beyond the ends; a
    share of 0 closes an end. All shares sum to 1. ``reach_below`` and ``reach_above`` are the mean distances of the
    tails. A bin may have the mass 0, for values whose probability is not part of this scale.

    >>> scale = UnitScale((0.0, 1.0, 3.0), (0.5, 0.25), below=0.125, above=0.125, reach_below=2.0, reach_above=2.0)
    >>> low, high = scale.distances(np.array([1.0, 3.0]))
    >>> low.tolist(), high.tolist()
    ([0.625, 0.875], [0.375, 0.125])
    >>> scale.inverse(np.array([0.625, 0.75])).tolist()
    [1.0, 2.0]
    """

    edges: tuple[float, ...]
    masses: tuple[float, ...]
    below: float = 0.0
    above: float = 0.0
    reach_below: float = 1.0
    reach_above: float = 1.0

    def __post_init__(self) -> None:
        edges, masses = np.asarray(self.edges, np.float64), np.asarray(self.masses, np.float64)
        if edges.ndim != 1 or len(edges) != len(masses) + 1 or len(masses) < 1 or not (np.diff(edges) > 0).all():
            raise ValueError(
                f"edges must increase, and there must be one more edge than masses; got shapes {edges.shape} and "
                f"{masses.shape}"
            )
        if not np.isfinite(edges).all() or not (masses >= 0).all() or self.below < 0 or self.above < 0:
            raise ValueError(
                f"edges must be finite, and masses, below = {self.below} and above = {self.above} must be at least 0"
            )
        if not abs(float(masses.sum()) + self.below + self.above - 1) < 1e-6:
            raise ValueError(
                f"masses, below and above must sum to 1, got {float(masses.sum()) + self.below + self.above:g}"
            )
        if not (0 < self.reach_below < math.inf and 0 < self.reach_above < math.inf):
            raise ValueError(
                f"reach_below and reach_above must be positive and finite, got {self.reach_below} and "
                f"{self.reach_above}"
            )

    @cached_property
    def _tables(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Edges, slopes of the bins, and the distances of the edges' positions on [0, 1] from 0 and from 1."""
        edges, masses = np.asarray(self.edges, np.float64), np.asarray(self.masses, np.float64)
        # ``lower`` and ``upper`` are summed from opposite ends, so each keeps its relative precision near its own end.
        lower = self.below + np.concatenate([[0.0], np.cumsum(masses)])
        upper = self.above + np.concatenate([np.cumsum(masses[::-1])[::-1], [0.0]])
        return edges, masses / np.diff(edges), lower, upper

    @property
    def limits(self) -> tuple[float, float]:
        """The smallest and the largest value with any probability."""
        return -math.inf if self.below else self.edges[0], math.inf if self.above else self.edges[-1]

    def distances(self, y: Floats) -> tuple[Floats, Floats]:
        """Return the distances from 0 and from 1 of the values' positions on [0, 1]."""
        edges, slopes, lower, upper = self._tables
        bin = self._bin(y)
        inside = np.clip(y, edges[0], edges[-1])
        low = lower[bin] + slopes[bin] * (inside - edges[bin])
        high = upper[bin + 1] + slopes[bin] * (edges[bin + 1] - inside)
        under, over = self._beyond(y)
        tail_low, tail_high = (
            self.below * np.exp(-under / self.reach_below),
            self.above * np.exp(-over / self.reach_above),
        )
        low = np.where(under > 0, tail_low, np.where(over > 0, 1 - tail_high, low))
        high = np.where(over > 0, tail_high, np.where(under > 0, 1 - tail_low, high))
        return low, high

    def log_density(self, y: Floats) -> Floats:
        """Return the log of the slope at values; -inf if there is no probability."""
        _, slopes, _, _ = self._tables
        under, over = self._beyond(y)
        with np.errstate(divide="ignore"):
            inside = np.log(slopes[self._bin(y)])
            tail_low = np.log(self.below) - np.log(self.reach_below) - under / self.reach_below
            tail_high = np.log(self.above) - np.log(self.reach_above) - over / self.reach_above
        return np.where(under > 0, tail_low, np.where(over > 0, tail_high, inside))

    def log_mass(self, codes: Floats) -> Floats:
        """Return the log of the mass of [k, k + 1) for integers k; -inf if there is no probability.

        Edges must be integers too, so that a code lies in one bin.
        """
        _, slopes, _, _ = self._tables
        under, over = self._beyond(codes + 0.5)
        with np.errstate(divide="ignore"):
            inside = np.log(slopes[self._bin(codes + 0.5)])
            tail_low = np.log(self.below) - (under - 0.5) / self.reach_below + _log_first_step(1 / self.reach_below)
            tail_high = np.log(self.above) - (over - 0.5) / self.reach_above + _log_first_step(1 / self.reach_above)
        return np.where(under > 0, tail_low, np.where(over > 0, tail_high, inside))

    def span(self, first: Floats, last: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the places of intervals of values on [0, 1].

        A place is the distance of its lower end from 0, the distance of its upper end from 1, and its log width.

        The width is a sum of positive terms: the rest of the first bin, whole bins, the beginning of the last bin, and
        parts of the tails. So it has a small relative error even where 1 minus a distance is 0.

        >>> scale = UnitScale((0.0, 1.0), (0.5,), above=0.5)
        >>> low, high, log_width = scale.span(np.array([0.5, 400.0]), np.array([np.inf, np.inf]))
        >>> low.tolist(), high.tolist(), log_width.round(6).tolist()
        ([0.25, 1.0], [0.0, 0.0], [-0.287682, -399.693147])
        """
        edges, slopes, _, _ = self._tables
        first, last = np.maximum(first, self.limits[0]), np.minimum(last, self.limits[1])
        a, b = np.clip(first, edges[0], edges[-1]), np.clip(last, edges[0], edges[-1])
        begun = self._bin(a)
        ended = np.maximum(np.clip(np.searchsorted(edges, b) - 1, 0, len(slopes) - 1), begun)
        whole = [sum(self.masses[i + 1 : j]) for i, j in zip(begun.tolist(), ended.tolist(), strict=True)]
        across = slopes[begun] * (edges[begun + 1] - a) + np.asarray(whole) + slopes[ended] * (b - edges[ended])
        inside = np.where(begun == ended, slopes[begun] * np.maximum(b - a, 0), across)
        (from_a, beyond_a), (from_b, beyond_b) = self._beyond(first), self._beyond(last)
        with np.errstate(divide="ignore"):
            under = np.log(self.below) + _log_part(from_b, from_a, self.reach_below)
            over = np.log(self.above) + _log_part(beyond_a, beyond_b, self.reach_above)
            log_width = np.logaddexp(np.logaddexp(np.log(inside), under), over)
        return self.distances(first)[0], self.distances(last)[1], log_width

    def inverse(self, u: Floats) -> Floats:
        """Return the values whose positions on [0, 1] are u, in (0, 1)."""
        return self.values_at(u, np.maximum(1 - u, 2.0**-53))

    def values_at(self, low: Floats, high: Floats) -> Floats:
        """Return the values whose positions on [0, 1] have these distances from 0 and from 1.

        Each value is found from the nearer end. A distance below the smallest float64 counts as the smallest.
        """
        edges, slopes, lower, upper = self._tables
        low, high = (np.maximum(each, np.finfo(float).tiny) for each in (low, high))
        from_low = low <= high
        bin = np.searchsorted(lower, low, side="right") - 1
        bin = np.where(from_low, bin, np.searchsorted(-upper, -high, side="right") - 1).clip(0, len(slopes) - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where(from_low, low - lower[bin], high - upper[bin + 1]) / slopes[bin]
            part = np.where(slopes[bin] > 0, part, 0)
            inside = np.where(from_low, edges[bin] + part, edges[bin + 1] - part)
            inside = np.clip(inside, edges[bin], np.nextafter(edges[bin + 1], -np.inf))
            under = edges[0] + self.reach_below * np.log(low / self.below)
            over = edges[-1] - self.reach_above * np.log(high / self.above)
        return np.where(low < self.below, under, np.where(high < self.above, over, inside))

    def _bin(self, y: Floats) -> NDArray[np.int64]:
        edges = self._tables[0]
        return np.clip(np.searchsorted(edges, y, side="right") - 1, 0, len(edges) - 2)

    def _beyond(self, y: Floats) -> tuple[Floats, Floats]:
        """Return the distances of values below the first edge, and above the last; 0 inside."""
        return np.maximum(self.edges[0] - y, 0), np.maximum(y - self.edges[-1], 0)


def _log_first_step(rate: float) -> float:
    """Return log(1 - exp(-rate)), the log probability of the first unit interval of an exponential distribution."""
    return math.log(-math.expm1(-rate))


def _log_part(near: Floats, far: Floats, reach: float) -> Floats:
    """Return the log probability of distances from ``near`` to ``far`` under an exponential distribution with the mean
    ``reach``; -inf if ``far`` is not above ``near``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(far > near, -near / reach + np.log(-np.expm1(-(far - near) / reach)), -np.inf)


# --- learning ---


class CodeCounts:
    """An accumulator of weighted counts of codes. Beyond ``most`` distinct codes, neighbouring codes are pooled."""

    def __init__(self, most: int = 1 << 17) -> None:
        self.most = most
        self.pooled = 1  # number of neighbouring codes that share a count
        self.codes: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.counts: NDArray[np.float64] = np.empty(0)

    def update(self, codes: NDArray[np.int64], weights: NDArray[np.float64] | None) -> None:
        """Add codes with these weights."""
        joined = np.concatenate([self.codes, codes // self.pooled])
        counts = np.concatenate([self.counts, np.ones(len(codes)) if weights is None else weights])
        self._merge(joined, counts)
        while len(self.codes) > self.most:
            self.pooled *= 2
            self._merge(self.codes // 2, self.counts)

    def of(self, code: int) -> float:
        """Return the count of a code, including the codes that it is pooled with."""
        return float(self.counts[self.codes == code // self.pooled].sum())

    def _merge(self, codes: NDArray[np.int64], counts: NDArray[np.float64]) -> None:
        self.codes, place = np.unique(codes, return_inverse=True)
        self.counts = np.bincount(place, weights=counts, minlength=len(self.codes)).astype(np.float64)


def bins_of_codes(seen: CodeCounts, low: int | None, high: int | None, most_bins: int) -> tuple[list[int], list[float]]:
    """Return the edges of bins of ordered codes, and their counts. A frequent code has a bin of its own.

    ``low`` and ``high`` are hard limits, the first and the last possible code, or None for an open end.
    """
    wide = seen.pooled
    total = float(seen.counts.sum())
    enough = max(FEWEST_ROWS, total / most_bins)
    start, end = int(seen.codes[0]) * wide, int(seen.codes[-1]) * wide + wide
    edges = [start if low is None else min(low, start)]
    counts: list[float] = []

    def close(edge: int, count: float) -> None:
        if edge > edges[-1]:
            edges.append(edge)
            counts.append(count)

    close(start, 0.0)
    gathered = 0.0
    for code, count in zip((seen.codes * wide).tolist(), seen.counts.tolist(), strict=True):
        if count >= enough:  # a frequent code gets a bin of its own
            close(code, gathered)
            gathered = 0.0
        gathered += count
        if gathered >= enough:
            close(code + wide, gathered)
            gathered = 0.0
    close(end, gathered)
    if high is not None:
        close(high + 1, 0.0)
    return edges, counts


def tail_length(width: float, count: float) -> float:
    """Return the mean distance of unseen values beyond an end, whose outermost bin has this width and count.

    The largest of n values with an exponential tail is about ln n times their mean. So the width of the outermost bin,
    with n rows, is about ln n times the mean distance.
    """
    return width / math.log(count + math.e)


def scale_of_codes(seen: CodeCounts, ends: Ends, atoms: Sequence[float] = ()) -> UnitScale:
    """Return the scale of codes with these counts. ``atoms`` are codes that get no probability on this scale.

    >>> counts = CodeCounts()
    >>> counts.update(np.repeat([0, 1, 5], [40, 50, 3]), None)
    >>> scale = scale_of_codes(counts, (0, None))
    >>> scale.edges[:3], bool(np.isfinite(scale.log_mass(np.array([3.0, 900.0]))).all())
    ((0.0, 1.0, 2.0), True)
    """
    low, high = ends
    bounds, rows = bins_of_codes(seen, None, None, MOST_BINS)
    edges = np.asarray(bounds, np.float64)
    if seen.pooled == 1:
        codes = seen.codes.astype(np.float64)
        edges = _halved_ends(edges, codes, seen.counts, codes[1:])
        counts = _counts(edges, codes, seen.counts)
        near = np.ceil(_near(edges, counts))
        edges, counts = _with_seen_codes(edges, counts, seen)
    else:
        counts = np.asarray(rows) + PRIOR
        near = np.ceil(_near(edges, counts))
    if len(atoms):
        edges, counts = _without(edges, counts, np.asarray(sorted(atoms), np.float64))
    closed = None if low is None else math.floor(low), None if high is None else math.floor(high) + 1
    return _with_ends(edges, counts, closed, near)


def _counts(edges: Floats, values: Floats, each: Floats) -> Floats:
    """Return the number of rows in each bin, plus the prior. ``each`` is the number of rows of every value."""
    bin = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    counts: Floats = np.bincount(bin, weights=each, minlength=len(edges) - 1).astype(np.float64) + PRIOR
    return counts


def _near(edges: Floats, counts: Floats) -> Floats:
    """Return the mean distance of unseen values beyond each end."""
    widths = np.diff(edges)
    return np.array([tail_length(float(widths[i]), float(counts[i])) for i in (0, -1)], np.float64)


def _with_ends(edges: Floats, counts: Floats, ends: Ends, near: Floats) -> UnitScale:
    """Return the scale of these bins, with the probability of half a row beyond each end.

    Most of that probability lies near the end, within the distance ``near``. The rest is spread up to the hard limit
    or, at an open end, over an exponential tail.
    """
    least_reach = float(edges[-1] - edges[0]) / FRACTION_OF_RANGE
    if not counts.sum() and ends == (edges[0], edges[-1]):
        ends = None, None  # atoms hold all the probability, but the scale must have some
    bounds, rows = [edges], [counts]
    outside, reaches = [0.0, 0.0], np.maximum(near, least_reach)
    for side, (end, outermost, outwards) in enumerate(zip(ends, edges[[0, -1]].tolist(), (-1, 1), strict=True)):
        room = math.inf if end is None else outwards * (end - outermost)
        if room <= 0:
            continue
        width = float(min(near[side], room))
        parts = [(outermost + outwards * width, PRIOR * (NEAR if width < room else 1))]
        if width < room < math.inf:
            parts.append((outermost + outwards * room, PRIOR * (1 - NEAR)))
        if room == math.inf:
            outside[side] = PRIOR * (1 - NEAR)
        more, masses = (np.asarray(column) for column in zip(*parts, strict=True))
        bounds = [*bounds, more] if outwards > 0 else [more[::-1], *bounds]
        rows = [*rows, masses] if outwards > 0 else [masses[::-1], *rows]
    masses = np.concatenate(rows)
    total = float(masses.sum()) + sum(outside)
    return UnitScale(
        tuple(np.concatenate(bounds).tolist()),
        tuple((masses / total).tolist()),
        below=outside[0] / total,
        above=outside[1] / total,
        reach_below=float(reaches[0]),
        reach_above=float(reaches[1]),
    )


def _halved_ends(edges: Floats, values: Floats, each: Floats, between: Floats) -> Floats:
    """Return the edges, with more edges in the first and in the last bin that hold values.

    Each new edge leaves half of the bin's remaining rows further out. The density of a long tail falls by orders of
    magnitude within the last hundredth of the rows.

    Args:
        values, each: distinct values, sorted, and their counts.
        between: possible edges, one between each value and the next.

    >>> edges, values = np.array([0.0, 1.0, 64.0]), np.array([0.5, *range(2, 64)])
    >>> _halved_ends(edges, values, np.ones(63), values[1:]).tolist()
    [0.0, 1.0, 33.0, 49.0, 57.0, 64.0]
    """
    more: list[float] = []
    for outwards in (1, -1):
        end = values[::-outwards][0]
        bin = int(np.clip(np.searchsorted(edges, end, side="right") - 1, 0, len(edges) - 2))
        inside = (values >= edges[bin]) & (values <= edges[bin + 1])
        counts, cuts = each[inside][::outwards], between[inside[:-1] & inside[1:]][::outwards]
        beyond = counts.sum() - np.cumsum(counts)[:-1]  # rows further out than each cut
        left = float(counts.sum()) / 2
        while left >= FEWEST_AT_ENDS and len(beyond):
            place = int(np.searchsorted(-beyond, -left))
            if place == len(beyond) or beyond[place] < FEWEST_AT_ENDS:
                break
            more.append(float(cuts[place]))
            left = float(beyond[place]) / 2
    return np.union1d(edges, more)


def _with_seen_codes(edges: Floats, counts: Floats, seen: CodeCounts) -> tuple[Floats, Floats]:
    """Return bins that are split around the codes seen in them, if that raises the leave-one-out likelihood."""
    points = np.diff(edges)
    bin = np.clip(np.searchsorted(edges, seen.codes, side="right") - 1, 0, len(points) - 1)
    shared = (points[bin] > 1) & (seen.counts > 0)
    place, code, count = bin[shared], seen.codes[shared].astype(np.float64), seen.counts[shared]
    if not len(code):
        return edges, counts
    inside = np.bincount(place, weights=count, minlength=len(points))
    among_others = np.maximum(count - 1, 0) / np.maximum(inside[place] - 1, 1)
    evenly = 1 / points[place]
    alpha = 0.5
    for _ in range(ROUNDS):
        alpha = float(np.average(alpha * among_others / (alpha * among_others + (1 - alpha) * evenly), weights=count))
    alpha = min(alpha, 1 - PRIOR / (float(count.sum()) + 1))  # the even part keeps at least half a row
    if alpha < LEAST_ALPHA:
        return edges, counts
    if len(code) > MOST_VALUES:
        kept = np.sort(np.argsort(-count, kind="stable")[:MOST_VALUES])
        place, code, count = place[kept], code[kept], count[kept]
        inside = np.bincount(place, weights=count, minlength=len(points))
    part = np.where(inside > 0, alpha, 0.0)
    finer = np.union1d(edges, np.concatenate([code, code + 1]))
    parent = np.clip(np.searchsorted(edges, finer[:-1], side="right") - 1, 0, len(points) - 1)
    each = (1 - part[parent]) * counts[parent] / points[parent] * np.diff(finer)
    each[np.searchsorted(finer, code)] += part[place] * counts[place] * count / inside[place]
    return finer, each


def _without(edges: Floats, counts: Floats, codes: Floats) -> tuple[Floats, Floats]:
    """Return the bins after removing the probability of some codes."""
    finer = np.union1d(edges, np.concatenate([codes, codes + 1]))
    finer = finer[(finer >= edges[0]) & (finer <= edges[-1])]
    parent = np.clip(np.searchsorted(edges, finer[:-1], side="right") - 1, 0, len(counts) - 1)
    each = counts[parent] / np.diff(edges)[parent] * np.diff(finer)
    each[np.isin(finer[:-1], codes)] = 0
    return finer, each


def scale_of_values(values: Floats, weights: Floats | None, ends: Ends) -> UnitScale:
    """Return the scale of real numbers.

    >>> scale = scale_of_values(np.linspace(0, 1, 1001)[1:], None, (0.0, None))
    >>> scale.limits, round(float(scale.distances(np.array([0.5]))[0][0]), 2)
    ((0.0, inf), 0.5)
    """
    values, place = np.unique(values, return_inverse=True)
    each = np.bincount(place, weights=weights, minlength=len(values)).astype(np.float64)
    total = float(each.sum())
    wanted = int(np.clip(total / REAL_ROWS, 1, MOST_REAL_BINS))
    inner = _between(values, each, total * np.arange(1, wanted) / wanted)
    first, last = float(values[0]), float(values[-1])
    spread = (last - first) or max(abs(first), 1.0) * 1e-3
    edges = [first, *inner[(inner > first) & (inner < last)].tolist(), last if last > first else first + spread]
    bounds = _halved_ends(np.asarray(edges), values, each, (values[1:] + values[:-1]) / 2)
    counts = _counts(bounds, values, each)
    return _with_ends(bounds, counts, ends, _near(bounds, counts))


def _between(values: Floats, each: Floats, rows: Floats) -> Floats:
    """Return edges between neighbouring sorted values, such that so many rows lie below them."""
    cut = np.searchsorted(np.cumsum(each), rows)
    cut = np.unique(cut[cut < len(values) - 1])
    return np.unique((values[cut] + values[cut + 1]) / 2)


# --- circles ---


def ring_of_values(values: Floats, weights: Floats | None, ends: tuple[float, float]) -> UnitScale:
    """Return the scale of real numbers on a circle, from one end to the other.

    A single bin lies across the seam, so the slope is the same on both sides of it.

    >>> scale = ring_of_values(np.array([0.1, 0.2, 5.9]), None, (0.0, 6.0))
    >>> low, high = scale.log_density(np.array([0.0, 5.999]))
    >>> bool(low == high)
    True
    """
    low, high = ends
    each = np.ones(len(values)) if weights is None else weights
    order = np.argsort(values, kind="stable")
    values, each = values[order], each[order]
    total = float(each.sum())
    wanted = int(np.clip(total / RING_ROWS, 1, MOST_REAL_BINS))
    inner = _between(values, each, total * (np.arange(wanted) + 0.5) / wanted)
    edges = np.array([low, *inner[(inner > low) & (inner < high)], high], np.float64)
    if len(edges) < 4:  # a bin across the seam and one other bin need four edges
        return UnitScale((low, high), (1.0,))
    counts, widths = _counts(edges, values, each), np.diff(edges)
    across = (counts[0] + counts[-1]) / (widths[0] + widths[-1])
    counts[0], counts[-1] = across * widths[0], across * widths[-1]
    return UnitScale(tuple(edges.tolist()), tuple((counts / counts.sum()).tolist()))


def ring_of_codes(values: Floats, weights: Floats | None, count: int) -> UnitScale:
    """Return the scale of codes 0 ... count - 1 on a circle. Each code has its own bin, unless there are many codes.

    >>> ring_of_codes(np.array([0.0, 0.0, 2.0]), None, 4).masses
    (0.5, 0.1, 0.3, 0.1)
    """
    bins = min(count, MOST_BINS, max(len(values) // RING_ROWS, FEWEST_RING_BINS))
    edges = np.unique(np.round(np.linspace(0, count, bins + 1)))
    counts = _counts(edges, values, np.ones(len(values)) if weights is None else weights)
    return UnitScale(tuple(edges.tolist()), tuple((counts / counts.sum()).tolist()))
