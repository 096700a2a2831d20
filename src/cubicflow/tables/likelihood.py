"""The log likelihood of rows under a flow, in the data's own units, and its mean over rows.

A column with a density counts per unit. A column with masses counts the probability of its step: the integral over u
in (0, 1) of the density of code + u, taken as the mean over sixteen fixed offsets. Nothing is random: a row has one
score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from cubicflow.flows import Flow, Mixture
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.encoder import Numbers, TableEncoder
from cubicflow.tables.maps import Moments
from cubicflow.tables.source import scramble

ROWS_AT_ONCE = 1 << 12
COUNT = 16  # of the offsets at which a probability is averaged
TRIES = 32


@torch.no_grad()
def log_likelihood(flow: Flow | Mixture, encoder: TableEncoder, numbers: Numbers) -> Floats:
    """log p of every row, given its context, in nats."""
    places = offsets(encoder.mass_features) if encoder.mass_features else [None]
    result = np.empty(len(numbers.y))
    for start in range(0, len(result), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        context = None if numbers.context is None else placed(flow, numbers.context[rows])
        scores = []
        for place in places:
            x, log_det = encoder.to_flow(numbers.y[rows], place)
            log_prob = flow.log_prob(placed(flow, x), context)
            scores.append(log_prob.double().cpu().numpy() + log_det)
        with np.errstate(invalid="ignore"):  # whoever asks looks for it
            result[rows] = scores[0] if len(scores) == 1 else np.logaddexp.reduce(scores, axis=0) - math.log(COUNT)
    return result


def placed(flow: Flow | Mixture, numbers: Floats) -> Tensor:
    """Numbers as a tensor of the flow's dtype, on its device."""
    weight = next(flow.parameters(), torch.empty(0))
    return torch.from_numpy(numbers).to(weight.device, weight.dtype)


@cache
def offsets(features: int) -> Floats:
    """(16, features) offsets in (0, 1): a Latin hypercube.

    In every column each sixteenth of the interval holds one point, at its middle: exact to second order for a density
    that varies in one column. The order in a column is the one of 32 hashed permutations that is least correlated with
    the columns before it, so that pairs of columns are spread over the square as well.
    """
    # By hand, not by a library: the scores of saved runs depend on these very points.
    middles = (np.arange(COUNT) + 0.5) / COUNT
    columns = [middles]
    for i in range(1, features):
        seeds = np.arange(TRIES * COUNT, dtype=np.uint64).reshape(TRIES, COUNT) + np.uint64(i * TRIES * COUNT)
        candidates = middles[np.argsort(scramble(seeds), axis=1)]
        others = np.stack(columns[-4 * COUNT :], axis=1) - 0.5
        correlation = np.abs((candidates - 0.5) @ others).max(axis=1)
        columns.append(candidates[correlation.argmin()])
    result = np.stack(columns, axis=1)
    result.setflags(write=False)
    return result


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

    def see(self, values: Floats, weights: Floats | None = None) -> None:
        self.rows += len(values)
        self._counted += len(values) if weights is None else int(np.count_nonzero(weights))
        self._moments.see(values, weights)
        self._squared_weights += float(len(values) if weights is None else (weights**2).sum())

    def join(self, other: MeanOfRows) -> None:
        """See the rows that another has seen."""
        self.rows += other.rows
        self._counted += other._counted
        self._moments.join(other._moments)
        self._squared_weights += other._squared_weights

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
