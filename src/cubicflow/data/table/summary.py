"""Means of log likelihoods with their errors, merged piece by piece."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cubicflow.data.table.statistics import Moments


@dataclass(frozen=True)
class Mean:
    """A mean over rows and twice its standard error."""

    rows: int
    mean: float
    error: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.error:.3f} nats"


class MeanOfRows:
    """The (weighted) mean of one number per row."""

    def __init__(self) -> None:
        self.rows = 0
        self._moments = Moments()
        self._squared_weights = 0.0

    def see(self, values: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> None:
        self.rows += len(values)
        self._moments.see(values, weights)
        self._squared_weights += float(len(values) if weights is None else (weights**2).sum())

    def result(self) -> Mean:
        """Twice the standard error; with weights, that of the number of equal rows that would say as much."""
        if not self._moments.weight:
            return Mean(self.rows, math.nan, math.nan)
        effective = self._moments.weight**2 / self._squared_weights
        return Mean(self.rows, self._moments.mean, 2 * self._moments.std / math.sqrt(effective))
