"""The network of the tabular flows."""

from __future__ import annotations

from torch import nn

from cubicflow.nets.products import Linear
from cubicflow.nets.residual_net import ResidualNet


class ResidualMLP(ResidualNet):
    """A residual network on vectors: (N, in_features) [, (N, C)] -> (N, out_features).

    The arguments are as in :class:`~cubicflow.nets.residual_net.ResidualNet`.

    >>> import torch
    >>> net = ResidualMLP(3, 22, hidden_features=16)
    >>> net(torch.randn(5, 3)).shape, bool((net(torch.randn(5, 3)) == 0).all())
    (torch.Size([5, 22]), True)
    """

    def _make_ends(self) -> tuple[nn.Module, nn.Module]:
        first = Linear(self._encoded_features() + self.context_features, self.hidden_features)
        return first, Linear(self.hidden_features, self.out_features)

    def _make_layers(self) -> tuple[nn.Module, nn.Module]:
        width = self.hidden_features
        return Linear(width, width, relu=self.norm is None), Linear(width, width)
