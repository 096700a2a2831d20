"""Maps from a column's numbers to a flow's numbers and back, with the exact log slope.

A map is increasing. ``forward`` takes y and returns (z, log dz/dy). For a column with a density, y is the value itself;
for a column with masses, y is code + u with u in (0, 1). ``inverse`` takes z to y. ``limits`` is the open interval of y
on which the map is defined. Everything is in float64.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cubicflow.tables.table_error import TableError

Floats = NDArray[np.float64]

MOST_BINS = 256
FEWEST_ROWS = 32  # rows in a bin; with 32 rows, the standard error of the bin's share is a sixth of the share
PRIOR = 0.5  # rows added to every bin, so that no bin is impossible
FRACTION_OF_RANGE = 40  # a tail's mean distance beyond the end is at least the range divided by this


@dataclass(frozen=True)
class Scaled:
    """The map z = (shape(v) - mean) / std with v = unit * y + start.

    The shape is ``identity``; ``log``, the log of v; ``asinh``, of (v - centre) / scale; or ``bounded``, the logit of
    (v - low) / (high - low), which becomes a logarithm if one end is open.
    """

    shape: str = "identity"
    mean: float = 0.0
    std: float = 1.0
    centre: float = 0.0
    scale: float = 1.0
    low: float | None = None
    high: float | None = None
    start: float = 0.0
    unit: float = 1.0

    def __post_init__(self) -> None:
        if self.shape not in ("identity", "log", "asinh", "bounded"):
            raise ValueError(f"shape must be identity, log, asinh or bounded, got {self.shape!r}")
        for name in ("std", "scale", "unit"):
            if not (0 < getattr(self, name) < math.inf):
                raise ValueError(f"{name} must be positive, got {getattr(self, name)!r}")
        if not all(math.isfinite(value) for value in (self.mean, self.centre, self.start)):
            raise ValueError(f"mean, centre and start must be finite, got {self.mean}, {self.centre} and {self.start}")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"low must be below high, got {self.low} and {self.high}")

    def forward(self, y: Floats) -> tuple[Floats, Floats]:
        t, log_slope = self.shaped(self.start + self.unit * y)
        return (t - self.mean) / self.std, log_slope + math.log(self.unit) - math.log(self.std)

    def shaped(self, v: Floats) -> tuple[Floats, Floats]:
        """Return shape(v) and its log slope. The mean and std are those of shape(v)."""
        if self.shape == "asinh":
            w = (v - self.centre) / self.scale
            return np.arcsinh(w), -np.log(np.hypot(1.0, w)) - math.log(self.scale)
        low, high = self._ends
        if low is None and high is None:
            return v, np.zeros_like(v)
        above = np.zeros_like(v) if low is None else np.log(v - low)
        below = np.zeros_like(v) if high is None else np.log(high - v)
        span = 0.0 if low is None or high is None else math.log(high - low)
        return above - below, -above - below + span

    def inverse(self, z: Floats) -> Floats:
        t = self.mean + self.std * z
        low, high = self._ends
        with np.errstate(over="ignore"):  # a sample far in the tails of a log column may exceed float64
            if self.shape == "asinh":
                v = self.centre + self.scale * np.sinh(t)
            elif low is None and high is None:
                v = t
            elif high is None:
                v = low + np.exp(t)
            elif low is None:
                v = high - np.exp(-t)
            else:
                # Measure from the nearer end: the distance to either end keeps its relative precision.
                small = np.exp(-np.abs(t))
                inside = (high - low) * small / (1 + small)
                v = np.where(t < 0, low + inside, high - inside)
        return (v - self.start) / self.unit

    @property
    def _ends(self) -> tuple[float | None, float | None]:
        """The limits of the shape; the lower limit of a logarithm is 0."""
        return (self.low, self.high) if self.shape == "bounded" else (0.0 if self.shape == "log" else None, None)

    @property
    def limits(self) -> tuple[float, float]:
        low, high = self._ends
        low, high = -math.inf if low is None else low, math.inf if high is None else high
        return (low - self.start) / self.unit, (high - self.start) / self.unit

    def to_json(self) -> dict[str, Any]:
        given = {key: value for key, value in vars(self).items() if value != getattr(Scaled, key)}
        return {"type": "scaled", **given}


@dataclass(frozen=True)
class Histogram:
    """The normal quantile of a histogram's distribution function: a column with this histogram becomes normal.

    ``edges`` are codes, and ``masses`` are the shares of the bins between them, which sum to 1. At a closed end the
    outermost edge is a hard limit and maps to infinity. At an open end, ``below`` or ``above`` is a small share for
    unseen codes. There the map continues as a straight line, so every code has a finite log probability.
    ``reach_below`` and ``reach_above`` set how far the tails extend, in codes.
    """

    edges: tuple[int, ...]
    masses: tuple[float, ...]
    below: float = 0.0
    above: float = 0.0
    reach_below: float = 1.0
    reach_above: float = 1.0

    def __post_init__(self) -> None:
        edges = np.asarray(self.edges, dtype=np.float64)
        masses = np.asarray(self.masses, dtype=np.float64)
        if len(edges) != len(masses) + 1 or len(masses) < 1 or not (np.diff(edges) >= 1).all():
            raise ValueError(
                f"edges must increase by 1 or more, and there must be one more edge than masses; got {len(edges)} and "
                f"{len(masses)}"
            )
        if not (masses > 0).all() or abs(masses.sum() - 1) > 1e-6:
            raise ValueError(f"masses must be positive and sum to 1, got the sum {masses.sum():g}")
        if not (0 <= self.below < 0.25 and 0 <= self.above < 0.25 and self.reach_below > 0 and self.reach_above > 0):
            raise ValueError(
                f"below and above must be in [0, 0.25), got {self.below} and {self.above}; both reaches must be "
                "positive"
            )

    @cached_property
    def _tables(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Edges, slopes, the distribution function and its complement at the edges, and the normal quantiles of the
        edges.
        """
        edges = np.asarray(self.edges, dtype=np.float64)
        inner = np.asarray(self.masses, dtype=np.float64) * (1 - self.below - self.above)
        # ``lower`` and ``upper`` are summed from opposite ends, so each keeps its relative precision near its own end.
        lower = self.below + np.concatenate([[0.0], np.cumsum(inner)])
        upper = self.above + np.concatenate([np.cumsum(inner[::-1])[::-1], [0.0]])
        return edges, inner / np.diff(edges), lower, upper, quantile(lower, upper)

    def forward(self, y: Floats) -> tuple[Floats, Floats]:
        edges, slopes, lower, upper, knots = self._tables
        bin = np.clip(np.searchsorted(edges, y, side="right") - 1, 0, len(slopes) - 1)
        slope = slopes[bin]
        inside = np.clip(y, edges[0], edges[-1])
        z = quantile(lower[bin] + slope * (inside - edges[bin]), upper[bin + 1] + slope * (edges[bin + 1] - inside))
        with np.errstate(invalid="ignore"):  # at the very edge of a closed end, z and the log slope are infinite
            log_slope = np.log(slope) + 0.5 * z * z + 0.5 * math.log(2 * math.pi)
        for end, share, reach in ((0, self.below, self.reach_below), (-1, self.above, self.reach_above)):
            if share:
                outside = y < edges[0] if end == 0 else y > edges[-1]
                rate = 1 / (abs(knots[end]) * reach)
                z = np.where(outside, knots[end] + rate * (y - edges[end]), z)
                log_slope = np.where(outside, math.log(rate), log_slope)
        return z, log_slope

    def inverse(self, z: Floats) -> Floats:
        edges, slopes, lower, upper, knots = self._tables
        bin = np.clip(np.searchsorted(knots, z, side="right") - 1, 0, len(slopes) - 1)
        low, high = _normal_cdf(z), _normal_cdf(-z)
        from_left = edges[bin] + (low - lower[bin]) / slopes[bin]
        from_right = edges[bin + 1] - (high - upper[bin + 1]) / slopes[bin]
        y = np.clip(np.where(z < 0, from_left, from_right), edges[bin], np.nextafter(edges[bin + 1], -np.inf))
        for end, share, reach in ((0, self.below, self.reach_below), (-1, self.above, self.reach_above)):
            if share:
                outside = z < knots[0] if end == 0 else z > knots[-1]
                y = np.where(outside, edges[end] + (z - knots[end]) * (abs(knots[end]) * reach), y)
        return y

    @property
    def limits(self) -> tuple[float, float]:
        return -math.inf if self.below else self.edges[0], math.inf if self.above else self.edges[-1]

    def to_json(self) -> dict[str, Any]:
        tables = {"edges": list(self.edges), "masses": list(self.masses)}
        return {"type": "histogram", **asdict(self), **tables}


