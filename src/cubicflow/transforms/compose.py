"""Transforms made of transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow.transforms.lu_linear import LULinear, dense_inverses, dense_weights
from cubicflow.transforms.transform import Transform, no_log_det


class Compose(Transform):
    """One transform after the other. Context goes to those that take it.

    >>> import torch
    >>> from cubicflow.transforms import LULinear, Elementwise
    >>> Compose([LULinear(3), Elementwise(3)])(torch.randn(4, 3))[0].shape
    torch.Size([4, 3])
    """

    transforms: Sequence[Transform]

    def __init__(self, transforms: Sequence[Transform]) -> None:
        super().__init__()
        self.transforms = nn.ModuleList(transforms)  # type: ignore[assignment] # a sequence of them, to the type checker
        self.context_features = max((part.context_features for part in transforms), default=0)

    def config(self) -> dict[str, Any]:
        return {"transforms": list(self.transforms)}

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        linear = self._plain_linear_layers()
        weights = _of_every_size(linear, dense_weights)
        log_dets = []
        for place, part in enumerate(self.transforms):
            if place in linear:
                x = linear[place].through(x, weights[place])
            else:
                x, log_det = part(x, context if part.context_features else None)
                log_dets.append(log_det)
        log_det = torch.stack(log_dets).sum(0) if log_dets else no_log_det(x)
        if linear:
            log_det = log_det + torch.cat([layer.log_diagonal for layer in linear.values()]).sum()
        return x, log_det

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        linear = {place: layer for place, layer in self._plain_linear_layers().items() if layer.takes_dense_inverse(z)}
        inverses = _of_every_size(linear, dense_inverses)
        log_det = no_log_det(z)
        for place, part in reversed(list(enumerate(self.transforms))):
            if place in linear:
                z = linear[place].back_through(z, inverses[place])
            else:
                z, log_det_part = part.inverse(z, context if part.context_features else None)
                log_det = log_det + log_det_part
        if linear:
            log_det = log_det - torch.cat([layer.log_diagonal for layer in linear.values()]).sum()
        return z, log_det

    def _plain_linear_layers(self) -> dict[int, LULinear]:
        """The linear layers that need not be called one by one, by place: a subclass, a layer with hooks or one whose
        methods were replaced may do something else than multiply."""
        return {place: part for place, part in enumerate(self.transforms) if type(part) is LULinear and _is_plain(part)}


def _is_plain(layer: LULinear) -> bool:
    replaced = "forward" in layer.__dict__ or "inverse" in layer.__dict__
    hooked = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    return not (replaced or hooked)


def _of_every_size(
    layers: dict[int, LULinear], make: Callable[[Sequence[LULinear]], Sequence[Tensor]]
) -> dict[int, Tensor]:
    """The matrices of all linear layers, those of one size together: one by one they would cost more time than the
    products they are for."""
    matrices: dict[int, Tensor] = {}
    for features in {layer.features for layer in layers.values()}:
        alike = {place: layer for place, layer in layers.items() if layer.features == features}
        matrices.update(zip(alike, make(list(alike.values())), strict=True))
    return matrices


class Inverse(Transform):
    """A transform the other way round: IAF is the inverse of MAF.

    >>> import torch
    >>> from cubicflow.transforms import Permutation
    >>> Inverse(Permutation([2, 0, 1]))(torch.tensor([[10.0, 20.0, 30.0]]))[0]
    tensor([[20., 30., 10.]])
    """

    def __init__(self, transform: Transform) -> None:
        super().__init__()
        self.transform = transform
        self.context_features = transform.context_features

    def config(self) -> dict[str, Any]:
        return {"transform": self.transform}

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.transform.inverse(x, context)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        outputs: tuple[Tensor, Tensor] = self.transform(z, context)
        return outputs
