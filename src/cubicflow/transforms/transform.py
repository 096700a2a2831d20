"""The contract of every layer, and helpers for layers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow.arguments import arguments_of, check_context_given

OWN_SHAPES = "a layer of your own that changes the shape overrides map_box"


class NotInvertibleError(NotImplementedError):
    """A layer was asked for an inverse that it does not have.

    >>> class Cubed(Transform):
    ...     def forward(self, x, context=None):
    ...         return x + x**3, torch.log1p(3 * x**2).sum(1)
    >>> try:
    ...     Cubed().inverse(torch.ones(1, 2))
    ... except NotInvertibleError as error:
    ...     print(str(error).partition(".")[0])
    Cubed has no inverse
    """


class Transform(nn.Module, ABC):
    """An invertible map of batches (N, D) or (N, C, H, W), optionally given context (N, context_features).

    ``forward`` maps data to noise, and ``inverse`` maps noise to data. Both return ``(outputs, log_det)``. ``log_det``
    has shape (N,). It is the log absolute determinant of the Jacobian of the evaluated map. All state is in parameters
    and buffers.

    A custom layer needs ``forward``, and ``inverse`` if there is one. It keeps the arguments of its constructor as
    attributes of the same names, or overrides ``config``:

    >>> class Doubling(Transform):
    ...     def forward(self, x, context=None):
    ...         return 2 * x, x.new_full(x.shape[:1], x.shape[1] * math.log(2))
    ...
    ...     def inverse(self, z, context=None):
    ...         return z / 2, z.new_full(z.shape[:1], -z.shape[1] * math.log(2))
    >>> Doubling()(torch.ones(1, 3))
    (tensor([[2., 2., 2.]]), tensor([2.0794]))
    """

    context_features: int = 0
    features: int = 0  # columns or channels of an input; 0 if the layer takes any number
    increasing: bool = False  # whether each output is an increasing function of one input
    affine: bool = False  # whether outputs are an affine function of inputs and context does not matter
    exact: bool = True  # whether log_det is the log-determinant itself, not an estimate of it
    # Whether a call uses every weight once, and values decide neither which kernels run nor how often. Only such layers
    # may be captured as a CUDA graph, with the gradients of weights on a second stream.
    one_pass: bool = True
    updated: tuple[str, ...] = ()  # buffers that a forward pass changes in training mode
    inverse_passes: int = 1  # passes that ``inverse`` takes; features of an autoregressive layer

    @abstractmethod
    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map data to noise. Return ``(z, log_det)``."""

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map noise to data. Return ``(x, log_det)``. Raise a NotInvertibleError if there is no inverse."""
        del z, context
        raise NotInvertibleError(
            f"{type(self).__name__} has no inverse. A flow with this layer has log densities but no samples; with "
            "Inverse around the layer, it has samples with their log densities but no densities of given rows"
        )

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments: JSON values, transforms, networks, element maps, and lists of these. By
        default the attributes of the same names."""
        return arguments_of(self)

    def initialise(self, x: Tensor, context: Tensor | None = None) -> None:
        """Choose a start from inputs of the layer. A fit calls this once, with its first batch. Does nothing by
        default."""

    def fixed(self) -> Transform:
        """Return this layer for a graph that is never trained: a copy in which values that depend on parameters alone
        are computed. By default the layer itself."""
        return self

    def map_box(self, ends: Tensor, *, inverse: bool = False) -> Tensor | None:
        """Return the image of a box of inputs, or with ``inverse`` of a box of outputs; None if the image is unknown.

        ``ends`` has two rows, the lowest and the highest value of every feature. By default a layer maps all of space
        onto itself, and keeps the shape. A layer that changes the shape overrides this method. A layer whose inputs or
        outputs are only a part of space also does, or sets ``increasing`` if the images of the ends are the ends of the
        image. Raise a ValueError for a box of another shape.
        """
        check_ends(self, ends)
        if self.increasing:
            return (self.inverse(ends) if inverse else self(ends))[0]
        return ends if is_unbounded(ends) else None


