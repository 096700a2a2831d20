"""The network of the image flows."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.nets.residual_net import ResidualNet


class ResidualConv(ResidualNet):
    """A residual convolutional network: (N, in_features, H, W) [, (N, C)] -> (N, out_features, H, W). Features are
    channels.

    The network is a 3x3 convolution, residual blocks of a 3x3 and a 1x1 convolution, and a 1x1 output convolution. Zero
    padding keeps the size of the image. Context is concatenated to the inputs as constant channels. Context that is an
    image, (N, C, height, width), is averaged over the pixels of the inputs, and gives channels that vary. The arguments
    are as in :class:`~cubicflow.nets.residual_net.ResidualNet`.

    >>> ResidualConv(2, 44, hidden_features=8)(torch.randn(5, 2, 4, 4)).shape
    torch.Size([5, 44, 4, 4])
    """

    def _make_ends(self) -> tuple[nn.Module, nn.Module]:
        first = nn.Conv2d(self.in_features + self.context_features, self.hidden_features, 3, padding=1)
        return first, nn.Conv2d(self.hidden_features, self.out_features, 1)

    def _make_layers(self) -> tuple[nn.Module, nn.Module]:
        width = self.hidden_features
        return nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 1)

    def _make_norm(self) -> nn.Module:
        if self.norm is None:
            return nn.Identity()
        return nn.BatchNorm2d(self.hidden_features) if self.norm == "batch" else nn.GroupNorm(1, self.hidden_features)

    def _join(self, x: Tensor, context: Tensor) -> Tensor:
        if context.ndim == 2:
            planes = context[:, :, None, None].expand(-1, -1, *x.shape[-2:])
        else:
            planes = F.adaptive_avg_pool2d(context, (x.shape[-2], x.shape[-1]))
        return torch.cat([x, planes], dim=1)
