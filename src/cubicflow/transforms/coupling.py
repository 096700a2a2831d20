"""The coupling layer of the paper. One half is transformed given the other half; the other half has trainable maps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cubicflow.hooks import hook
from cubicflow.nets.network_factory import NetworkFactory, make_network
from cubicflow.transforms.element_map import ElementMap
from cubicflow.transforms.elementwise import Elementwise
from cubicflow.transforms.halves import Halves, join, slices_of, split
from cubicflow.transforms.transform import Transform, check_ends, check_inputs, sum_features


def alternating_mask(features: int, *, even: bool = True) -> list[bool]:
    """Return the mask of the even features, or with ``even=False`` of the odd ones.

    >>> alternating_mask(5)
    [True, False, True, False, True]
    """
    return [(i % 2 == 0) == even for i in range(features)]


def contiguous_mask(features: int, *, second: bool = True) -> list[bool]:
    """Return the mask of the second half of the features, or with ``second=False`` of the first half. For an odd number
    of features the first half is the larger one.

    >>> contiguous_mask(5), contiguous_mask(5, second=False)
    ([False, False, False, True, True], [True, True, True, False, False])
    """
    return [(i >= (features + 1) // 2) == second for i in range(features)]


class Coupling(Transform):
    """A coupling layer. A network computes the maps of the masked features from the other features and the context. The
    other features have trainable elementwise maps. The layer takes one network pass in either direction.

    Args:
        mask: one bool for each feature (column, or channel of an image). True: the network's maps transform it.
        network: a module, or a factory called with (in_features, out_features, context_features=...). A copy of a
            network of your own runs once on made-up inputs, to check the number of its outputs.
        element_map: the map of each element. The default is the cubic spline with 10 bins on the real line.
        context_features: C, the size of the context that the network sees in addition to the other features.
        transform_identity: put trainable maps on the other features. The network sees these features before the maps
            act, and the inverse undoes the maps first.

    >>> from functools import partial
    >>> from cubicflow.nets import ResidualMLP
    >>> layer = Coupling([True, False, True], partial(ResidualMLP, hidden_features=16))
    >>> z, log_det = layer(torch.randn(4, 3))
    >>> z.shape, log_det.shape
    (torch.Size([4, 3]), torch.Size([4]))
    """

    def __init__(
        self,
        mask: Sequence[bool],
        network: nn.Module | NetworkFactory,
        element_map: ElementMap | None = None,
        *,
        context_features: int = 0,
        transform_identity: bool = True,
    ) -> None:
        super().__init__()
        self.mask = [bool(chosen) for chosen in mask]
        self.features = len(self.mask)
        self.element_map = element_map or ElementMap()
        self.element_map.check_columns(len(self.mask))
        self.context_features = context_features
        self.transform_identity = transform_identity
        transformed = [i for i, chosen in enumerate(self.mask) if chosen]
        identity = [i for i, chosen in enumerate(self.mask) if not chosen]
        if not transformed:
            raise ValueError(f"the mask {self.mask} leaves nothing to transform; set at least one entry to True")
        if not identity and not context_features:
            raise ValueError(
                f"the mask {self.mask} leaves no input for the network; set at least one entry to False, give the "
                "layer context_features, or use Elementwise"
            )
        self.transformed = nn.Buffer(torch.tensor(transformed))
        self.identity = nn.Buffer(torch.tensor(identity, dtype=torch.int64))
        self.restore = nn.Buffer(torch.tensor(identity + transformed).argsort())
        self.slices = slices_of(identity, transformed)
        outputs = len(transformed) * self.element_map.num_params
        circles = self.element_map.circles(identity)
        self.network = make_network(network, len(identity), outputs, context_features, circles)
        self.transformed_map = self.element_map.columns(transformed)
        self.identity_map = self.element_map.columns(identity) if identity else self.element_map
        self.identity_maps = Elementwise(len(identity), self.identity_map) if transform_identity and identity else None

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return coupling_pass.forward(self, x, context)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        identity, transformed = self.split(z, context)
        log_det_identity: Tensor | float = 0.0
        if self.identity_maps is not None:
            identity, log_det_identity = self.identity_maps.inverse(identity)
        transformed, log_slope = self.transformed_map(transformed, self.params_of(identity, context), inverse=True)
        return join(identity, transformed, self.halves), sum_features(log_slope) + log_det_identity

    def map_box(self, ends: Tensor, *, inverse: bool = False) -> Tensor | None:
        check_ends(self, ends)
        return self.element_map.map_box(ends)

    def split(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the other features and the masked ones, after a check of the arguments."""
        check_inputs(self, x, context)
        return split(x, self.halves)

    def params_of(self, identity: Tensor, context: Tensor | None) -> Tensor:
        """Return the params of the masked features, (N, transformed, *pixels, P). For images this is a view of the
        network's channels, without a copy."""
        identity = self.identity_map.within_domain(identity)
        params: Tensor = self.network(identity) if context is None else self.network(identity, context)
        size = self.element_map.num_params
        by_feature: Tensor = params.unflatten(1, (self.transformed.shape[0], size))
        return by_feature.movedim(2, -1)

    @property
    def halves(self) -> Halves:
        return Halves(self.identity, self.transformed, self.restore, self.slices)


class CouplingPass:
    """The plain forward pass of a coupling layer."""

    def forward(self, layer: Coupling, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        identity, transformed = layer.split(x, context)
        transformed, log_slope = layer.transformed_map(transformed, layer.params_of(identity, context))
        if layer.identity_maps is None:
            return join(identity, transformed, layer.halves), sum_features(log_slope)
        identity, log_slope_identity = layer.identity_maps.map(identity)
        if x.ndim == 2:  # one sum over both halves: for few numbers, launching a second sum costs more than the copy
            log_det = torch.cat([log_slope, log_slope_identity], dim=1).sum(1)
        else:
            log_det = sum_features(log_slope) + sum_features(log_slope_identity)
        return join(identity, transformed, layer.halves), log_det


coupling_pass = hook("transforms", CouplingPass)
