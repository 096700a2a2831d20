"""Means over rows, with their standard errors, from sums of batches."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cubicflow.tables.arrow_types import Floats


@dataclass(frozen=True)
class Mean:
    """A mean over rows and twice its standard error, NaN if fewer than two rows have a weight.

    >>> str(Mean(1, -2.5, math.nan))
    '-2.500 ± unknown nats'
    """

    rows: int
    mean: float
    error: float
    weight: float = 1.0  # total weight of the rows

    def __str__(self) -> str:
        if not self.weight:
            return "unknown (nothing to score: every weight is 0)"
        return f"{self.mean:.3f} ± {'unknown' if math.isnan(self.error) else f'{self.error:.3f}'} nats"


@dataclass(frozen=True)
class MeanOfRows:
    """Sums of one number per row, from which its weighted mean and the error of the mean are computed.

    Sums of other rows are added by the rule of Chan, Golub and LeVeque (1979), which does not subtract large sums. With
    an infinite value, such as the score of a row of probability 0, the mean is infinite and the error NaN.

    >>> both = MeanOfRows.of(np.array([1.0, 2.0])) + MeanOfRows.of(np.array([6.0]))
    >>> both.mean, both.weight
    (3.0, 3.0)
    """

    rows: int = 0
    counted: int = 0  # rows with a weight
    weight: float = 0.0
    squared_weights: float = 0.0
    mean: float = 0.0
    squares: float = 0.0  # weighted sum of squares around the mean

    @classmethod
    def of(cls, values: Floats, weights: Floats | None = None) -> MeanOfRows:
        """Return the sums of rows with these values and weights."""
        each = np.ones(len(values)) if weights is None else weights
        counts = len(values), int(np.count_nonzero(each))
        weight, squared_weights = float(each.sum()), float((each**2).sum())
        if not weight:
            return cls(*counts)
        mean = float(np.average(values, weights=each))
        squares = float((each * (values - mean) ** 2).sum()) if math.isfinite(mean) else math.nan
        return cls(*counts, weight, squared_weights, mean, squares)

    def __add__(self, other: MeanOfRows) -> MeanOfRows:
        counts = self.rows + other.rows, self.counted + other.counted
        weight, squared_weights = self.weight + other.weight, self.squared_weights + other.squared_weights
        if not self.weight or not other.weight:
            one = self if self.weight else other
            return MeanOfRows(*counts, weight, squared_weights, one.mean, one.squares)
        shift = other.mean - self.mean
        if not math.isfinite(shift):
            return MeanOfRows(*counts, weight, squared_weights, self.mean + other.mean, math.nan)
        mean = self.mean + shift * other.weight / weight
        squares = self.squares + other.squares + shift * shift * self.weight * other.weight / weight
        return MeanOfRows(*counts, weight, squared_weights, mean, squares)

    def result(self) -> Mean:
        """Return the mean and twice its standard error. Weighted rows count as their effective sample size.

        The spread is measured around the mean of the rows, which is closer to them than the true mean. So the error of
        n rows has n - 1 in the denominator.
        """
        if not self.weight:
            return Mean(self.rows, math.nan, math.nan, 0.0)
        effective = self.weight**2 / self.squared_weights
        known = self.counted > 1 and effective > 1
        error = 2 * math.sqrt(self.squares / self.weight / (effective - 1)) if known else math.nan
        return Mean(self.rows, self.mean, error, self.weight)
