"""The planar flow."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.arguments import config_of, positive
from cubicflow.nets import ResidualMLP
from cubicflow.nets.rng import normal_start
from cubicflow.transforms.coupling import NetworkFactory, make_network
from cubicflow.transforms.implicit import implicit_inverse
from cubicflow.transforms.sigmoidal import SOFTPLUS_IS_ONE
from cubicflow.transforms.transform import Transform, check_context, check_features


class Planar(Transform):
    """A planar layer (Rezende and Mohamed 2015, eq. 10): z = x + u tanh(w'x + b). It moves x in the direction u, by a
    function of one projection of x.

    **It is invertible for all parameters.** Along w, a = w'x becomes a + (w'u) tanh(a + b), with slope
    1 + (w'u)(1 - t^2) for t = tanh(a + b). The layer replaces the component of u along w so that w'u = s - 1 with
    s = softplus(w'u + log(e - 1)) > 0 (their appendix A.1, shifted so that u = 0 stays 0). The slope is then
    t^2 + s (1 - t^2), a sum of positive terms, so w'x increases. By the matrix determinant lemma, the slope is also the
    determinant of the layer.

    The inverse searches for the one number w'x; see :func:`~cubicflow.transforms.implicit.implicit_inverse`. This takes
    as long as some 35 (in float64 67) products of two numbers for every row. The layer starts as the identity, u = 0.

    Args:
        features: D.
        context_features: C. With context, the network adds to w, u and b.
        network: the network from context to 2 D + 1 numbers: a module, or a factory as in
            :class:`~cubicflow.transforms.Coupling`.
        seed: the seed of the first direction w.

    >>> layer = Planar(3)
    >>> x = torch.randn(4, 3)
    >>> torch.equal(layer(x)[0], x), layer(x)[1].shape
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
        self.u = nn.Parameter(torch.zeros(features))
        self.w = nn.Parameter(normal_start((features,), seed, self.u))
        self.b = nn.Parameter(torch.zeros(1))
        sizes = (0, 2 * features + 1, context_features)
        self.network = make_network(network, *sizes) if context_features else None

    def config(self) -> dict[str, Any]:
        settings = config_of(self, "features", "context_features", "seed")
        return settings if self.network is None else {**settings, "network": self.network}

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        w, u, b, s = self._settings(x, context)
        t = torch.tanh((w * x).sum(-1) + b)  # (N,)
        return x + u * t[:, None], _log_slope(t, s)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        w, u, b, s = self._settings(z, context)

        def projected(a: Tensor) -> tuple[Tensor, Tensor]:
            t = torch.tanh(a + b)
            return a + (s - 1) * t, _log_slope(t, s)

        a, log_slope = implicit_inverse(projected, (w * z).sum(-1))
        return z - u * torch.tanh(a + b)[:, None], log_slope

    def _settings(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return w and u, (D,) or (N, D), and b and s = 1 + w'u, (1,) or (N,)."""
        check_features(self, x, self.features)
        check_context(self, context, self.context_features, x.shape[0])
        w, u, b = self.w, self.u, self.b
        if self.network is not None:
            sizes = [self.features, self.features, 1]
            more_w, more_u, more_b = self.network(x[:, :0], context).split(sizes, dim=1)
            w, u, b = w + more_w, u + more_u, b + more_b[:, 0]
        along = (w * u).sum(-1, keepdim=True)
        s = F.softplus(along + SOFTPLUS_IS_ONE)
        # For w = 0 every u is allowed: the numerator is 0 too.
        moved = (s - 1 - along) * w / w.square().sum(-1, keepdim=True).clamp(min=torch.finfo(w.dtype).tiny)
        return w, u + moved, b, s[..., 0] if s.ndim > 1 else s


def _log_slope(t: Tensor, s: Tensor) -> Tensor:
    """Return log(t^2 + s (1 - t^2))."""
    return torch.log(t.square() + s * (1 - t) * (1 + t))
