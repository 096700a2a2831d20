"""The contract of base densities."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import constraints

from cubicflow.arguments import arguments_of, positive

LOG_SQRT_2PI = math.log(2 * math.pi) / 2


class Base(nn.Module, ABC):
    """A density on noise of shape (N, features), optionally given context (N, context_features).

    ``temperature`` scales the standard deviation. At temperature 0 every sample is the mode. ``log_prob`` returns the
    log density of the tempered density.

    A custom base needs two methods, and its support if that is not the real line. The methods of a base with
    ``context_features`` also take ``context``:

    >>> class Exponential(Base):
    ...     support = constraints.nonnegative
    ...
    ...     def log_prob(self, z, temperature=1.0):
    ...         log_prob = -(z / temperature).sum(-1) - self.features * math.log(temperature)
    ...         return torch.where((z < 0).any(-1), -torch.inf, log_prob)
    ...
    ...     def sample(self, n, temperature=1.0, generator=None):
    ...         return -temperature * torch.rand(n, self.features, generator=generator).log()
    >>> Exponential(2).log_prob(torch.tensor([[0.5, 1.0], [-1.0, 0.0]]))
    tensor([-1.5000,    -inf])
    """

    # The noise that has a density: one constraint for every feature, or a ``constraints.cat`` with one for each.
    support: constraints.Constraint = constraints.real
    context_features: int = 0
    noise: str | None = None  # what :meth:`from_noise` takes, in words; None if it takes draws of the base itself
    tempered: bool = True  # whether temperatures other than 1 have a meaning

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = positive("features", features)
        # The anchor holds the device and dtype of the module, because some densities have no parameters.
        self.anchor = nn.Buffer(torch.zeros(()))

    @abstractmethod
    def log_prob(self, z: Tensor, temperature: float = 1.0) -> Tensor:
        """Return the log density of every row: (N, features) -> (N,)."""

    @abstractmethod
    def sample(self, n: int, temperature: float = 1.0, generator: torch.Generator | None = None) -> Tensor:
        """Draw n samples, (n, features), differentiable with respect to the parameters."""

    def bounds(self) -> list[tuple[float, float]] | None:
        """Return the lowest and the highest value of every feature, or None if the support is not a box."""
        return _bounds(self.support, self.features)

    @property
    def noise_features(self) -> int:
        """The numbers of one row of noise for :meth:`from_noise`."""
        return self.features

    def from_noise(self, noise: Tensor) -> Tensor:
        """Map noise from elsewhere to samples, as an exported sampler does: (N, noise_features) -> (N, features)."""
        return noise

    def as_normal(self) -> tuple[Tensor, Tensor] | None:
        """Return mean and standard deviation of every feature, (features,), if this is a normal with independent
        features; otherwise None."""
        return None

    def fixed(self) -> Base:
        """Return this base for a graph that is never trained, as :meth:`Transform.fixed` does for layers."""
        return self

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments: by default the attributes of the same names."""
        return arguments_of(self)

    def _check(self, z: Tensor, temperature: float) -> None:
        if z.shape[-1] != self.features:
            raise ValueError(f"{type(self).__name__} expects {self.features} features, got {z.shape[-1]}")
        self._check_temperature(temperature)

    def _check_temperature(self, temperature: float) -> None:
        if not self.tempered and temperature != 1:
            raise ValueError(
                f"a {type(self).__name__} base supports only temperature 1, got {temperature!r}; use a flow with a "
                "normal base for tempered samples"
            )
        if not (math.isfinite(temperature) and temperature >= 0):
            raise ValueError(f"temperature must be a finite number, at least 0 (0 gives the mode), got {temperature!r}")

    def _normal(self, n: int, generator: torch.Generator | None) -> Tensor:
        """Draw standard normal numbers, (n, features)."""
        like = self.anchor
        return torch.randn(n, self.features, dtype=like.dtype, device=like.device, generator=generator)

    def _uniform(self, n: int, generator: torch.Generator | None) -> Tensor:
        """Draw uniform numbers in [0, 1), (n, features)."""
        like = self.anchor
        return torch.rand(n, self.features, dtype=like.dtype, device=like.device, generator=generator)


def _bounds(support: Any, features: int) -> list[tuple[float, float]] | None:
    if isinstance(support, constraints.cat):
        parts = [_bounds(part, n) for part, n in zip(support.cseq, support.lengths, strict=True)]
        return None if None in parts else [pair for part in parts for pair in part or []]
    if (of_each := getattr(support, "base_constraint", None)) is not None:
        return _bounds(of_each, features)
    low, high = getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)
    if low is high is None and not isinstance(support, type(constraints.real)):
        return None
    ends = [-math.inf if low is None else low, math.inf if high is None else high]
    each = [end.expand(features).tolist() if isinstance(end, Tensor) else [float(end)] * features for end in ends]
    return list(zip(*each, strict=True))
