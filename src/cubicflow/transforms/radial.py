"""The radial flow."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.arguments import config_of, positive
from cubicflow.nets import ResidualMLP
from cubicflow.nets.rng import normal_start
from cubicflow.transforms.coupling import NetworkFactory, make_network
from cubicflow.transforms.sigmoidal import SOFTPLUS_IS_ONE
from cubicflow.transforms.transform import Transform, check_context, check_features


class Radial(Transform):
    """A radial layer (Rezende and Mohamed 2015, eq. 14): z = x + beta (x - c) / (alpha + r) with r = |x - c|. It
    contracts or expands space around a centre c.

    **It is invertible for all parameters.** With alpha > 0 and beta = alpha (s - 1), s = softplus(p + log(e - 1)) > 0,
    the distance from the centre becomes r (r + alpha s) / (r + alpha), whose slope
    (r^2 + 2 alpha r + alpha^2 s) / (alpha + r)^2 is a sum of positive terms. The other D - 1 directions are scaled by
    (r + alpha s) / (r + alpha) > 0 (their appendix A.2; the softplus is shifted so that p = 0 is the identity).

    The inverse is closed: r is the positive root of r^2 + (alpha s - R) r = alpha R for the distance R of z from c.

    Args:
        features: D.
        context_features: C. With context, the network adds to c, log alpha and p.
        network: the network from context to D + 2 numbers: a module, or a factory as in
            :class:`~cubicflow.transforms.Coupling`.
        seed: the seed of the first centre.

    >>> layer = Radial(3)
    >>> x = torch.randn(4, 3)
    >>> torch.allclose(layer(x)[0], x), layer(x)[1].shape
    (True, torch.Size([4]))
    """

    def __init__(
        self,
        features: int,
        *,
        context_features: int = 0,
        network: nn.Module | NetworkFactory = ResidualMLP,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.features = positive("features", features)
        self.context_features = context_features
        self.seed = seed
        self.log_alpha = nn.Parameter(torch.zeros(1))
        self.p = nn.Parameter(torch.zeros(1))
        self.centre = nn.Parameter(normal_start((features,), seed, self.p))
        sizes = (0, features + 2, context_features)
        self.network = make_network(network, *sizes) if context_features else None

    def config(self) -> dict[str, Any]:
        settings = config_of(self, "features", "context_features", "seed")
        return settings if self.network is None else {**settings, "network": self.network}

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        centre, alpha, s = self._settings(x, context)
        r = torch.linalg.vector_norm(x - centre, dim=-1, keepdim=True)  # (N, 1)
        return centre + (x - centre) * (r + alpha * s) / (r + alpha), self._log_det(r, alpha, s)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        centre, alpha, s = self._settings(z, context)
        far = torch.linalg.vector_norm(z - centre, dim=-1, keepdim=True)
        half = (alpha * s - far) / 2
        root = torch.sqrt(half.square() + alpha * far)  # half is positive at far = 0, so the root is never 0
        r = torch.where(half > 0, alpha * far / (half.abs() + root), root - half)  # neither form cancels
        return centre + (z - centre) * (r + alpha) / (r + alpha * s), -self._log_det(r, alpha, s)

    def _settings(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the centre, (D,) or (N, D), and alpha and s, (1,) or (N, 1)."""
        check_features(self, x, self.features)
        check_context(self, context, self.context_features, x.shape[0])
        centre, log_alpha, p = self.centre, self.log_alpha, self.p
        if self.network is not None:
            more_centre, more_alpha, more_p = self.network(x[:, :0], context).split([self.features, 1, 1], dim=1)
            centre, log_alpha, p = centre + more_centre, log_alpha + more_alpha, p + more_p
        return centre, log_alpha.exp(), F.softplus(p + SOFTPLUS_IS_ONE)

    def _log_det(self, r: Tensor, alpha: Tensor, s: Tensor) -> Tensor:
        around = torch.log((r + alpha * s) / (r + alpha))
        outward = torch.log((r.square() + 2 * alpha * r + alpha.square() * s) / (r + alpha).square())
        return ((self.features - 1) * around + outward)[:, 0]
