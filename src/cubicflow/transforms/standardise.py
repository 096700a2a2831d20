"""A fixed shift and scale of each feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cubicflow.transforms.transform import Transform, check_features, per_pixel, scale_log_det


class Standardise(Transform):
    """A fixed map z = (x - mean) / std. Each feature (column, or channel of an image) has one mean and one std. They
    are not trained.

    >>> Standardise([1.0, 2.0], [2.0, 4.0])(torch.tensor([[3.0, 6.0]]))
    (tensor([[1., 1.]]), tensor([-2.0794]))
    """

    increasing = True
    affine = True

    def __init__(self, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor) -> None:
        super().__init__()
        dtype = torch.zeros(()).dtype  # torch's default dtype or, while a flow is being loaded, the flow's dtype
        self.mean = nn.Buffer(torch.as_tensor(mean).to(dtype, copy=True))
        self.std = nn.Buffer(torch.as_tensor(std).to(dtype, copy=True))
        if self.mean.ndim != 1 or self.mean.shape != self.std.shape:
            raise ValueError(
                f"mean and std need one number for each feature, got shapes {tuple(self.mean.shape)} and "
                f"{tuple(self.std.shape)}"
            )
        self.features = len(self.mean)
        if not self.std.is_meta and not bool((self.std > 0).all() & self.std.isfinite().all()):
            raise ValueError("every std must be positive and finite; drop constant columns, or give them std 1")

    @classmethod
    def of(cls, x: Tensor) -> Standardise:
        """Return the layer with the mean and standard deviation of the rows of x. A constant feature gets std 1."""
        rows = x.movedim(1, -1).reshape(-1, x.shape[1]).double()
        if not len(rows):
            raise ValueError("Standardise.of needs at least one row, got none")
        # Constant features are found by their range: the mean of equal numbers is rounded, so their std is seldom 0.
        constant = rows.amax(0) == rows.amin(0)
        return cls(rows.mean(0), torch.where(constant, 1, rows.std(0, correction=0)))

    @torch.no_grad()
    def whiten_(self, mean: NDArray[np.float64], scale: NDArray[np.float64], correlations: NDArray[np.float64]) -> None:
        """Set mean and std. Correlations remain."""
        del correlations
        self.mean.copy_(torch.from_numpy(mean))
        self.std.copy_(torch.from_numpy(scale))

    def config(self) -> dict[str, Any]:
        return {"mean": [0.0] * len(self.mean), "std": [1.0] * len(self.std)}  # the values are saved as buffers

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_features(self, x, len(self.mean))
        return (x - per_pixel(self.mean, x)) / per_pixel(self.std, x), scale_log_det(x, -self.std.log())

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_features(self, z, len(self.mean))
        return z * per_pixel(self.std, z) + per_pixel(self.mean, z), scale_log_det(z, self.std.log())
