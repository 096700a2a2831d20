"""Glow's 1x1 convolution: a linear layer at every pixel."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from cubicflow.arguments import positive
from cubicflow.transforms.linear import LinearTransform
from cubicflow.transforms.lu_linear import LULinear
from cubicflow.transforms.transform import Transform, check_image


class Conv1x1(Transform):
    """One linear layer, applied to the channels of every pixel: (N, C, H, W) -> (N, C, H, W).

    Args:
        features: the number of channels.
        bias, permute, seed: as in :class:`LULinear`.
        linear: the linear layer. The default is an :class:`LULinear`.

    >>> import torch
    >>> z, log_det = Conv1x1(4, seed=0)(torch.randn(2, 4, 3, 3))
    >>> z.shape, log_det.shape
    (torch.Size([2, 4, 3, 3]), torch.Size([2]))
    """

    affine = True

    def __init__(
        self,
        features: int,
        *,
        bias: bool = True,
        permute: bool = True,
        seed: int | None = None,
        linear: LinearTransform | None = None,
    ) -> None:
        super().__init__()
        self.features = positive("features", features)
        self.has_own_linear = linear is not None
        self.linear = LULinear(features, bias=bias, permute=permute, seed=seed) if linear is None else linear
        if self.linear.features != features:
            raise ValueError(f"linear has {self.linear.features} features, and this layer has {features}")

    def config(self) -> dict[str, Any]:
        return {"features": self.features, "linear": self.linear} if self.has_own_linear else self.linear.config()

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self._over_pixels(x, inverse=False)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self._over_pixels(z, inverse=True)

    def _over_pixels(self, x: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
        check_image(self, x, self.features)
        n, _, height, width = x.shape
        pixels = x.permute(0, 2, 3, 1).reshape(-1, self.features)  # (N H W, C)
        y, log_det = self.linear.inverse(pixels) if inverse else self.linear(pixels)
        y = y.reshape(n, height, width, self.features).permute(0, 3, 1, 2)
        return y, log_det.reshape(n, height * width).sum(1)
