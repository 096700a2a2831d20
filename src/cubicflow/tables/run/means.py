"""Means over rows, with their standard errors, from sums of batches."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

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


@dataclass(frozen=True)
class MeanOfRows:
    """Sums of one number per row, from which the weighted mean and its error are computed. Sums of other rows can be
    added."""

    rows: int = 0
    counted: int = 0  # rows with a weight
    squared_weights: float = 0.0
    moments: Moments = field(default_factory=Moments)

    @classmethod
    def of(cls, values: Floats, weights: Floats | None = None) -> MeanOfRows:
        """Return the sums of rows with these values and weights."""
        each = np.ones(len(values)) if weights is None else weights
        moments = Moments.of(values, weights)
        return cls(len(values), int(np.count_nonzero(each)), float((each**2).sum()), moments)

    def __add__(self, other: MeanOfRows) -> MeanOfRows:
        return MeanOfRows(
            self.rows + other.rows,
            self.counted + other.counted,
            self.squared_weights + other.squared_weights,
            self.moments + other.moments,
        )

    def result(self) -> Mean:
        """Return the mean and twice its standard error. Weighted rows count as their effective sample size.

        The spread is measured around the mean of the rows, which is closer to them than the true mean. So the error of
        n rows has n - 1 in the denominator.
        """
        weight = self.moments.weight
        if not weight:
            return Mean(self.rows, math.nan, math.nan, 0.0)
        effective = weight**2 / self.squared_weights
        known = self.counted > 1 and effective > 1
        error = 2 * self.moments.std / math.sqrt(effective - 1) if known else math.nan
        return Mean(self.rows, self.moments.mean, error, weight)