Map = Scaled | Histogram


def map_from_json(value: Any) -> Map:
    """Return the map that ``to_json`` wrote. Raises TableError for anything invalid."""
    known: dict[str, type[Map]] = {"scaled": Scaled, "histogram": Histogram}
    if not isinstance(value, dict) or value.get("type") not in known:
        raise TableError(f"a map should be one of {', '.join(known)}, got {str(value)[:80]}")
    arguments = {key: _numbers(item) for key, item in value.items() if key != "type"}
    try:
        return known[value["type"]](**arguments)
    except (TypeError, ValueError, IndexError) as error:
        raise TableError(f"invalid map with the fields {sorted(arguments)}: {error}") from None


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_numbers(item) for item in value)
    if value is None or isinstance(value, str) or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise TableError(f"a map should hold numbers, got {str(value)[:80]}")


def quantile(lower: Floats, upper: Floats) -> Floats:
    """Return the normal quantile of a probability, given with its complement; the smaller of the two is used."""
    z: Floats = torch.special.ndtri(torch.from_numpy(np.minimum(lower, upper))).numpy()
    return np.where(lower <= upper, z, -z)


def _normal_cdf(z: Floats) -> Floats:
    # torch.special.ndtr is (1 + erf) / 2, which has no relative precision in the lower tail.
    result: Floats = torch.special.erfc(torch.from_numpy(z * -math.sqrt(0.5))).numpy() / 2
    return result


