"""Means, spreads and counts of the training rows, merged batch by batch."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Moments:
    """Weighted mean and variance. Batches are merged by the rule of Chan, Golub and LeVeque (1979), which subtracts no
    large sums from one another."""

    def __init__(self) -> None:
        self.weight = 0.0
        self.mean = 0.0
        self._squares = 0.0

    def see(self, values: Floats, weights: Floats | None) -> None:
        weight = float(len(values) if weights is None else weights.sum())
        if not weight:
            return
        mean = float(np.average(values, weights=weights))
        squares = (values - mean) ** 2
        total = self.weight + weight
        shift = mean - self.mean
        self._squares += float((squares if weights is None else weights * squares).sum())
        self._squares += shift * shift * self.weight * weight / total
        self.mean += shift * weight / total
        self.weight = total

    @property
    def std(self) -> float:
        return math.sqrt(self._squares / self.weight) if self.weight else 0.0
