"""The support of a prior: the interval of every parameter, and a map from these intervals to all of R^D."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import constraints

from cubicflow.transforms.transform import Transform, check_ends, check_features, is_unbounded

Interval = tuple[float, float]


class PriorSupport(Transform):
    """A map from intervals to the real line, column by column.

    The map is the logit for a column with two bounds, a logarithm for a column with one bound, and the identity for a
    column without bounds. A point on a bound is moved to the nearest point inside, so all samples of the prior have a
    density. Outside the bounds the log-det is -inf. The inverse never reaches a bound: every sample lies inside.

    Args:
        low: the lower bound of each column, or -inf.
        high: the upper bound of each column, or inf.

    >>> support = PriorSupport([0.0, 1.0, -math.inf], [2.0, math.inf, math.inf])
    >>> z, log_det = support(torch.tensor([[1.0, 2.0, 3.0], [5.0, 2.0, 3.0]]))
    >>> z[0], log_det
    (tensor([0., 0., 3.]), tensor([0.6931,   -inf]))
    """

    def __init__(self, low: Sequence[float], high: Sequence[float]) -> None:
        super().__init__()
        self.bounds = [(float(a), float(b)) for a, b in zip(low, high, strict=True)]
        self.features = len(self.bounds)
        ends = torch.tensor(self.bounds, dtype=torch.zeros(()).dtype).T
        self.low, self.high = nn.Buffer(ends[0].clone()), nn.Buffer(ends[1].clone())
        below, above = [math.isfinite(a) for a, _ in self.bounds], [math.isfinite(b) for _, b in self.bounds]
        self.has_low, self.has_high = nn.Buffer(torch.tensor(below)), nn.Buffer(torch.tensor(above))

    def config(self) -> dict[str, Any]:
        return {"low": [low for low, _ in self.bounds], "high": [high for _, high in self.bounds]}

    def contains(self, x: Tensor) -> Tensor:
        """Return whether each row lies in the support, including the bounds: (N, D) -> (N,)."""
        return ((x >= self.low) & (x <= self.high)).all(-1)

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        check_features(self, x, len(self.bounds))
        # The distances from both bounds. A missing bound has the constant distance 1, which has log 0 and no gradient.
        limits = torch.finfo(x.dtype)
        nearest = torch.where(self.has_low & self.has_high, limits.eps / 2 * (self.high - self.low), limits.tiny)
        from_low = torch.where(self.has_low, x - self.low, 1)
        from_high = torch.where(self.has_high, self.high - x, 1)
        inside_low, inside_high = from_low.clamp(min=nearest), from_high.clamp(min=nearest)
        z = torch.where(self.has_low | self.has_high, inside_low.log() - inside_high.log(), x)
        log_slope = self._log_width - inside_low.log() - inside_high.log()
        return z, torch.where((from_low < 0) | (from_high < 0), -torch.inf, log_slope).sum(-1)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        check_features(self, z, len(self.bounds))
        both, width = self.has_low & self.has_high, self._log_width
        # The log distances from both bounds, 0 from a missing one.
        from_low = torch.where(self.has_low, torch.where(both, width + F.logsigmoid(z), z), 0)
        from_high = torch.where(self.has_high, torch.where(both, width + F.logsigmoid(-z), -z), 0)
        is_low = self.has_low & ~(self.has_high & (z > 0))
        x = torch.where(self.has_high, self.high - from_high.exp(), z)
        x = torch.where(is_low, self.low + from_low.exp(), x)
        x = x.clamp(torch.nextafter(self.low, self.high), torch.nextafter(self.high, self.low))
        return x, (from_low + from_high - width).sum(-1)

    def map_box(self, ends: Tensor, *, inverse: bool = False) -> Tensor | None:
        check_ends(self, ends)
        return torch.stack([self.low, self.high]) if inverse and is_unbounded(ends) else None

    @property
    def _log_width(self) -> Tensor:
        """The log width of columns with two bounds; 0 for other columns."""
        return torch.where(self.has_low & self.has_high, self.high - self.low, 1).log()


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
