"""Batch norm as a bijection."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from cubicflow.arguments import number, positive
from cubicflow.transforms.actnorm import over_processes
from cubicflow.transforms.transform import Transform, check_features, per_pixel, scale_log_det


class BatchNorm(Transform):
    """Batch norm as a layer of a flow (Dinh et al. 2017, section 3.7; Papamakarios et al. 2017, section 3.4):
    z = (x - m) exp(g) / sqrt(v + eps) + b with the mean m and the variance v of each feature.

    In training mode, m and v are those of the batch, which must have two rows, and the running averages of m and v move
    towards them. In evaluation mode, m and v are the running averages, and the layer is a fixed affine map: only then
    are log densities those of a density. The inverse always takes the running averages, so in training mode it is not
    the inverse of ``forward``. If several processes train a flow, each normalises by its own batch, and the running
    averages are over all of them.

    Args:
        features: D, the number of columns or channels.
        momentum: the weight of a batch in the running averages.
        eps: added to the variance.

    >>> layer = BatchNorm(3)
    >>> z, _ = layer(5 + 2 * torch.randn(1000, 3))
    >>> torch.allclose(z.mean(0), torch.zeros(3), atol=1e-4), torch.allclose(z.std(0), torch.ones(3), atol=1e-2)
    (True, True)
    """

    affine = True
    updated = ("mean", "variance")

    def __init__(self, features: int, *, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.features = positive("features", features)
        self.momentum = number("momentum", momentum, above=0)
        self.eps = number("eps", eps, above=0)
        self.log_scale = nn.Parameter(torch.zeros(features))
        self.shift = nn.Parameter(torch.zeros(features))
        self.mean = nn.Buffer(torch.zeros(features))
        self.variance = nn.Buffer(torch.ones(features))

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_features(self, x, self.features)
        if self.training:
            mean, variance = self._statistics(x)
            self._update(mean, variance, self.momentum)
        else:
            mean, variance = self.mean, self.variance
        log_scale = self._log_scale(variance)
        outputs = (x - per_pixel(mean, x)) * per_pixel(log_scale.exp(), x) + per_pixel(self.shift, x)
        return outputs, scale_log_det(x, log_scale)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_features(self, z, self.features)
        log_scale = self._log_scale(self.variance)
        outputs = (z - per_pixel(self.shift, z)) * per_pixel(torch.exp(-log_scale), z) + per_pixel(self.mean, z)
        return outputs, -scale_log_det(z, log_scale)

    def initialise(self, x: Tensor, context: Tensor | None = None) -> None:
        """Set the running averages to the mean and the variance of a batch."""
        self._update(*self._statistics(x), 1.0)

    def _log_scale(self, variance: Tensor) -> Tensor:
        return self.log_scale - torch.log(variance + self.eps) / 2

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of every feature, (D,)."""
        if x.shape[0] * math.prod(x.shape[2:]) < 2:
            raise ValueError(
                f"BatchNorm in training mode needs a batch of two rows or more, got shape {tuple(x.shape)}; call "
                "flow.eval() for single rows, or choose a larger batch_size"
            )
        others = [axis for axis in range(x.ndim) if axis != 1]
        return x.mean(others), x.var(others, correction=0)

    @torch.no_grad()
    def _update(self, mean: Tensor, variance: Tensor, weight: float) -> None:
        count = over_processes(torch.ones_like(mean))  # of the processes
        self.mean.lerp_(over_processes(mean.clone()) / count, weight)
        self.variance.lerp_(over_processes(variance.clone()) / count, weight)
