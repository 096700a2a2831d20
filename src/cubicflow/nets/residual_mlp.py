"""The network of the tabular flows."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cubicflow.nets.products import Linear
from cubicflow.nets.residual_net import ResidualBlock, ResidualNet


class ResidualMLP(ResidualNet):
    """Residual network on vectors: (N, in_features) [, (N, C)] -> (N, out_features).

    The arguments are those of :class:`~cubicflow.nets.residual_net.ResidualNet`.

    >>> net = ResidualMLP(3, 22, hidden_features=16)
    >>> net(torch.randn(5, 3)).shape, bool((net(torch.randn(5, 3)) == 0).all())
    (torch.Size([5, 22]), True)
    """

    def _make_ends(self) -> tuple[nn.Module, nn.Module]:
        first = Linear(self.in_features + self.context_features, self.hidden_features)
        return first, Linear(self.hidden_features, self.out_features)

    def _make_block(self) -> ResidualBlock:
        width = self.hidden_features
        layers = Linear(width, width, relu=self.norm is None), Linear(width, width)
        return ResidualBlock(layers, (self._make_norm(), self._make_norm()), self.dropout)

    def _make_norm(self) -> nn.Module:
        if self.norm is None:
            return nn.Identity()
        return (nn.BatchNorm1d if self.norm == "batch" else nn.LayerNorm)(self.hidden_features)

    def _join(self, x: Tensor, context: Tensor) -> Tensor:
        return torch.cat([x, context], dim=-1)
