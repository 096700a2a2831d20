"""Whether the rounds of an integration agree: a test of equal means with estimated variances.

Each round's variance is estimated from its 12 or 6 replicates. The chi-square of the rounds against their mean has the
chi-square distribution only if the variances are known. With estimated variances, the chi-square is larger on average.
At the level 0.001, a chi-square test would reject 24 equal rounds of 12 replicates in 2.7 % of all cases, and 12 equal
rounds of 6 replicates in 8 %. So the p-value is computed from Student's t.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

MEAN_STEPS = 50  # after 30 steps, p-values change by less than 1 %


class Round(NamedTuple):
    """The estimate of the integral from one round alone, with its standard error."""

    value: float
    error: float
    effective: float  # effective number of points
    replicates: int


class Agreement(NamedTuple):
    """The chi-square of rounds against their mean, its degrees of freedom, and the p-value of equal means."""

    chi_square: float
    degrees: int
    p_value: float


def agreement(rounds: list[Round]) -> Agreement:
    """Test whether the rounds agree. Every error must be positive. Fewer than two rounds have the p-value 1.

    >>> found = agreement([Round(1.0, 0.1, 500.0, 12), Round(1.2, 0.1, 500.0, 12)])
    >>> round(found.chi_square, 3), found.degrees, round(found.p_value, 3)
    (2.0, 1, 0.176)
    """
    if len(rounds) < 2:
        return Agreement(0.0, 0, 1.0)
    values, errors, _, replicates = torch.tensor(rounds, dtype=torch.float64).T
    weights = (errors.min() / errors).square()
    mean = (weights * values).sum() / weights.sum()
    chi_square = float(((values - mean) / errors).square().sum())
    return Agreement(chi_square, len(rounds) - 1, float(equality_p_value(values, errors, replicates - 1)))


def equality_p_value(values: Tensor, errors: Tensor, degrees: Tensor) -> Tensor:
    """Return the p-value of the hypothesis that normal values have the same mean: (..., K) -> (...).

    Every deviation t = (value - mean) / error has Student's distribution. The mean is the maximum likelihood estimate,
    which gives less weight to outliers than a mean weighted by 1 / error^2. Each t is transformed to a normal deviate,
    as in the test of Alexander and Govern (1994). The sum of the squared deviates approximately has the chi-square
    distribution with K - 1 degrees of freedom.

    Args:
        values: (..., K).
        errors: the estimated standard error of each value, (..., K), positive.
        degrees: the degrees of freedom of each error, (..., K).

    >>> values = torch.tensor([[1.0, 1.1, 0.9], [1.0, 1.1, 3.0]])
    >>> equality_p_value(values, torch.full((2, 3), 0.1), torch.full((2, 3), 11.0)) < 1e-3
    tensor([False,  True])
    """
    weights = (errors.amin(-1, keepdim=True) / errors).square()
    robust = weights
    for _ in range(MEAN_STEPS):
        mean = (robust * values).sum(-1, keepdim=True) / robust.sum(-1, keepdim=True)
        t_square = ((values - mean) / errors).square()
        robust = weights / (1 + t_square / degrees)
    squares = normal_deviate(t_square.sqrt(), degrees).square().sum(-1)
    half_degrees = torch.full_like(squares, (values.shape[-1] - 1) / 2)
    p_value: Tensor = torch.special.gammaincc(half_degrees, squares / 2)
    return p_value


def normal_deviate(t: Tensor, degrees: Tensor) -> Tensor:
    """Return the normal deviate with the tail probability of Student's t >= 0 (Hill, 1970, algorithm 395).

    >>> normal_deviate(torch.tensor([2.0]), torch.tensor([11.0]))
    tensor([1.8067])
    """
    a = degrees - 0.5
    b = 48 * a.square()
    c = (a * torch.log1p(t.square() / degrees)).sqrt()
    third = (4 * c**7 + 33 * c**5 + 240 * c**3 + 855 * c) / (10 * b**2 + 8 * b * c**4 + 1000 * b)
    return c + (c**3 + 3 * c) / b - third
