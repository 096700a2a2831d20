"""Maps from a column's numbers to a flow's numbers and back, with the exact log slope.

A map is increasing. ``forward`` takes y and returns (z, log dz/dy). For a column with a density, y is the value itself;
for a column with masses, y is code + u with u in (0, 1). ``inverse`` takes z to y. ``limits`` is the open interval of y
on which the map is defined. Everything is in float64.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.unit_scale import FRACTION_OF_RANGE, PRIOR, CodeCounts, UnitScale, bins_of_codes, tail_length

MOST_BINS = 256


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
    type: Literal["scaled"] = "scaled"

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
        return {"type": self.type, **{key: value for key, value in vars(self).items() if value != getattr(Scaled, key)}}


@dataclass(frozen=True)
class Histogram:
    """The normal quantile of a column's distribution function: a column with this histogram becomes normal.

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
    type: Literal["histogram"] = "histogram"

    def __post_init__(self) -> None:
        if not (self.masses and min(self.masses) > 0 and self.below < 0.25 and self.above < 0.25):
            raise ValueError("masses must be positive, and below and above must be less than 0.25")
        _ = self.scale  # checks the rest

    @cached_property
    def scale(self) -> UnitScale:
        """The distribution function."""
        inside = 1 - self.below - self.above
        masses = tuple(inside * mass for mass in self.masses)
        tails = self.below, self.above, self.reach_below, self.reach_above
        return UnitScale(tuple(map(float, self.edges)), masses, *tails)

    @cached_property
    def _tails(self) -> list[tuple[float, float, float]]:
        """For each open end: its edge, the normal quantile there, and the slope of the line beyond it; negative for the
        lower end."""
        edges = np.array([self.edges[0], self.edges[-1]], np.float64)
        knots = quantile(*self.scale.distances(edges))
        open_ends = ((self.below, self.reach_below), (self.above, self.reach_above))
        return [
            (edge, knot, side / (abs(knot) * reach))
            for edge, knot, side, (share, reach) in zip(edges, knots, (-1, 1), open_ends, strict=True)
            if share
        ]

    def forward(self, y: Floats) -> tuple[Floats, Floats]:
        inside = np.clip(y, self.edges[0], self.edges[-1])
        z = quantile(*self.scale.distances(inside))
        with np.errstate(invalid="ignore"):  # at the very edge of a closed end, z and the log slope are infinite
            log_slope = self.scale.log_density(inside) + 0.5 * z * z + 0.5 * math.log(2 * math.pi)
        for edge, knot, slope in self._tails:
            outside = slope * (y - edge) > 0
            z = np.where(outside, knot + abs(slope) * (y - edge), z)
            log_slope = np.where(outside, math.log(abs(slope)), log_slope)
        return z, log_slope

    def inverse(self, z: Floats) -> Floats:
        y = np.clip(self.scale.values_at(_normal_cdf(z), _normal_cdf(-z)), self.edges[0], self._last)
        for edge, knot, slope in self._tails:
            y = np.where(slope * (z - knot) > 0, edge + (z - knot) / abs(slope), y)
        return y

    @property
    def _last(self) -> float:
        return float(np.nextafter(float(self.edges[-1]), -np.inf))

    @property
    def limits(self) -> tuple[float, float]:
        return self.scale.limits

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


Map = Scaled | Histogram


def quantile(lower: Floats, upper: Floats) -> Floats:
    """Return the normal quantile of a probability, given with its complement; the smaller of the two is used."""
    z: Floats = torch.special.ndtri(torch.from_numpy(np.minimum(lower, upper))).numpy()
    return np.where(lower <= upper, z, -z)


def _normal_cdf(z: Floats) -> Floats:
    # torch.special.ndtr is (1 + erf) / 2, which has no relative precision in the lower tail.
    result: Floats = torch.special.erfc(torch.from_numpy(z * -math.sqrt(0.5))).numpy() / 2
    return result


def histogram_of_codes(seen: CodeCounts, low: int | None, high: int | None) -> Histogram:
    """Return a histogram of ordered codes.

    ``low`` and ``high`` are hard limits, the first and the last possible code, or None for an open end.
    """
    edges, counts = bins_of_codes(seen, low, high, MOST_BINS)
    shares = np.array(counts) + PRIOR
    outside = PRIOR / (float(seen.counts.sum()) + 4 * PRIOR)
    least = (edges[-1] - edges[0]) / FRACTION_OF_RANGE
    return Histogram(
        tuple(edges),
        tuple((shares / shares.sum()).tolist()),
        below=0.0 if low is not None else outside,
        above=0.0 if high is not None else outside,
        reach_below=max(tail_length(edges[1] - edges[0], counts[0]), least),
        reach_above=max(tail_length(edges[-1] - edges[-2], counts[-1]), least),
    )
