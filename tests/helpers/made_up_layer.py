"""A linear layer that the package does not know, and a flow of such layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import cubicflow as cf
from cubicflow.transforms import Compose, Elementwise, LULinear
from cubicflow.transforms.linear import Dense, LinearTransform


@cf.register
class RankOne(LinearTransform):
    """W = diag(exp(s)) (I + u v'), with |u| |v| < 1."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features
        self.scales = nn.Parameter(torch.linspace(-0.5, 0.5, features))
        self.vectors = nn.Parameter(torch.linspace(-1, 1, 2 * features).reshape(2, features) / features)
        self.bias = None

    @classmethod
    def dense_layers(cls, layers):
        made.append(len(layers))
        eye = torch.eye(layers[0].features, dtype=layers[0].scales.dtype)
        weights = [
            layer.scales.exp()[:, None] * (eye + torch.outer(*layer.vectors.tanh() / layer.features))
            for layer in layers
        ]
        return [Dense(weight, weight.slogdet().logabsdet) for weight in weights]

    def config(self) -> dict[str, Any]:
        return {"features": self.features}


made: list[int] = []  # the numbers of layers whose matrices were made together


def linear_flow() -> cf.Flow:
    torch.manual_seed(0)
    layers = [RankOne(3), Elementwise(3), LULinear(3, seed=0), RankOne(3)]
    flow = cf.Flow(cf.distributions.StandardNormal(3), Compose(layers)).double()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return flow
