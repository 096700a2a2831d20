"""Bases whose parameters are trained, or computed from the context: the normal and Student's t."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.distributions import StudentT as TorchStudentT

from cubicflow.arguments import check_context_given, number
from cubicflow.distributions.base import LOG_SQRT_2PI, Base
from cubicflow.nets import ResidualMLP
from cubicflow.nets.rng import drawing_from

HIDDEN = 64  # units of the default network
LARGE = 16.0  # from here on, six terms of the series of log_gamma_ratio have all digits of float64
# The asymptotic series of log Gamma(a + 1/2) - log Gamma(a) - log(a) / 2 in odd powers of 1 / a.
SERIES = (-1 / 8, 1 / 192, -1 / 640, 17 / 14336, -31 / 18432, 691 / 180224)


class ParametricBase(Base):
    """A base with ``count`` parameters for each feature. Each parameter is a trained number. With context, the output
    of a network is added to it.

    Args:
        features: D.
        context_features: C; 0 for a base without context.
        network: a network from contexts (N, C) to (N, count D). None: a residual network that starts at zero.
    """

    count: int

    def __init__(self, features: int, *, context_features: int = 0, network: nn.Module | None = None) -> None:
        super().__init__(features)
        self.context_features = context_features
        if network is not None and not context_features:
            raise ValueError(f"the network of a {type(self).__name__} needs context_features=, the size of its inputs")
        if context_features and network is None:
            network = ResidualMLP(context_features, self.count * self.features, hidden_features=HIDDEN)
        self.network = network

    @abstractmethod
    def _trained(self) -> list[Tensor]:
        """Return the trained numbers, ``count`` tensors of shape (D,)."""

    def _params(self, context: Tensor | None) -> list[Tensor]:
        """Return the parameters, each of shape (D,), or given context (N, D)."""
        check_context_given(self, context, self.context_features)
        if self.network is None:
            return self._trained()
        found: Tensor = self.network(context)
        if found.shape[1] != self.count * self.features:
            raise ValueError(
                f"the network of a {type(self).__name__} with {self.features} features must return "
                f"{self.count * self.features} numbers for each row, got {found.shape[1]}"
            )
        changes = found.unflatten(1, (self.count, self.features)).unbind(1)
        return [value + change for value, change in zip(self._trained(), changes, strict=True)]


class LocationScale(ParametricBase):
    """A base of independent features, each z = location + scale * u. A subclass says what u is."""

    def __init__(self, features: int, *, context_features: int = 0, network: nn.Module | None = None) -> None:
        super().__init__(features, context_features=context_features, network=network)
        self.location = nn.Parameter(torch.zeros(self.features))
        self.log_scale = nn.Parameter(torch.zeros(self.features))

    @abstractmethod
    def _log_standard(self, u: Tensor, *shape: Tensor) -> Tensor:
        """Return the log densities of standard numbers u (N, D), given the other parameters."""

    @abstractmethod
    def _draw_standard(self, n: int, generator: torch.Generator | None, *shape: Tensor) -> Tensor:
        """Draw standard numbers, (n, D), given the other parameters."""

    def _trained(self) -> list[Tensor]:
        return [self.location, self.log_scale]

    def log_prob(self, z: Tensor, temperature: float = 1.0, context: Tensor | None = None) -> Tensor:
        self._check(z, temperature)
        location, log_scale, *shape = self._params(context)
        if temperature == 0:  # all mass is at the mode
            return torch.where((z == location).all(-1), torch.inf, -torch.inf)
        log_scale = log_scale + math.log(temperature)
        return (self._log_standard((z - location) * torch.exp(-log_scale), *shape) - log_scale).sum(-1)

    def sample(
        self, n: int, temperature: float = 1.0, generator: torch.Generator | None = None, context: Tensor | None = None
    ) -> Tensor:
        self._check_temperature(temperature)
        location, log_scale, *shape = self._params(context)
        if temperature == 0:
            return location.expand(n, -1)
        return location + temperature * log_scale.exp() * self._draw_standard(n, generator, *shape)


class DiagonalNormal(LocationScale):
    """A normal with independent features, whose means and scales are trained, or computed from the context.

    Args:
        features: D.
        context_features: C; 0 for a base without context.
        network: a network from contexts (N, C) to (N, 2 D), which are added to the trained means and logarithms of the
            scales. None: a residual network that starts at zero.

    >>> DiagonalNormal(2).log_prob(torch.zeros(1, 2))
    tensor([-1.8379], grad_fn=<SumBackward1>)
    >>> DiagonalNormal(2, context_features=3).sample(5, context=torch.randn(5, 3)).shape
    torch.Size([5, 2])
    """

    count = 2

    @property
    def noise(self) -> str | None:  # type: ignore[override] # a class attribute in Base
        return None if self.context_features else "standard normal"

    def from_noise(self, noise: Tensor) -> Tensor:
        return noise if self.context_features else self.location + self.log_scale.exp() * noise

    def as_normal(self) -> tuple[Tensor, Tensor] | None:
        return None if self.context_features else (self.location, self.log_scale.exp())

    def _log_standard(self, u: Tensor, *_shape: Tensor) -> Tensor:
        return -u.square() / 2 - LOG_SQRT_2PI

    def _draw_standard(self, n: int, generator: torch.Generator | None, *_shape: Tensor) -> Tensor:
        return self._normal(n, generator)


class StudentT(LocationScale):
    """Independent features with Student's t distribution, whose tails are as heavy as the data need. Locations, scales
    and degrees of freedom are trained, or computed from the context. Samples are differentiable in all of them.

    A flow with layers of bounded slope has tails of the kind of its base, so a normal base cannot fit heavy tails
    (Jaini et al., Tails of Lipschitz triangular flows, ICML 2020).

    Args:
        features, context_features: as in :class:`DiagonalNormal`.
        network: a network from contexts (N, C) to (N, 3 D), which are added to the trained locations, logarithms of the
            scales, and logarithms of the degrees of freedom.
        degrees: the degrees of freedom at the start.

    >>> StudentT(1, degrees=1.0).log_prob(torch.zeros(1, 1)).exp()  # 1 / pi, of a Cauchy distribution
    tensor([0.3183], grad_fn=<ExpBackward0>)
    """

    count = 3

    def __init__(
        self, features: int, *, degrees: float = 10.0, context_features: int = 0, network: nn.Module | None = None
    ) -> None:
        super().__init__(features, context_features=context_features, network=network)
        self.degrees = number("degrees", degrees, above=0)
        self.log_degrees = nn.Parameter(torch.full((self.features,), math.log(self.degrees)))

    def _trained(self) -> list[Tensor]:
        return [self.location, self.log_scale, self.log_degrees]

    def _log_standard(self, u: Tensor, *shape: Tensor) -> Tensor:
        (log_degrees,) = shape
        half = log_degrees.exp() / 2
        log_norm = log_gamma_ratio(half) - (log_degrees + math.log(math.pi)) / 2
        return log_norm - (half + 0.5) * torch.log1p(u.square() / (2 * half))

    def _draw_standard(self, n: int, generator: torch.Generator | None, *shape: Tensor) -> Tensor:
        (log_degrees,) = shape
        with drawing_from(generator):
            drawn: Tensor = TorchStudentT(log_degrees.exp().expand(n, -1), validate_args=False).rsample()
        return drawn


def log_gamma_ratio(a: Tensor) -> Tensor:
    """Return log Gamma(a + 1/2) - log Gamma(a), for a > 0. For large a the two terms would cancel.

    >>> log_gamma_ratio(torch.tensor([0.5, 1e8]))  # -log(pi) / 2 and log(1e8) / 2
    tensor([-0.5724,  9.2103])
    """
    few, many = a.clamp(max=LARGE), a.clamp(min=LARGE)
    series = sum(c * many ** -(2 * i + 1) for i, c in enumerate(SERIES))
    return torch.where(a < LARGE, torch.lgamma(few + 0.5) - torch.lgamma(few), many.log() / 2 + series)
