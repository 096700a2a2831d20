"""The contract of every invertible layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn


class Transform(nn.Module, ABC):
    """An invertible map of batches, (N, D) or (N, C, H, W), perhaps told by context (N, context_features).

    ``forward`` is data to noise, ``inverse`` noise to data. Both return ``(outputs, log_det)``, with log_det of shape
    (N,) the log absolute determinant of the Jacobian of the map they evaluate. All state is in parameters and buffers.

    A layer of your own needs three methods:

    >>> import math
    >>> class Doubling(Transform):
    ...     def forward(self, x, context=None):
    ...         return 2 * x, x.new_full(x.shape[:1], x.shape[1] * math.log(2))
    ...
    ...     def inverse(self, z, context=None):
    ...         return z / 2, z.new_full(z.shape[:1], -z.shape[1] * math.log(2))
    ...
    ...     def config(self):
    ...         return {}
    >>> Doubling()(torch.ones(1, 3))
    (tensor([[2., 2., 2.]]), tensor([2.0794]))
    """

    context_features: int = 0

    @abstractmethod
    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Data to noise."""

    @abstractmethod
    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Noise to data."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The constructor's arguments: JSON values, transforms, networks, element maps, and lists of them."""


def sum_features(log_slope: Tensor) -> Tensor:
    """(N, ...) -> (N,)."""
    return log_slope.sum(dim=tuple(range(1, log_slope.ndim))) if log_slope.ndim > 1 else log_slope


def no_log_det(x: Tensor) -> Tensor:
    """Zeros of shape (N,), never below float32."""
    return torch.zeros(x.shape[0], dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)


def scale_log_det(x: Tensor, log_scales: Tensor) -> Tensor:
    """(N,), of a map that multiplies each feature, at every pixel, by the exponential of its ``log_scales`` (D,)."""
    pixels = x[0, 0].numel() if x.shape[0] else 0
    return no_log_det(x) + pixels * log_scales.sum()


def per_pixel(values: Tensor, x: Tensor) -> Tensor:
    """One number for each feature, (D,), as it broadcasts over x, (N, D) or (N, D, H, W)."""
    return values.view(-1, *(1,) * (x.ndim - 2))


def check_features(transform: Transform, x: Tensor, features: int) -> None:
    """Features are the second axis: columns of a table, channels of an image."""
    name = type(transform).__name__
    if x.ndim < 2:
        raise ValueError(f"{name} expects a batch of shape (N, {features}, ...), got shape {tuple(x.shape)}")
    if x.shape[1] != features:
        raise ValueError(f"{name} expects {features} features, got {x.shape[1]} in an input of shape {tuple(x.shape)}")


def check_floating(transform: Transform, x: Tensor) -> None:
    """Of layers whose outputs would be rounded to whole numbers with their inputs."""
    if not x.is_floating_point():
        raise TypeError(f"{type(transform).__name__} needs floating-point inputs, got {x.dtype}; pass x.float()")


def check_context(transform: nn.Module, context: Tensor | None, context_features: int, rows: int) -> None:
    """Context must be given to what was built for it, one row for each row of x."""
    name = type(transform).__name__
    if context is None:
        if context_features:
            raise ValueError(f"{name} was built with context_features={context_features}; pass context= of that many")
        return
    if not context_features:
        raise ValueError(f"{name} was built without context but was given some; build it with context_features=")
    if context.ndim != 2 or context.shape[1] != context_features:
        raise ValueError(f"{name} expects context of shape (N, {context_features}), got {tuple(context.shape)}")
    if context.shape[0] != rows:
        raise ValueError(f"{name} got {rows} rows of x and {context.shape[0]} rows of context; they must be as many")
