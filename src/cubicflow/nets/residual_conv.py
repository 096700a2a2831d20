"""The network of the image flows."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cubicflow.nets.residual_net import ResidualNet


class ResidualConv(ResidualNet):
    """Residual convnet, features being channels: (N, in_features, H, W) [, (N, C)] -> (N, out_features, H, W).

    A 3x3 layer, blocks of a 3x3 and a 1x1 convolution, a 1x1 output layer; zero padding keeps the image's size, and
    context is joined to the inputs as constant channels. The arguments are those of
    :class:`~cubicflow.nets.residual_net.ResidualNet`.

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
        planes = context[:, :, None, None].expand(-1, -1, *x.shape[-2:])
        return torch.cat([x, planes], dim=1)
