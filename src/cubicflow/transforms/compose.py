"""Composition and inversion of transforms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow.transforms.linear import dense_matrices, linear_layers, sum_of_log_scales
from cubicflow.transforms.transform import Transform, context_for, no_log_det


class Compose(Transform):
    """A sequence of transforms, applied in order. Transforms with ``context_features`` receive the context.

    Args:
        transforms: the transforms, from data to noise.

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

    def __len__(self) -> int:
        return len(self.transforms)

    def __getitem__(self, place: int) -> Transform:
        return self.transforms[place]

    def __iter__(self) -> Iterator[Transform]:
        return iter(self.transforms)

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        linear = linear_layers(self.transforms, "forward")
        dense = dense_matrices(linear)
        log_dets = []
        for place, part in enumerate(self.transforms):
            if place in dense:
                x, _ = part(x, dense=dense[place])
            else:
                x, log_det = part(x, context_for(part, context))
                log_dets.append(log_det)
        log_det = torch.stack(log_dets).sum(0) if log_dets else no_log_det(x)
        return x, log_det + sum_of_log_scales(linear) if linear else log_det

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        linear = linear_layers(self.transforms, "inverse")
        linear = {place: layer for place, layer in linear.items() if layer.takes_dense_inverse(z)}
        dense = dense_matrices(linear, inverse=True)
        log_det = no_log_det(z)
        for place, part in reversed(list(enumerate(self.transforms))):
            if place in dense:
                z, _ = linear[place].inverse(z, dense=dense[place])
            else:
                z, log_det_part = part.inverse(z, context_for(part, context))
                log_det = log_det + log_det_part
        return z, log_det - sum_of_log_scales(linear) if linear else log_det

    def map_box(self, ends: Tensor, *, inverse: bool = False) -> Tensor | None:
        box: Tensor | None = ends
        for part in reversed(self.transforms) if inverse else self.transforms:
            if box is None:
                break
            box = part.map_box(box, inverse=inverse)
        return box


class Inverse(Transform):
    """The inverse of a transform: ``forward`` and ``inverse`` change places. IAF is the inverse of MAF.

    Args:
        transform: the transform to invert.

    >>> import torch
    >>> from cubicflow.transforms import Permutation
    >>> Inverse(Permutation([2, 0, 1]))(torch.tensor([[10.0, 20.0, 30.0]]))[0]
    tensor([[20., 30., 10.]])
    """

    def __init__(self, transform: Transform) -> None:
        super().__init__()
        self.transform = transform
        self.context_features = transform.context_features
        self.affine = transform.affine

    def config(self) -> dict[str, Any]:
        return {"transform": self.transform}

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.transform.inverse(x, context)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        outputs: tuple[Tensor, Tensor] = self.transform(z, context)
        return outputs

    def map_box(self, ends: Tensor, *, inverse: bool = False) -> Tensor | None:
        return self.transform.map_box(ends, inverse=not inverse)
