"""The network of the plane flows."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from cubicflow.arguments import whole_number
from cubicflow.nets.residual_net import ResidualMLP
from cubicflow.nets.tracing import constant_tensor


class FourierMLP(ResidualMLP):
    """A :class:`ResidualMLP` for inputs from [0, 1] that also sees the sines and cosines of pi x, 2 pi x, 4 pi x, ...

    A network with one plain input learns slow variation first and fine detail very late. With waves of every octave it
    learns an edge as fast as a slope. 9 ``octaves`` resolve 1/256 of the interval. For an angle the waves are whole:
    2 pi x, 4 pi x, ... The other arguments are as in :class:`~cubicflow.nets.residual_net.ResidualNet`.

    >>> FourierMLP(1, 22, octaves=4, hidden_features=16)(torch.rand(5, 1)).shape
    torch.Size([5, 22])
    """

    def __init__(self, in_features: int, out_features: int, *, octaves: int = 9, **settings: Any) -> None:
        # Set first: the base class's constructor makes layers that depend on octaves.
        self.octaves = whole_number("octaves", octaves, 0)
        super().__init__(in_features, out_features, **settings)

    def config(self) -> dict[str, Any]:
        return {**super().config(), "octaves": self.octaves}

    def _encoded_features(self) -> int:
        return super()._encoded_features() + 2 * self.octaves * self.in_features

    def _encode(self, x: Tensor) -> Tensor:
        frequencies = math.pi * 2 ** torch.arange(self.octaves, dtype=x.dtype, device=x.device)
        whole = 1.0 if self.circles is None else 1 + constant_tensor(self.circles, x.device, x.dtype)[:, None]
        phases = (x[..., None] * frequencies * whole).flatten(-2)  # (N, in_features x octaves)
        if not self._angles:
            return torch.cat([2 * x - 1, phases.sin(), phases.cos()], dim=-1)
        return torch.cat([super()._encode(x), phases.sin(), phases.cos()], dim=-1)
