"""Fixed permutations of the features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cubicflow import arguments
from cubicflow.arguments import positive
from cubicflow.transforms.transform import Transform, check_features, no_log_det


class Permutation(Transform):
    """A fixed permutation of columns or channels: z[:, i] = x[:, permutation[i]].

    >>> Permutation([2, 0, 1])(torch.tensor([[10.0, 20.0, 30.0]]))[0]
    tensor([[30., 10., 20.]])
    """

    increasing = True
    affine = True

    def __init__(self, permutation: Sequence[int]) -> None:
        super().__init__()
        self.features = positive("the number of features of a permutation", len(permutation))
        self.order = arguments.permutation("permutation", permutation, self.features)
        self.permutation = nn.Buffer(torch.tensor(self.order))

    def config(self) -> dict[str, Any]:
        return {"permutation": self.order}

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_features(self, x, len(self.order))
        return x.index_select(1, self.permutation), no_log_det(x)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_features(self, z, len(self.order))
        return z.index_select(1, self.permutation.argsort()), no_log_det(z)
