"""Moves blocks of pixels into channels."""

from __future__ import annotations

from torch import Tensor

from cubicflow.transforms.transform import Transform, no_log_det


class Squeeze(Transform):
    """A layer that turns every 2x2 block of pixels into one pixel with four times the channels:
    (N, C, H, W) -> (N, 4C, H/2, W/2).

    >>> import torch
    >>> Squeeze()(torch.randn(5, 1, 28, 28))[0].shape
    torch.Size([5, 4, 14, 14])
    """

    increasing = True
    affine = True

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if x.ndim != 4 or x.shape[2] % 2 or x.shape[3] % 2:
            raise ValueError(f"Squeeze expects images of even height and width, got shape {tuple(x.shape)}")
        blocks = x.unflatten(3, (-1, 2)).unflatten(2, (-1, 2))  # (N, C, H/2, 2, W/2, 2)
        return blocks.permute(0, 1, 3, 5, 2, 4).flatten(1, 3), no_log_det(x)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if z.ndim != 4 or z.shape[1] % 4:
            raise ValueError(f"the inverse of Squeeze expects a multiple of 4 channels, got shape {tuple(z.shape)}")
        blocks = z.unflatten(1, (-1, 2, 2))  # (N, C, 2, 2, H/2, W/2)
        return blocks.permute(0, 1, 4, 2, 5, 3).flatten(4, 5).flatten(2, 3), no_log_det(z)
