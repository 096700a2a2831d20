"""The interval of every parameter under a prior, read from the prior's support."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.distributions import constraints

Interval = tuple[float, float]


def prior_bounds(prior: Any, features: int) -> list[Interval]:
    """Return (low, high) for each column of the prior. A missing bound is infinite.

    All bounds are infinite if the prior has no ``support``, or if its support is not a box.

    >>> from torch.distributions import Independent, Uniform
    >>> prior_bounds(Independent(Uniform(torch.zeros(2), torch.tensor([1.0, 5.0])), 1), 2)
    [(0.0, 1.0), (0.0, 5.0)]
    """
    try:
        support = prior.support
    except (AttributeError, NotImplementedError):
        support = constraints.real
    bounds = _bounds(support, features)
    for i, (low, high) in enumerate(bounds):
        if not low < high:
            raise ValueError(f"column {i} of the prior has bounds ({low:g}, {high:g}); low must be below high")
    return bounds


def _bounds(support: Any, features: int) -> list[Interval]:
    if isinstance(support, constraints.independent):
        return _bounds(support.base_constraint, features)
    if isinstance(support, constraints.cat) and sum(support.lengths) == features:
        return [pair for part, n in zip(support.cseq, support.lengths, strict=True) for pair in _bounds(part, n)]
    low = getattr(support, "lower_bound", -math.inf)
    high = getattr(support, "upper_bound", math.inf)
    return list(zip(_column(low, features), _column(high, features), strict=True))


def _column(bound: Any, features: int) -> list[float]:
    """Return a bound for each column, from one bound for all columns or a tensor with one bound per column."""
    values = torch.as_tensor(bound, dtype=torch.float64).flatten()
    if len(values) not in (1, features):
        raise ValueError(
            f"the prior has {len(values)} parameters, but the simulations have {features}; "
            "give the prior of the simulated parameters"
        )
    found: list[float] = values.expand(features).tolist()
    return found
