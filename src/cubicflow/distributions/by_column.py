"""The base of flows with a domain for each column."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.distributions import constraints

from cubicflow.distributions.base import LOG_SQRT_2PI, Base
from cubicflow.distributions.normal import StandardNormal
from cubicflow.distributions.uniform import Uniform

DOMAINS = ("real", "unit", "circle")


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
            if domain not in DOMAINS:
                raise ValueError(f"domains[{i}] must be 'real', 'unit' or 'circle', got {domain!r}")
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
