"""One trainable map for every feature, independent of the other features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cubicflow.arguments import positive
from cubicflow.transforms.element_map import ElementMap
from cubicflow.transforms.transform import Transform, check_ends, check_features, sum_features


class Elementwise(Transform):
    """A layer with one trainable map per feature (column or channel). Every map starts as the identity.

    Args:
        features: D.
        element_map: the map of each element. The default is the cubic spline with 10 bins on the real line.

    >>> x = torch.randn(4, 3)
    >>> z, log_det = Elementwise(3)(x)
    >>> torch.allclose(z, x, atol=1e-6), log_det.shape
    (True, torch.Size([4]))
    """

    def __init__(self, features: int, element_map: ElementMap | None = None) -> None:
        super().__init__()
        self.features = positive("features", features)
        self.element_map = element_map or ElementMap()
        self.element_map.check_columns(features)
        self.params = nn.Parameter(torch.zeros(features, self.element_map.num_params))

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        y, log_slope = self.map(x)
        return y, sum_features(log_slope)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        x, log_slope = self.map(z, inverse=True)
        return x, sum_features(log_slope)

    def map_box(self, ends: Tensor, *, inverse: bool = False) -> Tensor | None:
        check_ends(self, ends)
        return self.element_map.map_box(ends)

    def map(self, x: Tensor, *, inverse: bool = False) -> tuple[Tensor, Tensor]:
        """Return the outputs and the log-slope at every element, both of x's shape."""
        check_features(self, x, self.features)
        over_pixels = self.params.view(self.features, *(1,) * (x.ndim - 2), -1)  # (D, 1, 1, P) for images
        return self.element_map(x, over_pixels, inverse=inverse)
