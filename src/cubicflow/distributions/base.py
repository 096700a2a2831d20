"""The base class of base densities."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import constraints

from cubicflow.constructors import positive


class Base(nn.Module, ABC):
    """A density on noise of shape (N, features).

    ``temperature`` scales the standard deviation. At temperature 0 every sample is the mode. ``log_prob`` returns the
    log density of the tempered density.

    A custom base needs two methods, and its support if that is not the real line:

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

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"features": self.features}

    def _check(self, z: Tensor) -> None:
        if z.shape[-1] != self.features:
            raise ValueError(f"{type(self).__name__} expects {self.features} features, got {z.shape[-1]}")


def check_temperature(temperature: float) -> None:
    """Raise a ValueError unless the temperature is finite and at least 0."""
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ValueError(f"temperature must be a finite number, at least 0 (0 gives the mode), got {temperature!r}")
