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
        self.replicate = torch.empty(0, dtype=torch.int64)  # replicate number, counted over all rounds
        self.rounds: list[tuple[Blend, int, int]] = []  # blend, number of points, number of replicates

    def __len__(self) -> int:
        return len(self.u)

    def add(self, blend: Blend, u: Tensor, values: Tensor, replicates: int) -> None:
        """Add the points of one round, drawn from ``blend``: ``replicates`` groups of equal size, in order."""
        log_n = torch.tensor(float(len(u)), dtype=torch.float64).log()
        own = blend.log_density(u) + log_n
        total = own
        for earlier, n, _ in self.rounds:
            total = torch.logaddexp(total, earlier.log_density(u) + torch.tensor(float(n)).log())
        if len(self):
            self.log_total = torch.logaddexp(self.log_total, blend.log_density(self.u) + log_n)
        first = sum(count for _, _, count in self.rounds)
        numbers = first + torch.arange(replicates).repeat_interleave(len(u) // replicates)
        self.u = torch.cat([self.u, u])
        self.values = torch.cat([self.values, values])
        self.log_total = torch.cat([self.log_total, total])
        self.log_own = torch.cat([self.log_own, own])
        self.replicate = torch.cat([self.replicate, numbers])
        self.rounds.append((blend, len(u), replicates))

    @property
    def weights(self) -> Tensor:
        """The weights of all points, (N,). The weights sum to the estimate."""
        return self.values * (-self.log_total).exp()

    def estimate(self) -> tuple[float, float]:
        """Return the estimate and its standard error."""
        sums = torch.zeros(sum(r for _, _, r in self.rounds), dtype=torch.float64)
        sums = sums.scatter_add(0, self.replicate, self.weights)
        rounds = sums.split([replicates for _, _, replicates in self.rounds])
        return float(sums.sum()), math.hypot(*map(error_of_sum, rounds))

    def round_estimates(self) -> list[Round]:
        """Return each round's own estimate of the integral."""
        found = []
        start = 0
        own = self.values * (-self.log_own).exp()
        for _, n, replicates in self.rounds:
            weights = own[start : start + n]
            sums = weights.view(replicates, -1).sum(1)
            found.append(Round(float(sums.sum()), error_of_sum(sums), effective_size(weights.abs()), replicates))
            start += n
        return found


def error_of_sum(terms: Tensor) -> float:
    """Return the standard error of the sum of independent, identically distributed terms, (N,) with N >= 2.

    >>> f"{error_of_sum(torch.tensor([1e-200, 3e-200], dtype=torch.float64)):.3g}"
    '2e-200'
    """
    largest = float(terms.abs().max())
    if largest == 0:
        return 0.0
    return largest * math.sqrt(len(terms)) * float((terms / largest).std())  # scaled: squares could underflow
