"""Autoregressive layers: every feature told by all the features before it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cubicflow.constructors import arguments, positive
from cubicflow.nets import MaskedResidualMLP
from cubicflow.transforms.coupling import NetworkFactory, make_network
from cubicflow.transforms.element_map import ElementMap
from cubicflow.transforms.transform import Transform, check_context, check_features, sum_features


class Autoregressive(Transform):
    """z_i = map(x_i) with parameters computed from x_0 .. x_{i-1} and the context by one masked network.

    The forward map is one network pass; the inverse is D of them, one feature after the other. With the affine map this
    is MAF, and its :class:`Inverse` is IAF; with splines it is what the paper left for future work.

    Args:
        features: D.
        network: a module with autoregressive outputs, or a factory called with (in_features, out_features,
            context_features=...); by default :class:`~cubicflow.nets.MaskedResidualMLP`.
        element_map: which map; by default the cubic spline with 10 bins on the real line.
        context_features: C.

    >>> z, log_det = Autoregressive(3)(torch.randn(4, 3))
    >>> z.shape, log_det.shape
    (torch.Size([4, 3]), torch.Size([4]))
    """

    def __init__(
        self,
        features: int,
        network: nn.Module | NetworkFactory = MaskedResidualMLP,
        element_map: ElementMap | None = None,
        *,
        context_features: int = 0,
    ) -> None:
        super().__init__()
        self.features = positive("features", features)
        self.element_map = element_map or ElementMap()
        self.context_features = context_features
        self.network = make_network(network, features, features * self.element_map.num_params, context_features)

    def config(self) -> dict[str, Any]:
        return arguments(self, "features", "network", "element_map", "context_features")

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        self._check(x, context)
        z, log_slope = self.element_map(x, self._params(x, context))
        return z, sum_features(log_slope)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        self._check(z, context)
        columns: list[Tensor] = []
        log_slopes: list[Tensor] = []
        for i in range(self.features):
            # Features from i on are still unknown, and the network's outputs for feature i do not look at them.
            known = torch.cat([*columns, torch.zeros_like(z[:, i:])], dim=1)
            x, log_slope = self.element_map(z[:, i : i + 1], self._params(known, context)[:, i : i + 1], inverse=True)
            columns.append(x)
            log_slopes.append(log_slope)
        return torch.cat(columns, dim=1), sum_features(torch.cat(log_slopes, dim=1))

    def _check(self, x: Tensor, context: Tensor | None) -> None:
        check_features(self, x, self.features)
        check_context(self, context, self.context_features, x.shape[0])

    def _params(self, x: Tensor, context: Tensor | None) -> Tensor:
        x = self.element_map.within_domain(x)
        params: Tensor = self.network(x) if context is None else self.network(x, context)
        return params.view(x.shape[0], self.features, self.element_map.num_params)