@contextmanager
def initialising(flow: nn.Module) -> Iterator[None]:
    """In this block, a layer chooses its start from its inputs before it maps them: ``initialise`` of every layer."""

    def initialise(layer: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        layer.initialise(*inputs, **{name: value for name, value in named.items() if name in ("x", "context")})

    layers = [module for module in flow.modules() if isinstance(module, Transform)]
    hooks = [layer.register_forward_pre_hook(initialise, with_kwargs=True) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def is_unbounded(ends: Tensor) -> bool:
    """Return whether a box, given by its two ends, is all of space.

    >>> is_unbounded(torch.tensor([[-math.inf], [math.inf]])), is_unbounded(torch.tensor([[0.0], [math.inf]]))
    (True, False)
    """
    return bool((ends[0] == -math.inf).all() & (ends[1] == math.inf).all())


def sum_features(log_slope: Tensor) -> Tensor:
    """Return the sum over all axes but the first: (N, ...) -> (N,)."""
    return log_slope.sum(dim=tuple(range(1, log_slope.ndim))) if log_slope.ndim > 1 else log_slope


def no_log_det(x: Tensor) -> Tensor:
    """Return zeros of shape (N,), in float32 or a wider dtype."""
    return torch.zeros(x.shape[0], dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)


def scale_log_det(x: Tensor, log_scales: Tensor) -> Tensor:
    """Return the log-determinant, (N,), of the map that multiplies each feature by exp(log_scales), (D,), at every
    pixel."""
    pixels = x[0, 0].numel() if x.shape[0] else 0
    return no_log_det(x) + pixels * log_scales.sum()


def per_pixel(values: Tensor, x: Tensor) -> Tensor:
    """Return one number per feature, (D,), in a shape that broadcasts over x, (N, D) or (N, D, H, W)."""
    return values.view(-1, *(1,) * (x.ndim - 2))


def context_for(part: Any, context: Tensor | None) -> Tensor | None:
    """Return the context for a layer or a base, or None if it takes none."""
    return context if part.context_features else None


def check_features(transform: Transform, x: Tensor, features: int) -> None:
    """Raise a ValueError unless the second axis of x has size ``features``: columns of a table, channels of an
    image."""
    name = type(transform).__name__
    if x.ndim < 2:
        raise ValueError(f"{name} expects a batch of shape (N, {features}, ...), got shape {tuple(x.shape)}")
    if x.shape[1] != features:
        raise ValueError(f"{name} expects {features} features, got {x.shape[1]} in an input of shape {tuple(x.shape)}")


def check_inputs(transform: Transform, x: Tensor, context: Tensor | None) -> None:
    """Raise a ValueError unless x and the context fit the features of the transform."""
    check_features(transform, x, transform.features)
    check_context(transform, context, transform.context_features, x.shape[0])


def check_image(transform: Transform, x: Tensor, features: int) -> None:
    """Raise a ValueError unless x is a batch of images with ``features`` channels."""
    check_features(transform, x, features)
    if x.ndim != 4:
        raise ValueError(f"{type(transform).__name__} expects images of shape (N, C, H, W), got shape {tuple(x.shape)}")


def check_ends(transform: Transform, ends: Tensor) -> None:
    """Raise a ValueError unless a box, given by its two ends, has the features of the transform."""
    if transform.features and ends.shape[1] != transform.features:
        raise ValueError(
            f"{type(transform).__name__} has {transform.features} features, but the base or the layer beside it has "
            f"{ends.shape[1]}; give the base and all layers the same number; {OWN_SHAPES}"
        )


def check_floating(transform: Transform, x: Tensor) -> None:
    """Raise a TypeError for integer inputs, whose dtype would round the outputs to whole numbers."""
    if not x.is_floating_point():
        raise TypeError(f"{type(transform).__name__} needs floating-point inputs, got {x.dtype}; pass x.float()")


def check_context(transform: nn.Module, context: Tensor | None, context_features: int, rows: int) -> None:
    """Raise a ValueError unless the context fits: none for a layer without context, else one row per row of x."""
    check_context_given(transform, context, context_features)
    if context is not None and context.shape[0] != rows:
        name = type(transform).__name__
        raise ValueError(f"{name} got {rows} rows of x and {context.shape[0]} rows of context; pass equal numbers")
