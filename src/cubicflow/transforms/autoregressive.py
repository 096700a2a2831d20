"""Autoregressive layers: every feature told by all the features before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow.constructors import arguments, positive
from cubicflow.nets import MaskedResidualMLP
from cubicflow.transforms.coupling import NetworkFactory, make_network
from cubicflow.transforms.element_map import ElementMap
from cubicflow.transforms.transform import Transform, check_context, check_features, sum_features


class Autoregressive(Transform):
    """z_i = map(x_i) with parameters computed from x_0 .. x_{i-1} and the context by one causal network.

    The forward map is one network pass. The inverse takes one feature after the other: D steps of a network that has
    them, as :class:`~cubicflow.nets.CausalTransformer` has, which are the work of one pass; D passes of any other. With
    the affine map this is MAF, and its :class:`Inverse` is IAF; with splines it is what the paper left for future work.

    Args:
        features: D.
        network: a module with autoregressive outputs, or a factory called with (in_features, out_features,
            context_features=...); by default :class:`~cubicflow.nets.MaskedResidualMLP`.
        element_map: which map; by default the cubic spline with 10 bins on the real line.
        context_features: C.
        order: in which the features come, a permutation of 0 .. D - 1; by default as they are. z keeps the order of x.

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
        self.features = positive("features", features)
        self.element_map = element_map or ElementMap()
        self.element_map.check_columns(features)
        self.context_features = context_features
        if order is not None and sorted(order) != list(range(features)):
            raise ValueError(f"order must hold every number from 0 to {features - 1} once, got {list(order)}")
        self.order = None if order is None else [int(i) for i in order]
        if self.order is not None:
            self.before = nn.Buffer(torch.tensor(self.order))  # of a network's feature, its place in x
            self.after = nn.Buffer(self.before.argsort())
        columns = list(range(features)) if self.order is None else self.order  # as the network sees them
        self._map = self.element_map.columns(columns)
        size, circles = self.element_map.num_params, self.element_map.circles(columns)
        self.network = make_network(network, features, features * size, context_features, circles)

    def config(self) -> dict[str, Any]:
        settings = arguments(self, "features", "network", "element_map", "context_features")
        return settings if self.order is None else {**settings, "order": self.order}

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        self._check(x, context)
        x = x if self.order is None else x.index_select(1, self.before)
        z, log_slope = self._map(x, self._params(x, context))
        return self._restored(z), sum_features(log_slope)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        self._check(z, context)
        z = z if self.order is None else z.index_select(1, self.before)
        one_by_one = getattr(self.network, "one_by_one", None)
        next_params = self._whole_passes(z, context) if one_by_one is None else one_by_one(z.shape[0], context)
        columns: list[Tensor] = []
        log_slopes: list[Tensor] = []
        for i in range(self.features):
            params = next_params(self._map.columns([i - 1]).within_domain(columns[-1]) if columns else None)
            x, log_slope = self._map.columns([i])(z[:, i], params, inverse=True)
            columns.append(x)
            log_slopes.append(log_slope)
        return self._restored(torch.stack(columns, dim=1)), sum_features(torch.stack(log_slopes, dim=1))

    def _whole_passes(self, z: Tensor, context: Tensor | None) -> Callable[[Tensor | None], Tensor]:
        """The steps of a network that has none of its own: a pass for each feature."""
        known: list[Tensor] = []

        def next_params(before: Tensor | None) -> Tensor:
            known.extend([] if before is None else [before[:, None]])
            i = len(known)
            # Features from i on are still unknown, and the network's outputs for feature i do not look at them.
            return self._params(torch.cat([*known, torch.zeros_like(z[:, i:])], dim=1), context)[:, i]

        return next_params

    def _check(self, x: Tensor, context: Tensor | None) -> None:
        check_features(self, x, self.features)
        check_context(self, context, self.context_features, x.shape[0])

    def _restored(self, z: Tensor) -> Tensor:
        return z if self.order is None else z.index_select(1, self.after)

    def _params(self, x: Tensor, context: Tensor | None) -> Tensor:
        x = self._map.within_domain(x)
        params: Tensor = self.network(x) if context is None else self.network(x, context)
        return params.view(x.shape[0], self.features, self.element_map.num_params)
