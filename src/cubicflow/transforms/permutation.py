"""Fixed permutations of the features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from cubicflow import arguments
from cubicflow.arguments import positive
from cubicflow.transforms.transform import Transform, check_features, no_log_det


class Permutation(Transform):
    """A fixed permutation of columns or channels: z[:, i] = x[:, permutation[i]].

    >>> Permutation([2, 0, 1])(torch.tensor([[10.0, 20.0, 30.0]]))[0]
    tensor([[30., 10., 20.]])
    >>> Permutation.reversing(3).order, Permutation.random(3, seed=1).order
    ([2, 1, 0], [1, 2, 0])
    """

    increasing = True
    affine = True

    def __init__(self, permutation: Sequence[int]) -> None:
        super().__init__()
        self.features = positive("the number of features of a permutation", len(permutation))
        self.order = arguments.permutation("permutation", permutation, self.features)
        self.permutation = nn.Buffer(torch.tensor(self.order))

    @classmethod
    def reversing(cls, features: int) -> Self:
        """Return the permutation that reverses the features."""
        return cls(range(features - 1, -1, -1))

    @classmethod
    def random(cls, features: int, seed: int = 0) -> Self:
        """Return a random permutation, which depends on the seed alone."""
        return cls(torch.randperm(features, generator=torch.Generator().manual_seed(seed)).tolist())

    def config(self) -> dict[str, Any]:
        return {"permutation": self.order}

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_features(self, x, len(self.order))
        return x.index_select(1, self.permutation), no_log_det(x)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_features(self, z, len(self.order))
        return z.index_select(1, self.permutation.argsort()), no_log_det(z)
