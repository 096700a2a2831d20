"""Bases without parameters: the standard normal, the uniform density, and one of them for each column."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.distributions import constraints

from cubicflow.arguments import one_of
from cubicflow.distributions.base import LOG_SQRT_2PI, Base

DOMAINS = ("real", "unit", "circle")


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


class Uniform(Base):
    """A uniform density on the unit cube, as in the paper's two-dimensional flows. Outside the cube the log density is
    -inf. The only temperature is 1.

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


class ByColumn(Base):
    """A base with independent columns: standard normal on the real line, uniform on the unit interval and on circles.

    Outside the unit interval the log density is -inf. The only temperature is 1.

    Args:
        domains: ``"real"``, ``"unit"`` or ``"circle"`` for each column.

    >>> ByColumn(["real", "unit"]).log_prob(torch.tensor([[0.0, 0.5], [0.0, 1.5]]))
    tensor([-0.9189,    -inf])
    """

    tempered = False

    def __init__(self, domains: Sequence[str]) -> None:
        super().__init__(len(domains))
        self.domains = list(domains)
        for i, domain in enumerate(self.domains):
            one_of(f"domains[{i}]", domain, DOMAINS)
        each = [constraints.real if domain == "real" else constraints.unit_interval for domain in self.domains]
        self.support = constraints.cat(each, dim=-1)
        names = [StandardNormal.noise if domain == "real" else Uniform.noise for domain in self.domains]
        self.noise = f"by column: {', '.join(names)}"
        self.real = nn.Buffer(torch.tensor([domain == "real" for domain in self.domains]))

    def log_prob(self, z: Tensor, temperature: float = 1.0) -> Tensor:
        self._check(z, temperature)
        inside = torch.where((z < 0) | (z > 1), -torch.inf, 0 * z)  # 0 * z keeps NaN
        return torch.where(self.real, -z.square() / 2 - LOG_SQRT_2PI, inside).sum(-1)

    def sample(self, n: int, temperature: float = 1.0, generator: torch.Generator | None = None) -> Tensor:
        self._check_temperature(temperature)
        return torch.where(self.real, self._normal(n, generator), self._uniform(n, generator))
