"""The standard normal."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cubicflow.distributions.base import LOG_SQRT_2PI, Base


class StandardNormal(Base):
    """A base of independent standard normals, one for each feature.

    >>> StandardNormal(2).log_prob(torch.zeros(1, 2))
    tensor([-1.8379])
    """

    noise = "standard normal"

    def log_prob(self, z: Tensor, temperature: float = 1.0) -> Tensor:
        self._check(z, temperature)
        if temperature == 0:  # all mass is at the mode
            return torch.where((z == 0).all(-1), torch.inf, -torch.inf)
        log_norm = self.features * (LOG_SQRT_2PI + math.log(temperature))
        scaled = z if temperature == 1 else z / temperature
        return -0.5 * scaled.square().sum(-1) - log_norm

    def sample(self, n: int, temperature: float = 1.0, generator: torch.Generator | None = None) -> Tensor:
        self._check_temperature(temperature)
        return temperature * self._normal(n, generator)

    def as_normal(self) -> tuple[Tensor, Tensor]:
        zeros = self.anchor.expand(self.features)
        return zeros, zeros + 1
