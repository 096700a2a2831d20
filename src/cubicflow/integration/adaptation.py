"""What the next round of a fold is drawn from, learned from the points of the next one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cubicflow.integration.blend import Blend, best_shares
from cubicflow.integration.evaluations import Fold
from cubicflow.integration.flow_sampler import FlowSampler, new_flow_sampler
from cubicflow.integration.product_mixture import Fitting, even_mixture, fit_mixture, tempered, worth_of

HELD_OUT = 5  # one of so many points chooses, the others are fitted to
TRUSTED = 100.0  # effective points from which shares can be chosen
FLOW_FROM = 0.15  # relative variance of the weights of products, beyond that of their fit, that calls for a flow
EVEN_SHARE = 0.1  # of a round while little is known
LEAST_SHARE = 1e-3  # below it a sampler costs more to evaluate than it gives
USELESS = 0.05  # share of a flow at which it is given up
FLOW_STEPS = 400


class Adapter:
    """Fits samplers to one fold's points, for the other fold's next round.

    Args:
        circles: for each column, whether its ends are one point.
        flow: train a flow, or do not; None to do so where products do not suit the integrand.
        flow_steps: gradient steps of a flow's first training; later ones take half as many.
        loss: of the flow, ``"kl"`` or ``"variance"``.
        seed: of everything random.
    """

    def __init__(self, circles: list[bool], *, flow: bool | None, flow_steps: int, loss: str, seed: int) -> None:
        self.circles, self.loss, self.flow_steps = circles, loss, flow_steps
        self.flow_wanted = flow if len(circles) > 1 else False  # one column is a product already
        self.generator = torch.Generator().manual_seed(seed)
        self.even = even_mixture(len(circles), circles)
        self.mixture = self.even
        self.flow: FlowSampler | None = None
        self.spare = math.inf  # relative variance of the weights of the products alone, beyond that of their fit

    def first(self) -> Blend:
        """Before anything is known: even points."""
        return Blend([self.even], torch.ones(1))

    def next(self, other: Fold, already: float, *, search: bool, train: bool) -> Blend:
        """The blend fitted to the points of the other fold.

        Args:
            already: the part of all evaluations that is made.
            search: try other numbers of products.
            train: train the flow, where there is to be one.
        """
        weights = other.weights.abs()
        weights = weights / weights.max().clamp(min=1e-300)  # only their ratios matter, and squares are taken of them
        held_out = torch.rand(len(weights), generator=self.generator) < 1 / HELD_OUT
        if not (bool(weights[held_out].any()) and bool(weights[~held_out].any())):
            return self.first()
        flat = tempered(weights, wanted=40.0 * len(self.circles))
        data = Fitting(other.u[~held_out], flat[~held_out], other.u[held_out], flat[held_out])
        search = search and self.spare > FLOW_FROM / 3
        self.mixture = fit_mixture(data, self.mixture, self.generator, search=search)
        if worth_of(weights[held_out]) < TRUSTED:
            shares = torch.cat([torch.tensor([EVEN_SHARE]), (1 - EVEN_SHARE) * self.mixture.shares])
            return Blend([self.even, self.mixture], shares)
        return self._chosen(other, weights, held_out, already, train=train)

    def _chosen(self, other: Fold, weights: Tensor, held_out: Tensor, already: float, *, train: bool) -> Blend:
        """All samplers, with the shares that the points held out call for."""
        u, chosen = other.u[held_out], weights[held_out]
        log_q = (other.log_total[held_out] - math.log(len(other)))[:, None]  # of the points
        ratios = torch.cat([self.even.log_densities(u), self.mixture.log_densities(u)], dim=1).sub(log_q).exp()
        shares = best_shares(torch.cat([torch.tensor([0.02]), 0.98 * self.mixture.shares]), ratios, chosen, already)
        # A fit of p numbers to n points has a relative variance of p / n. More points cure that, and a flow does not.
        noise = self.mixture.heights.numel() / worth_of(weights[~held_out])
        self.spare = relative_variance(ratios @ shares, chosen) - noise
        flow = self._flow(other, weights, ~held_out, train=train)
        if flow is None:
            return Blend([self.even, self.mixture], torch.where(shares < LEAST_SHARE, 0.0, shares))
        ratios = torch.cat([ratios, (flow.log_densities(u) - log_q).exp()], dim=1)
        shares = best_shares(torch.cat([0.5 * shares, torch.tensor([0.5])]), ratios, chosen, already)
        if float(shares[-1]) < USELESS and not self.flow_wanted:
            self.flow, self.flow_wanted = None, False
        return Blend([self.even, self.mixture, flow], torch.where(shares < LEAST_SHARE, 0.0, shares))

    def _flow(self, other: Fold, weights: Tensor, fit: Tensor, *, train: bool) -> FlowSampler | None:
        """The flow as it is now, trained further where ``train``; None where there is none."""
        wanted = self.spare > FLOW_FROM if self.flow_wanted is None else self.flow_wanted
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
    """Of weights |f| / q', where ratio is q' / q and the points with their weights came from q.

    >>> relative_variance(torch.ones(4), torch.tensor([1.0, 1.0, 1.0, 1.0]))
    0.0
    """
    return float(len(weights) * (weights.square() / ratio.clamp(min=1e-12)).sum() / weights.sum() ** 2) - 1
