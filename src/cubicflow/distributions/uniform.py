"""The uniform density of the paper's two-dimensional flows."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import constraints

from cubicflow.distributions.base import Base


class Uniform(Base):
    """A uniform density on the unit cube. Outside the cube the log density is -inf. The only temperature is 1.

    >>> Uniform(2).log_prob(torch.tensor([[0.5, 0.5], [0.5, 1.5]]))
    tensor([0., -inf])
    """

    support = constraints.unit_interval
    noise = "uniform on [0, 1)"
    tempered = False

    def log_prob(self, z: Tensor, temperature: float = 1.0) -> Tensor:
        self._check(z, temperature)
        outside = ((z < 0) | (z > 1)).any(-1)
        return torch.where(outside, -torch.inf, 0 * z.sum(-1))  # 0 * z keeps NaN

    def sample(self, n: int, temperature: float = 1.0, generator: torch.Generator | None = None) -> Tensor:
        self._check_temperature(temperature)
        return self._uniform(n, generator)
