"""Transforms made of transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow.transforms.lu_linear import LULinear, dense_weights
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
        weights = self._linear_weights()
        log_dets = []
        for part in self.transforms:
            if isinstance(part, LULinear):
                x = part.through(x, weights[part])
            else:
                x, log_det = part(x, context if part.context_features else None)
                log_dets.append(log_det)
        log_det = torch.stack(log_dets).sum(0) if log_dets else no_log_det(x)
        if weights:
            log_det = log_det + torch.cat([layer.log_diagonal for layer in weights]).sum()
        return x, log_det

    def _linear_weights(self) -> dict[LULinear, Tensor]:
        """The weights of all linear layers, those of one size together: one by one they would cost more time than the
        products they are for."""
        weights: dict[LULinear, Tensor] = {}
        linear = [part for part in self.transforms if isinstance(part, LULinear)]
        for features in {layer.features for layer in linear}:
            layers = [layer for layer in linear if layer.features == features]
            weights.update(zip(layers, dense_weights(layers), strict=True))
        return weights

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        log_det = no_log_det(z)
        for part in reversed(self.transforms):
            z, log_det_part = part.inverse(z, context if part.context_features else None)
            log_det = log_det + log_det_part
        return z, log_det


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
