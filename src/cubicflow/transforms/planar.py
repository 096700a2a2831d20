"""The planar and the radial flow."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cubicflow.arguments import config_of, positive
from cubicflow.nets import ResidualMLP
from cubicflow.nets.network_factory import NetworkFactory, make_network
from cubicflow.nets.rng import normal_start
from cubicflow.transforms.implicit import implicit_inverse
from cubicflow.transforms.sigmoidal import SOFTPLUS_IS_ONE
from cubicflow.transforms.transform import Transform, check_inputs


class ParametricLayer(Transform):
    """A layer with a few trained numbers. With context, the output of a network is added to them.

    Args:
        features: D.
        context_features: C.
        network: the network from context to as many numbers: a module, or a factory as in
            :class:`~cubicflow.transforms.Coupling`.
        seed: the seed of the numbers that start at random.
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
        self.context_features, self.seed = context_features, seed
        self._make_numbers()
        outputs = sum(number.numel() for number in self._trained())
        self.network = make_network(network, 0, outputs, context_features) if context_features else None

    @abstractmethod
    def _make_numbers(self) -> None:
        """Make the parameters."""

    @abstractmethod
    def _trained(self) -> list[Tensor]:
        """Return the trained numbers, (n,) each, in the order of the network's outputs."""

    def config(self) -> dict[str, Any]:
        settings = config_of(self, "features", "context_features", "seed")
        return settings if self.network is None else {**settings, "network": self.network}

    def _numbers(self, x: Tensor, context: Tensor | None) -> list[Tensor]:
        """Return the numbers of every row: (n,) each, or with context (N, n)."""
        check_inputs(self, x, context)
        trained = self._trained()
        if self.network is None:
            return trained
        added = self.network(x[:, :0], context).split([number.numel() for number in trained], dim=1)
        return [number + change for number, change in zip(trained, added, strict=True)]


class Planar(ParametricLayer):
    """A planar layer (Rezende and Mohamed 2015, eq. 10): z = x + u tanh(w'x + b). It moves x in the direction u, by a
    function of one projection of x.

    **It is invertible for all parameters.** Along w, a = w'x becomes a + (w'u) tanh(a + b), with slope
    1 + (w'u)(1 - t^2) for t = tanh(a + b). The layer replaces the component of u along w so that w'u = s - 1 with
    s = softplus(w'u + log(e - 1)) > 0 (their appendix A.1, shifted so that u = 0 stays 0). The slope is then
    t^2 + s (1 - t^2), a sum of positive terms, so w'x increases. By the matrix determinant lemma, the slope is also the
    determinant of the layer.

    The inverse searches for the one number w'x; see :func:`~cubicflow.transforms.implicit.implicit_inverse`. This takes
    as long as some 35 (in float64 67) products of two numbers for every row. The layer starts as the identity, u = 0.

    With context, the network adds to w, u and b.

    >>> layer = Planar(3)
    >>> x = torch.randn(4, 3)
    >>> torch.equal(layer(x)[0], x), layer(x)[1].shape
    (True, torch.Size([4]))
    """

    def _make_numbers(self) -> None:
        self.u = nn.Parameter(torch.zeros(self.features))
        self.w = nn.Parameter(normal_start((self.features,), self.seed, self.u))
        self.b = nn.Parameter(torch.zeros(1))

    def _trained(self) -> list[Tensor]:
        return [self.w, self.u, self.b]

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        w, u, b, s = self._settings(x, context)
        t = torch.tanh((w * x).sum(-1, keepdim=True) + b)  # (N, 1)
        return x + u * t, _log_slope(t, s)[:, 0]

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        w, u, b, s = self._settings(z, context)

        def projected(a: Tensor) -> tuple[Tensor, Tensor]:
            t = torch.tanh(a + b)
            return a + (s - 1) * t, _log_slope(t, s)

        a, log_slope = implicit_inverse(projected, (w * z).sum(-1, keepdim=True))
        return z - u * torch.tanh(a + b), log_slope[:, 0]

    def _settings(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return w and u, (D,) or (N, D), and b and s = 1 + w'u, (1,) or (N, 1)."""
        w, u, b = self._numbers(x, context)
        along = (w * u).sum(-1, keepdim=True)
        s = F.softplus(along + SOFTPLUS_IS_ONE)
        # For w = 0 every u is allowed: the numerator is 0 too.
        moved = (s - 1 - along) * w / w.square().sum(-1, keepdim=True).clamp(min=torch.finfo(w.dtype).tiny)
        return w, u + moved, b, s


def _log_slope(t: Tensor, s: Tensor) -> Tensor:
    """Return log(t^2 + s (1 - t^2))."""
    return torch.log(t.square() + s * (1 - t) * (1 + t))


class Radial(ParametricLayer):
    """A radial layer (Rezende and Mohamed 2015, eq. 14): z = x + beta (x - c) / (alpha + r) with r = |x - c|. It
    contracts or expands space around a centre c.

    **It is invertible for all parameters.** With alpha > 0 and beta = alpha (s - 1), s = softplus(p + log(e - 1)) > 0,
    the distance from the centre becomes r (r + alpha s) / (r + alpha), whose slope
    (r^2 + 2 alpha r + alpha^2 s) / (alpha + r)^2 is a sum of positive terms. The other D - 1 directions are scaled by
    (r + alpha s) / (r + alpha) > 0 (their appendix A.2; the softplus is shifted so that p = 0 is the identity).

    The inverse is closed: r is the positive root of r^2 + (alpha s - R) r = alpha R for the distance R of z from c.

    With context, the network adds to c, log alpha and p.

    >>> layer = Radial(3)
    >>> x = torch.randn(4, 3)
    >>> torch.allclose(layer(x)[0], x), layer(x)[1].shape
    (True, torch.Size([4]))
    """

    def _make_numbers(self) -> None:
        self.log_alpha = nn.Parameter(torch.zeros(1))
        self.p = nn.Parameter(torch.zeros(1))
        self.centre = nn.Parameter(normal_start((self.features,), self.seed, self.p))

    def _trained(self) -> list[Tensor]:
        return [self.centre, self.log_alpha, self.p]

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
        centre, log_alpha, p = self._numbers(x, context)
        return centre, log_alpha.exp(), F.softplus(p + SOFTPLUS_IS_ONE)

    def _log_det(self, r: Tensor, alpha: Tensor, s: Tensor) -> Tensor:
        around = torch.log((r + alpha * s) / (r + alpha))
        outward = torch.log((r.square() + 2 * alpha * r + alpha.square() * s) / (r + alpha).square())
        return ((self.features - 1) * around + outward)[:, 0]
