"""Autoregressive layers: each feature is transformed given all features before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow.arguments import config_of, permutation, positive
from cubicflow.nets import MaskedResidualMLP
from cubicflow.nets.masked_residual_mlp import start_decoding
from cubicflow.nets.network_factory import NetworkFactory, make_network
from cubicflow.nets.tracing import constant_tensor
from cubicflow.transforms.element_map import ElementMap
from cubicflow.transforms.transform import Transform, check_ends, check_inputs, sum_features


class Autoregressive(Transform):
    """An autoregressive layer: z_i = map(x_i). One causal network computes the map's parameters from x_0 .. x_{i-1} and
    the context.

    The forward map takes one network pass. The inverse computes one feature at a time. With a network that has a method
    ``start_decoding``, such as :class:`~cubicflow.nets.CausalTransformer`, all D steps cost as much as one pass. With
    any other network the inverse takes D passes; with the ``adjacency`` of a
    :class:`~cubicflow.nets.MaskedResidualMLP`, one pass for each level of the graph. With the affine map this layer is
    MAF, and its :class:`Inverse` is IAF. With splines this layer is what the paper left for future work.

    Args:
        features: D.
        network: a module with autoregressive outputs, or a factory called with (in_features, out_features,
            context_features=...). The default is :class:`~cubicflow.nets.MaskedResidualMLP`. A copy of a network of
            your own runs on made-up rows, to check that it is causal.
        element_map: the map of each element. The default is the cubic spline with 10 bins on the real line.
        context_features: C.
        order: the order of the features, a permutation of 0 .. D - 1. The default is the order of the columns. z keeps
            the column order of x.

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
        order: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.features = self.inverse_passes = positive("features", features)
        self.element_map = element_map or ElementMap()
        self.element_map.check_columns(features, shares=True)
        shared = self.element_map.num_shared
        self.shared = nn.Parameter(torch.zeros(shared)) if shared else None
        self.context_features = context_features
        self.order = None if order is None else permutation("order", order, features)
        if self.order is not None:
            self.before = nn.Buffer(torch.tensor(self.order))  # the column of x for each of the network's features
            self.after = nn.Buffer(self.before.argsort())  # the network's feature for each column of x
        columns = list(range(features)) if self.order is None else self.order  # in the network's order
        self._map = self.element_map.columns(columns)
        self._maps = [self._map.columns([i]) for i in range(features)]
        size, circles = self.element_map.num_params, self.element_map.circles(columns)
        self.network = make_network(network, features, features * size, context_features, circles, causal=True)
        self._levels: list[list[int]] | None = getattr(self.network, "levels", None)
        if self._levels is not None:
            self.inverse_passes = len(self._levels)
            if self.order is not None:
                raise ValueError("a network with adjacency= has an order of its own; leave out order=")

    def config(self) -> dict[str, Any]:
        settings = config_of(self, "features", "network", "element_map", "context_features")
        return settings if self.order is None else {**settings, "order": self.order}

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_inputs(self, x, context)
        x = x if self.order is None else x.index_select(1, self.before)
        z, log_slope = self._map(x, self._params(x, context), shared=self.shared)
        return self._in_column_order(z), sum_features(log_slope)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_inputs(self, z, context)
        if self._levels is not None:
            return self._by_levels(z, context, self._levels)
        z = z if self.order is None else z.index_select(1, self.before)
        next_params = start_decoding(self.network, z, context)
        columns: list[Tensor] = []
        log_slopes: list[Tensor] = []
        for i in range(self.features):
            params = next_params(self._maps[i - 1].within_domain(columns[-1]) if columns else None)
            x, log_slope = self._maps[i](z[:, i], params, inverse=True, shared=self.shared)
            columns.append(x)
            log_slopes.append(log_slope)
        return self._in_column_order(torch.stack(columns, dim=1)), sum_features(torch.stack(log_slopes, dim=1))

    def map_box(self, ends: Tensor, *, inverse: bool = False) -> Tensor | None:
        check_ends(self, ends)
        return self.element_map.map_box(ends)

    def _by_levels(self, z: Tensor, context: Tensor | None, levels: list[list[int]]) -> tuple[Tensor, Tensor]:
        """Compute all features of a level, whose parents are known, in one pass."""
        x, log_slope = torch.zeros_like(z), torch.zeros_like(z)
        for level in levels:
            chosen = constant_tensor(level, z.device)
            numbers, params = z.index_select(1, chosen), self._params(x, context).index_select(1, chosen)
            parts = self._map.columns(level)(numbers, params, inverse=True, shared=self.shared)
            x, log_slope = (
                whole.to(part.dtype).index_copy(1, chosen, part)
                for whole, part in zip((x, log_slope), parts, strict=True)
            )
        return x, sum_features(log_slope)

    def _in_column_order(self, z: Tensor) -> Tensor:
        return z if self.order is None else z.index_select(1, self.after)

    def _params(self, x: Tensor, context: Tensor | None) -> Tensor:
        x = self._map.within_domain(x)
        params: Tensor = self.network(x) if context is None else self.network(x, context)
        return params.view(x.shape[0], self.features, self.element_map.num_params)
