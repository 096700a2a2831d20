"""Every evaluation of an integrand, with its weight under the mixture of all samplers of its fold.

The points are split into three folds, in a ring: the samplers of a fold are fitted to the points of the next fold. So a
density is never high at a point because it was fitted to that point. A point influences the samplers of its own fold
only through both other folds, so within a fold the samplers are nearly independent of the points.
The estimate of a fold is the balance heuristic of multiple importance sampling,

    I = sum_i f(u_i) / sum_t n_t q_t(u_i),

where t runs over the fold's rounds, and round t drew n_t points from q_t. Every evaluation is used. A point from a bad
sampler does little harm: where a later sampler has a higher density, that sampler dominates the denominator.

The points of a round are replicates, each an independent randomised net. The sums over replicates are independent and
identically distributed. So their spread gives the standard error, including the gain of nets over independent points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from cubicflow.integration.agreement import Round
from cubicflow.integration.blend import Blend
from cubicflow.weights import effective_size


class Fold:
    """A third of all evaluations. ``u`` has shape (N, D), all other tensors (N,)."""

    def __init__(self, features: int) -> None:
        self.u = torch.empty(0, features, dtype=torch.float64)
        self.values = torch.empty(0, dtype=torch.float64)  # f times the volume element at the point
        self.log_total = torch.empty(0, dtype=torch.float64)  # log sum_t n_t q_t
        self.log_own = torch.empty(0, dtype=torch.float64)  # log n_t q_t of the point's own round
        self.rounds: list[tuple[Blend, int, int]] = []  # blend, number of points, number of replicates

    def __len__(self) -> int:
        return len(self.u)

    def add(self, blend: Blend, u: Tensor, values: Tensor, replicates: int) -> None:
        """Add the points of one round, drawn from ``blend``: ``replicates`` groups of equal size, in order."""
        own = blend.log_density(u) + math.log(len(u))
        total = own
        for earlier, n, _ in self.rounds:
            total = torch.logaddexp(total, earlier.log_density(u) + math.log(n))
        if len(self):
            self.log_total = torch.logaddexp(self.log_total, blend.log_density(self.u) + math.log(len(u)))
        self.u = torch.cat([self.u, u])
        self.values = torch.cat([self.values, values])
        self.log_total = torch.cat([self.log_total, total])
        self.log_own = torch.cat([self.log_own, own])
        self.rounds.append((blend, len(u), replicates))

    @property
    def weights(self) -> Tensor:
        """The weights of all points, (N,). The weights sum to the estimate."""
        return self.values * (-self.log_total).exp()

    def estimate(self) -> tuple[float, float]:
        """Return the estimate and its standard error."""
        sums = [own.sum(1) for own in self._by_replicates(self.weights)]
        return float(torch.cat(sums).sum()), math.hypot(*map(error_of_sum, sums))

    def round_estimates(self) -> list[Round]:
        """Return each round's own estimate of the integral."""
        return [
            Round(float(own.sum()), error_of_sum(own.sum(1)), effective_size(own.abs()), len(own))
            for own in self._by_replicates(self.values * (-self.log_own).exp())
        ]

    def _by_replicates(self, weights: Tensor) -> Iterator[Tensor]:
        """Yield the weights of each round, (replicates, n / replicates)."""
        parts = weights.split([n for _, n, _ in self.rounds])
        for (_, _, replicates), part in zip(self.rounds, parts, strict=True):
            yield part.view(replicates, -1)


def error_of_sum(terms: Tensor) -> float:
    """Return the standard error of the sum of independent, identically distributed terms, (N,) with N >= 2.

    >>> f"{error_of_sum(torch.tensor([1e-200, 3e-200], dtype=torch.float64)):.3g}"
    '2e-200'
    """
    largest = float(terms.abs().max())
    if largest == 0:
        return 0.0
    return largest * math.sqrt(len(terms)) * float((terms / largest).std())  # scaled: squares could underflow
