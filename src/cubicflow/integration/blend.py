"""Samplers on the unit cube, and the blend of samplers that a round is drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from cubicflow.integration.bounds import EDGE

SHARE_STEPS = 60


class Sampler(Protocol):
    """One or more densities on the unit cube that can be drawn from and evaluated."""

    def __len__(self) -> int:
        """Return the number of densities."""

    def log_densities(self, u: Tensor) -> Tensor:
        """Return the log density of every point under every density: (N, D) -> (N, len(self))."""

    def draw(self, part: int, noise: Tensor) -> Tensor:
        """Map uniform noise to points of density ``part``: (n, D) -> (n, D)."""


class Blend:
    """The density sum_k share_k q_k over all densities of some samplers. One round of points is drawn from one blend.

    >>> from cubicflow.integration.product_mixture import uniform_mixture
    >>> blend = Blend([uniform_mixture(2, [False, False])], torch.ones(1))
    >>> blend.log_density(torch.rand(3, 2, dtype=torch.float64))
    tensor([0., 0., 0.], dtype=torch.float64)
    """

    def __init__(self, samplers: Sequence[Sampler], shares: Tensor) -> None:
        self.shares = shares.double() / shares.sum()
        parts = zip(samplers, self.shares.split([len(sampler) for sampler in samplers]), strict=True)
        # Drop samplers with share 0: their densities need not be evaluated.
        self.samplers = [(sampler, own) for sampler, own in parts if float(own.sum()) > 0]

    def log_density(self, u: Tensor) -> Tensor:
        """Return the log density of every point: (N, D) -> (N,)."""
        terms = [(sampler.log_densities(u) + shares.log()).logsumexp(1) for sampler, shares in self.samplers]
        return torch.stack(terms).logsumexp(0)

    def draw(self, noise: Tensor) -> Tensor:
        """Map uniform noise to points: (n, D + 1) -> (n, D). The first noise column selects the density."""
        shares = torch.cat([shares for _, shares in self.samplers])
        choice = torch.searchsorted(shares.cumsum(0) / shares.sum(), noise[:, 0].contiguous()).clamp(
            max=len(shares) - 1
        )
        u = torch.empty_like(noise[:, 1:])
        densities = [(sampler, part) for sampler, own in self.samplers for part in range(len(own))]
        for number, (sampler, part) in enumerate(densities):
            rows = (choice == number).nonzero()[:, 0]
            if len(rows):
                u[rows] = sampler.draw(part, noise[rows, 1:]).to(u.dtype)
        return u.clamp(EDGE, 1 - EDGE)


def best_shares(start: Tensor, ratios: Tensor, weights: Tensor, already: float) -> Tensor:
    """Return the shares that minimise the variance of the final estimate, as estimated from weighted points.

    Let a_i = |f_i| / (N q_i) be the weights of points drawn from q, and r_ik = q_k(u_i) / q(u_i). After a round drawn
    from sum_k s_k q_k, the second moment of the estimate is proportional to

        sum_i a_i^2 / (already + (1 - already) sum_k s_k r_ik),

    which is convex in the shares s. At the minimum, the partial derivatives of all positive shares are equal. So the
    minimum is a fixed point of share <- share sqrt(derivative), normalised. From any other start the update descends.

    Args:
        start: initial shares, (K,); a share of 0 stays 0.
        ratios: r_ik, (N, K).
        weights: a_i up to a common factor, (N,).
        already: the fraction of all evaluations made so far.

    >>> ratios = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> best_shares(torch.tensor([0.5, 0.5]), ratios, torch.ones(3), 0.0)
    tensor([0.5858, 0.4142])
    """
    squares = weights.square()
    shares = start / start.sum()
    for _ in range(SHARE_STEPS):
        density = already + (1 - already) * (ratios @ shares)
        slopes = ratios.T @ (squares / density.clamp(min=1e-12).square())
        shares = shares * slopes.clamp(min=0).sqrt()
        shares = shares / shares.sum()
    return shares
