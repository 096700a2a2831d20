"""The von Mises density, a normal on a circle."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.distributions import VonMises as TorchVonMises
from torch.distributions import constraints

from cubicflow.distributions.parametric import ParametricBase
from cubicflow.nets.rng import drawing_from


class VonMises(ParametricBase):
    """Independent angles with the density exp(k cos(a - location)) / (2 pi I_0(k)). Locations and concentrations k are
    trained, or computed from the context.

    A circle is [low, high], by default [-pi, pi]. Circular splines are on [0, 1]. Outside the circle the log density is
    -inf. At a temperature T the concentration is k / T^2, as the variance of a narrow density is 1 / k. Samples are
    differentiable in the locations and not in the concentrations.

    Args:
        features, context_features: as in :class:`DiagonalNormal`.
        network: a network from contexts (N, C) to (N, 2 D), which are added to the trained locations, as angles, and
            logarithms of the concentrations.
        low, high: the ends of every circle.

    >>> base = VonMises(1)
    >>> base.log_prob(torch.tensor([[0.0], [4.0]])).exp()
    tensor([0.3417, 0.0000], grad_fn=<ExpBackward0>)
    """

    count = 2

    def __init__(
        self,
        features: int,
        *,
        low: float = -math.pi,
        high: float = math.pi,
        context_features: int = 0,
        network: nn.Module | None = None,
    ) -> None:
        super().__init__(features, context_features=context_features, network=network)
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"low must be below high, and both finite, got {low!r} and {high!r}")
        self.low, self.high = float(low), float(high)
        self.support = constraints.interval(self.low, self.high)
        self.location = nn.Parameter(torch.zeros(self.features))
        self.log_concentration = nn.Parameter(torch.zeros(self.features))

    def _trained(self) -> list[Tensor]:
        return [self.location, self.log_concentration]

    def log_prob(self, z: Tensor, temperature: float = 1.0, context: Tensor | None = None) -> Tensor:
        self._check(z, temperature)
        location, log_concentration = self._params(context)
        if temperature == 0:
            return torch.where((z == self._on_circle(location)).all(-1), torch.inf, -torch.inf)
        concentration = torch.exp(log_concentration - 2 * math.log(temperature))
        turns = (z - self.low) / (self.high - self.low)
        distance = torch.sin(math.pi * turns - (location + math.pi) / 2)  # 1 - cos(a) = 2 sin^2(a / 2)
        log_norm = torch.special.i0e(concentration).log() + math.log(self.high - self.low)
        log_prob = (-2 * concentration * distance.square() - log_norm).sum(-1)
        return torch.where(((z < self.low) | (z > self.high)).any(-1), -torch.inf, log_prob)

    def sample(
        self, n: int, temperature: float = 1.0, generator: torch.Generator | None = None, context: Tensor | None = None
    ) -> Tensor:
        self._check_temperature(temperature)
        location, log_concentration = (param.expand(n, -1) for param in self._params(context))
        if temperature == 0:
            return self._on_circle(location)
        concentration = torch.exp(log_concentration.detach() - 2 * math.log(temperature))
        with drawing_from(generator):
            angles = TorchVonMises(torch.zeros_like(concentration), concentration, validate_args=False).sample()
        return self._on_circle(location + angles)

    def _on_circle(self, angles: Tensor) -> Tensor:
        """Return the places on [low, high] of angles, of which 0 is in the middle."""
        turns = torch.remainder(angles / (2 * math.pi) + 0.5, 1)
        return self.low + (self.high - self.low) * turns
