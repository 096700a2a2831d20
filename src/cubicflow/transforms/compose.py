"""Transforms made of transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow.transforms.lu_linear import Dense, LULinear, dense_inverses, dense_layers
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
        linear = dict(self._linear_layers("forward"))
        dense = _made_together(linear, dense_layers)
        log_dets = []
        for place, part in enumerate(self.transforms):
            if place in dense:
                x, _ = part(x, dense=dense[place])
            else:
                x, log_det = part(x, context if part.context_features else None)
                log_dets.append(log_det)
        log_det = torch.stack(log_dets).sum(0) if log_dets else no_log_det(x)
        return x, log_det + _log_diagonals(linear) if linear else log_det

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        linear = {place: layer for place, layer in self._linear_layers("inverse") if layer.takes_dense_inverse(z)}
        dense = _made_together(linear, dense_inverses)
        log_det = no_log_det(z)
        for place, part in reversed(list(enumerate(self.transforms))):
            if place in dense:
                z, _ = linear[place].inverse(z, dense=dense[place])
            else:
                z, log_det_part = part.inverse(z, context if part.context_features else None)
                log_det = log_det + log_det_part
        return z, log_det - _log_diagonals(linear) if linear else log_det

    def _linear_layers(self, direction: str) -> Iterator[tuple[int, LULinear]]:
        """The linear layers by place, but none whose method was replaced: it may do something else than multiply."""
        for place, part in enumerate(self.transforms):
            if type(part) is LULinear and direction not in vars(part):
                yield place, part


def _made_together(
    layers: dict[int, LULinear], make: Callable[[Sequence[LULinear]], Sequence[Dense]]
) -> dict[int, Dense]:
    """The matrices of all linear layers, those of one size together: one by one they would cost more time than the
    products they are for."""
    dense: dict[int, Dense] = {}
    for features in {layer.features for layer in layers.values()}:
        alike = {place: layer for place, layer in layers.items() if layer.features == features}
        dense.update(zip(alike, make(list(alike.values())), strict=True))
    return dense


def _log_diagonals(layers: dict[int, LULinear]) -> Tensor:
    """The sum of all log-determinants, which needs no row: added to every row by itself it would be a sum over rows in
    the backward pass of every layer."""
    return torch.cat([layer.log_diagonal for layer in layers.values()]).sum()


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
