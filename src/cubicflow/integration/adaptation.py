"""Fit the samplers of a fold's next round to the points of another fold."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cubicflow.integration.blend import Blend, best_shares
from cubicflow.integration.evaluations import Fold
from cubicflow.integration.flow_sampler import FlowSampler, new_flow_sampler
from cubicflow.integration.product_mixture import FitData, fit_mixture, flattened, uniform_mixture
from cubicflow.weights import effective_size

HELD_OUT = 5  # one point in HELD_OUT is held out to choose shares; the other points are fitted
TRUSTED = 100.0  # effective points needed to choose shares
FLOW_FROM = 0.15  # excess relative variance of the products' weights above which a flow is trained
UNIFORM_SHARE = 0.1  # share of uniform points in a round while there are fewer than TRUSTED effective points
LEAST_SHARE = 1e-3  # a sampler with a smaller share costs more to evaluate than it gains
USELESS = 0.05  # a flow with a smaller share is dropped
FLOW_STEPS = 400  # gradient steps of a flow's first training


class Adapter:
    """The samplers of one fold. :meth:`next` fits them to the points of another fold, for the next round.

    Args:
        circles: for each column, whether both ends are the same point.
        flow: whether to train a flow; None trains a flow only if products fit the integrand badly.
        flow_steps: gradient steps of the flow's first training; later trainings take half as many.
        loss: the flow's training loss, ``"kl"`` or ``"variance"``.
        seed: seed of the adapter's random generator.
    """

    def __init__(self, circles: list[bool], *, flow: bool | None, flow_steps: int, loss: str, seed: int) -> None:
        self.circles, self.loss, self.flow_steps = circles, loss, flow_steps
        self.flow_wanted = flow if len(circles) > 1 else False  # a density of one column is a product already
        self.generator = torch.Generator().manual_seed(seed)
        self.uniform = uniform_mixture(len(circles), circles)
        self.mixture = self.uniform
        self.flow: FlowSampler | None = None
        self.excess_variance = math.inf  # relative variance of the products' weights, less the part due to fit noise

    def first(self) -> Blend:
        """Return the blend of the first round: the uniform density."""
        return Blend([self.uniform], torch.ones(1))

    def next(self, other: Fold, already: float, *, search: bool, train: bool) -> Blend:
        """Return the blend fitted to the points of the other fold.

        Args:
            already: the fraction of all evaluations made so far.
            search: whether to try other numbers of products.
            train: whether to train the flow, if a flow is used.
        """
        weights = other.weights.abs()
        # Only ratios of weights matter. Scale the largest weight to 1, so that squares do not underflow.
        weights = weights / weights.max().clamp(min=1e-300)
        held_out = torch.rand(len(weights), generator=self.generator) < 1 / HELD_OUT
        if not (bool(weights[held_out].any()) and bool(weights[~held_out].any())):
            return self.first()
        flat = flattened(weights, wanted=40.0 * len(self.circles))
        data = FitData(other.u[~held_out], flat[~held_out], other.u[held_out], flat[held_out])
        search = search and self.excess_variance > FLOW_FROM / 3
        self.mixture = fit_mixture(data, self.mixture, self.generator, search=search)
        if effective_size(weights[held_out]) < TRUSTED:
            shares = torch.cat([torch.tensor([UNIFORM_SHARE]), (1 - UNIFORM_SHARE) * self.mixture.shares])
            return Blend([self.uniform, self.mixture], shares)
        return self._chosen(other, weights, held_out, already, train=train)

    def _chosen(self, other: Fold, weights: Tensor, held_out: Tensor, already: float, *, train: bool) -> Blend:
        """Return the blend of all samplers, with the shares that are best on the held-out points."""
        u, chosen = other.u[held_out], weights[held_out]
        log_q = (other.log_total[held_out] - math.log(len(other)))[:, None]  # log density the points were drawn from
        ratios = torch.cat([self.uniform.log_densities(u), self.mixture.log_densities(u)], dim=1).sub(log_q).exp()
        shares = best_shares(torch.cat([torch.tensor([0.02]), 0.98 * self.mixture.shares]), ratios, chosen, already)
        # A fit of p parameters to n points has a relative variance of p / n. More points reduce it; a flow does not.
        noise = self.mixture.heights.numel() / effective_size(weights[~held_out])
        self.excess_variance = relative_variance(ratios @ shares, chosen) - noise
        flow = self._flow(other, weights, ~held_out, train=train)
        if flow is None:
            return Blend([self.uniform, self.mixture], torch.where(shares < LEAST_SHARE, 0.0, shares))
        ratios = torch.cat([ratios, (flow.log_densities(u) - log_q).exp()], dim=1)
        shares = best_shares(torch.cat([0.5 * shares, torch.tensor([0.5])]), ratios, chosen, already)
        if float(shares[-1]) < USELESS and not self.flow_wanted:
            self.flow, self.flow_wanted = None, False
        return Blend([self.uniform, self.mixture, flow], torch.where(shares < LEAST_SHARE, 0.0, shares))

    def _flow(self, other: Fold, weights: Tensor, fit: Tensor, *, train: bool) -> FlowSampler | None:
        """Return a snapshot of the flow, trained further if ``train``; None if no flow is used."""
        wanted = self.excess_variance > FLOW_FROM if self.flow_wanted is None else self.flow_wanted
        u, weights = other.u[fit], weights[fit]
        if train and (wanted or self.flow is not None):
            steps = self.flow_steps // 2
            if self.flow is None:
                seed = int(torch.randint(2**31, (1,), generator=self.generator))
                self.flow, steps = new_flow_sampler(u, weights, self.circles, seed), self.flow_steps
            log_values = other.values[fit].abs().log()
            self.flow.train(u, weights, log_values, steps, self.loss, self.generator)
        return None if self.flow is None else self.flow.snapshot()


def relative_variance(ratio: Tensor, weights: Tensor) -> float:
    """Return the relative variance of the weights |f| / q', estimated from points drawn from q.

    Args:
        ratio: q' / q at the points, (N,).
        weights: |f| / q at the points up to a common factor, (N,).

    >>> relative_variance(torch.ones(4), torch.tensor([1.0, 1.0, 1.0, 1.0]))
    0.0
    """
    return float(len(weights) * (weights.square() / ratio.clamp(min=1e-12)).sum() / weights.sum() ** 2) - 1