# --- statistics of the training rows of a column, accumulated batch by batch ---


class Moments:
    """An accumulator of the weighted mean and variance.

    Batches are merged by the rule of Chan, Golub and LeVeque (1979), which does not subtract large sums. With an
    infinite value, such as the score of a row of probability 0, the mean is infinite and the standard deviation NaN.
    """

    def __init__(self) -> None:
        self.weight = 0.0
        self.mean = 0.0
        self._squares = 0.0

    def update(self, values: Floats, weights: Floats | None) -> None:
        """Add values with these weights."""
        weight = float(len(values) if weights is None else weights.sum())
        if not weight:
            return
        mean = float(np.average(values, weights=weights))
        total = self.weight + weight
        if not math.isfinite(mean) or not math.isfinite(self.mean):
            self.mean, self._squares, self.weight = self.mean + mean, math.nan, total
            return
        squares = (values - mean) ** 2
        shift = mean - self.mean
        self._squares += float((squares if weights is None else weights * squares).sum())
        self._squares += shift * shift * self.weight * weight / total
        self.mean += shift * weight / total
        self.weight = total

    def merge(self, other: Moments) -> None:
        """Add the values of another accumulator.

        >>> one, other = Moments(), Moments()
        >>> one.update(np.array([1.0, 2.0]), None), other.update(np.array([6.0]), None)
        (None, None)
        >>> one.merge(other)
        >>> one.mean, one.weight
        (3.0, 3.0)
        """
        if not other.weight:
            return
        total = self.weight + other.weight
        if not math.isfinite(other.mean) or not math.isfinite(self.mean):
            self.mean, self._squares, self.weight = self.mean + other.mean, math.nan, total
            return
        shift = other.mean - self.mean
        self._squares += other._squares + shift * shift * self.weight * other.weight / total
        self.mean += shift * other.weight / total
        self.weight = total

    @property
    def std(self) -> float:
        return math.sqrt(self._squares / self.weight) if self.weight else 0.0


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


def histogram_of_levels(counts: NDArray[np.float64]) -> Histogram:
    """Return a histogram with one bin for each level, closed at both ends: for words and booleans."""
    masses = (counts + PRIOR) / (counts + PRIOR).sum()
    return Histogram(tuple(range(len(counts) + 1)), tuple(masses.tolist()))


def histogram_of_codes(seen: CodeCounts, low: int | None, high: int | None, most_bins: int = MOST_BINS) -> Histogram:
    """Return a histogram of ordered codes.

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
    shares = np.array(counts) + PRIOR
    outside = PRIOR / (total + 4 * PRIOR)
    span = edges[-1] - edges[0]
    return Histogram(
        tuple(edges),
        tuple((shares / shares.sum()).tolist()),
        below=0.0 if low is not None else outside,
        above=0.0 if high is not None else outside,
        reach_below=_tail_length(edges[1] - edges[0], counts[0], span),
        reach_above=_tail_length(edges[-1] - edges[-2], counts[-1], span),
    )


def _tail_length(width: int, count: float, span: int) -> float:
    """Return the mean distance of unseen codes beyond an end.

    The largest of n values with an exponential tail is about ln n times their mean. So the width of the outermost bin,
    with ``count`` rows, is about ln(count) times the mean distance.
    """
    return max(width / math.log(count + math.e), span / FRACTION_OF_RANGE)
