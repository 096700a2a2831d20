"""Batches of any shape: arguments of a flow checked, broadcast against each other and flattened to rows."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from cubicflow.arguments import whole_number

Given = TypeVar("Given", Tensor, Tensor | None)


def as_flow(name: str, values: Given, anchor: Tensor) -> Given:
    """Return values in the flow's dtype. Raise a TypeError for arrays and lists, and for an integer x: integers may be
    codes, or counts that need dequantisation."""
    if isinstance(values, (np.ndarray, list, tuple)):
        raise TypeError(
            f"{name} must be a tensor, got {type(values).__name__}; convert it with torch.as_tensor({name})"
        )
    if values is None or not isinstance(values, Tensor) or values.dtype == anchor.dtype:
        return values
    if not values.is_floating_point() and name == "x":
        raise TypeError(f"{name} must be floating point, got {values.dtype}; convert it with {name}.float()")
    return values.to(anchor.dtype)


def flatten_rows(
    x: Tensor, shape: tuple[int, ...], context: Tensor | None, context_shape: tuple[int, ...]
) -> tuple[Tensor, Tensor | None, torch.Size]:
    """Broadcast x (*batch, *shape) and context (*batch, *context_shape) to one batch shape, and flatten it to rows.
    Return the rows of x, the rows of context and the batch shape."""
    batch = x.shape[: x.ndim - len(shape)]
    if tuple(x.shape[len(batch) :]) != shape:
        raise ValueError(
            f"this flow is on data of shape {shape}: x must have shape (..., {_sizes(shape)}), got {tuple(x.shape)}"
        )
    if context is None and not context_shape:
        return x.reshape(-1, *shape) if x.numel() else x.reshape(batch.numel(), *shape), None, batch
    if not context_shape:
        raise ValueError("this flow has no context; leave out context=, or build the flow with context_features=")
    context, others = checked_context(context, context_shape)
    try:
        batch = batch if batch == others else torch.broadcast_shapes(batch, others)  # which would fix traced sizes
    except RuntimeError:
        raise ValueError(
            f"x of shape {tuple(x.shape)} and context of shape {tuple(context.shape)} do not broadcast: give one row "
            "of context for each row of x, or x of shape (n, N, ...) for N rows of context"
        ) from None
    return expanded(x, batch, shape), expanded(context, batch, context_shape), batch


def expanded(x: Tensor, batch: torch.Size, shape: tuple[int, ...]) -> Tensor:
    """Expand x (..., *shape) to the batch shape, and flatten it to rows (N, *shape)."""
    return x.expand(*batch, *shape).reshape(math.prod(batch), *shape)


def no_context(context_shape: tuple[int, ...]) -> ValueError:
    """Return the error for a missing context."""
    return ValueError(f"this flow is conditional: pass context= of shape (..., {_sizes(context_shape)})")


def checked_context(context: Tensor | None, context_shape: tuple[int, ...]) -> tuple[Tensor, torch.Size]:
    """Return the context and its batch shape. Raise a ValueError if it is missing or has another shape."""
    if context is None:
        raise no_context(context_shape)
    batch = context.shape[: context.ndim - len(context_shape)]
    if tuple(context.shape[len(batch) :]) != context_shape:
        raise ValueError(f"context must have shape (..., {_sizes(context_shape)}), got {tuple(context.shape)}")
    return context, batch


def _sizes(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))


def sample_shape(n: int, context: Tensor | None, axes: int = 1) -> torch.Size:
    """Return (n, *batch shape of context), where one context has ``axes`` axes. Raise a ValueError unless n is a whole
    number, 0 or more."""
    return torch.Size((whole_number("n", n, 0), *(() if context is None else context.shape[: context.ndim - axes])))


def as_generator(generator: torch.Generator | None, seed: int | None, device: torch.device) -> torch.Generator | None:
    """Return the given generator, or a generator with the given seed on the device, or None."""
    if generator is not None and seed is not None:
        raise ValueError("give generator= or seed=, not both")
    return generator if seed is None else torch.Generator(device).manual_seed(seed)
