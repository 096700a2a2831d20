"""Means over rows, with their standard errors, accumulated batch by batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.maps import Moments


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


class MeanOfRows:
    """An accumulator of the weighted mean of one number per row."""

    def __init__(self) -> None:
        self.rows = 0
        self._moments = Moments()
        self._counted = 0
        self._squared_weights = 0.0

    def update(self, values: Floats, weights: Floats | None = None) -> None:
        """Add rows with these values and weights."""
        self.rows += len(values)
        self._counted += len(values) if weights is None else int(np.count_nonzero(weights))
        self._moments.update(values, weights)
        self._squared_weights += float(len(values) if weights is None else (weights**2).sum())

    def merge(self, other: MeanOfRows) -> None:
        """Add the rows of another accumulator."""
        self.rows += other.rows
        self._counted += other._counted
        self._moments.merge(other._moments)
        self._squared_weights += other._squared_weights

    def result(self) -> Mean:
        """Return the mean and twice its standard error. Weighted rows count as their effective sample size.

        The spread is measured around the mean of the rows, which is closer to them than the true mean. So the error of
        n rows has n - 1 in the denominator.
        """
        weight = self._moments.weight
        if not weight:
            return Mean(self.rows, math.nan, math.nan, 0.0)
        effective = weight**2 / self._squared_weights
        known = self._counted > 1 and effective > 1
        error = 2 * self._moments.std / math.sqrt(effective - 1) if known else math.nan
        return Mean(self.rows, self._moments.mean, error, weight)
