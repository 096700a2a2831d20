"""Real NVP's multi-scale architecture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow.transforms.squeeze import Squeeze
from cubicflow.transforms.transform import Transform, context_for, is_unbounded, no_log_det


class MultiScale(Transform):
    """A multi-scale transform from images to vectors: (N, C, H, W) -> (N, C H W).

    Each level squeezes and transforms the image. Each level but the last then moves half of the channels to the output.
    The output is the concatenation of all these halves and of the last level's image, flattened.

    Args:
        levels: one transform for each level. A transform keeps the shape of the squeezed image.
        shape: (C, H, W) of one input. H and W must be divisible by 2 once for every level.

    >>> from cubicflow.transforms import ActNorm
    >>> layer = MultiScale([ActNorm(4), ActNorm(8)], (1, 8, 8))
    >>> layer(torch.randn(5, 1, 8, 8))[0].shape
    torch.Size([5, 64])
    """

    levels: Sequence[Transform]

    def __init__(self, levels: Sequence[Transform], shape: Sequence[int]) -> None:
        super().__init__()
        self.levels = nn.ModuleList(levels)  # type: ignore[assignment] # a sequence of them, to the type checker
        self.squeeze = Squeeze()
        self.shapes = level_shapes(shape, len(levels))
        self.shape = tuple(shape)
        self.context_features = max(level.context_features for level in levels)

    def config(self) -> dict[str, Any]:
        return {"levels": list(self.levels), "shape": list(self.shape)}

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if tuple(x.shape[1:]) != self.shape:
            raise ValueError(f"MultiScale expects images of shape {self.shape}, got {tuple(x.shape[1:])}")
        finished: list[Tensor] = []
        log_det = no_log_det(x)
        for level, transform in enumerate(self.levels):
            x, _ = self.squeeze(x)
            x, log_det_level = transform(x, context_for(transform, context))
            log_det = log_det + log_det_level
            if level < len(self.levels) - 1:
                leaving, x = x.chunk(2, dim=1)
                finished.append(leaving.flatten(1))
        return torch.cat([*finished, x.flatten(1)], dim=1), log_det

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        channels, height, width = self.shape
        size = channels * height * width
        if z.ndim != 2 or z.shape[1] != size:
            raise ValueError(
                f"the inverse of MultiScale expects vectors of shape (N, {size}), got shape {tuple(z.shape)}"
            )
        leaving = [c * h * w // 2 for c, h, w in self.shapes[:-1]]
        *finished, rest = z.split([*leaving, size - sum(leaving)], dim=1)
        x = rest.reshape(-1, *self.shapes[-1])
        log_det = no_log_det(z)
        for level, (channels, height, width) in reversed(list(enumerate(self.shapes))):
            if level < len(finished):
                x = torch.cat([finished[level].reshape(-1, channels // 2, height, width), x], dim=1)
            transform = self.levels[level]
            x, log_det_level = transform.inverse(x, context_for(transform, context))
            x, _ = self.squeeze.inverse(x)
            log_det = log_det + log_det_level
        return x, log_det

    def map_box(self, ends: Tensor, *, inverse: bool = False) -> Tensor | None:
        vector = (math.prod(self.shape),)
        expected, mapped = (vector, self.shape) if inverse else (self.shape, vector)
        if tuple(ends.shape[1:]) != expected:
            raise ValueError(
                f"MultiScale of shape={self.shape} expects {'noise' if inverse else 'data'} of shape {expected}, but "
                f"the base or the layer beside it has {tuple(ends.shape[1:])}; give a base of {vector[0]} features"
            )
        flat = ends.flatten(1)
        for level, shape in zip(self.levels, self.shapes, strict=True):
            image = level.map_box(flat[:, : math.prod(shape)].reshape(2, *shape), inverse=inverse)
            if image is None or not is_unbounded(image):
                return None
        return flat.reshape(2, *mapped) if is_unbounded(ends) else None


def level_shapes(shape: Sequence[int], num_levels: int) -> list[tuple[int, int, int]]:
    """Return the (C, H, W) of the input of each level's transform.

    >>> level_shapes((1, 28, 28), 2)
    [(4, 14, 14), (8, 7, 7)]
    """
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(f"shape must be (channels, height, width), got {tuple(shape)}")
    if num_levels < 1:
        raise ValueError("MultiScale needs at least one level")
    channels, height, width = shape
    shapes = []
    for _ in range(num_levels):
        if height % 2 or width % 2:
            raise ValueError(
                f"images of shape {tuple(shape)} cannot be squeezed {num_levels} times: height and width must be even "
                "each time; use fewer levels, or pad the images"
            )
        channels, height, width = 4 * channels, height // 2, width // 2
        shapes.append((channels, height, width))
        channels //= 2
    return shapes
