"""The log likelihood of rows under a flow, in the data's own units, and its mean over rows.

A column with a density counts per unit. A column with masses counts the probability of its step: the integral over u in
(0, 1) of the density of code + u, approximated by the mean over sixteen fixed offsets. No random numbers are involved:
a row has one score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from cubicflow.flows import Flow, Mixture
from cubicflow.seeds import scramble
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.encoder import Numbers, TableEncoder
from cubicflow.tables.maps import Moments

ROWS_AT_ONCE = 1 << 12
OFFSETS = 16  # offsets of a row over which its probability is averaged
TRIES = 32  # permutations compared for each column


@torch.no_grad()
def log_likelihood(flow: Flow | Mixture, encoder: TableEncoder, numbers: Numbers) -> Floats:
    """Return log p of every row, given its context, in nats."""
    places = offsets(encoder.mass_features) if encoder.mass_features else [None]
    result = np.empty(len(numbers.y))
    for start in range(0, len(result), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        context = None if numbers.context is None else flow_tensor(flow, numbers.context[rows])
        scores = []
        for place in places:
            x, log_det = encoder.to_flow(numbers.y[rows], place)
            log_prob = flow.log_prob(flow_tensor(flow, x), context)
            scores.append(log_prob.double().cpu().numpy() + log_det)
        with np.errstate(invalid="ignore"):  # callers check for NaN
            result[rows] = scores[0] if len(scores) == 1 else np.logaddexp.reduce(scores, axis=0) - math.log(OFFSETS)
    return result


def flow_tensor(flow: Flow | Mixture, numbers: Floats) -> Tensor:
    """Return numbers as a tensor of the flow's dtype, on its device."""
    weight = next(flow.parameters(), torch.empty(0))
    return torch.from_numpy(numbers).to(weight.device, weight.dtype)


@cache
def offsets(features: int) -> Floats:
    """Return (16, features) offsets in (0, 1): a Latin hypercube.

    In every column, each sixteenth of the interval holds one point, at its middle. The mean over the points is exact to
    second order for a density that varies in one column. The order of the points in a column is one of 32 hashed
    permutations, the one that is least correlated with earlier columns. So the points of two columns also cover the
    square evenly.
    """
    # The points are built here, not by a library: the scores of saved runs depend on them.
    middles = (np.arange(OFFSETS) + 0.5) / OFFSETS
    columns = [middles]
    for i in range(1, features):
        seeds = np.arange(TRIES * OFFSETS, dtype=np.uint64).reshape(TRIES, OFFSETS) + np.uint64(i * TRIES * OFFSETS)
        candidates = middles[np.argsort(scramble(seeds), axis=1)]
        others = np.stack(columns[-4 * OFFSETS :], axis=1) - 0.5
        correlation = np.abs((candidates - 0.5) @ others).max(axis=1)
        columns.append(candidates[correlation.argmin()])
    result = np.stack(columns, axis=1)
    result.setflags(write=False)
    return result


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
