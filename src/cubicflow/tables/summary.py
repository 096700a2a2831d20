"""Means of log likelihoods with their errors, merged piece by piece."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cubicflow.tables.statistics import Moments


@dataclass(frozen=True)
class Mean:
    """A mean over rows and twice its standard error, nan where fewer than two rows count.

    >>> str(Mean(1, -2.5, math.nan))
    '-2.500 ± unknown nats'
    """

    rows: int
    mean: float
    error: float
    weight: float = 1.0  # of all rows together

    def __str__(self) -> str:
        if not self.weight:
            return "unknown (nothing to score: every weight is 0)"
        return f"{self.mean:.3f} ± {'unknown' if math.isnan(self.error) else f'{self.error:.3f}'} nats"


class MeanOfRows:
    """The (weighted) mean of one number per row."""

    def __init__(self) -> None:
        self.rows = 0
        self._moments = Moments()
        self._counted = 0
        self._squared_weights = 0.0

    def see(self, values: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> None:
        self.rows += len(values)
        self._counted += len(values) if weights is None else int(np.count_nonzero(weights))
        self._moments.see(values, weights)
        self._squared_weights += float(len(values) if weights is None else (weights**2).sum())

    def result(self) -> Mean:
        """Twice the standard error; with weights, that of the number of equal rows that would say as much.

        The spread is around the rows' own mean, which lies closer to them than the true one: of n rows, n - 1 count.
        """
        weight = self._moments.weight
        if not weight:
            return Mean(self.rows, math.nan, math.nan, 0.0)
        effective = weight**2 / self._squared_weights
        known = self._counted > 1 and effective > 1
        error = 2 * self._moments.std / math.sqrt(effective - 1) if known else math.nan
        return Mean(self.rows, self._moments.mean, error, weight)
