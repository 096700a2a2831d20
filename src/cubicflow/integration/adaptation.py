"""What the next round of a fold is drawn from, learned from the points of the other fold."""

from __future__ import annotations

import torch
from torch import Tensor

from cubicflow.integration.blend import Blend, best_shares
from cubicflow.integration.evaluations import Fold
from cubicflow.integration.flow_sampler import FlowSampler, new_flow_sampler
from cubicflow.integration.product_mixture import (
    Fitting,
    ProductMixture,
    even_mixture,
    fit_mixture,
    find_nodes,
    tempered,
    worth_of,
)

HELD_OUT = 5  # one of so many points chooses, the others are fitted to
TRUSTED = 200.0  # points of weight from which shares can be chosen
FLOW_FROM = 0.08  # relative variance of the products' weights from which a flow is worth its training
EVEN_SHARE = 0.1  # of a round while little is known


class Adapter:
    """Fits samplers to one fold's points, for the other fold's next round."""

    def __init__(self, circles: list[bool], loss: str, flow: bool | None, flow_steps: int, seed: int) -> None:
        self.circles, self.loss, self.flow_wanted, self.flow_steps = circles, loss, flow, flow_steps
        self.generator = torch.Generator().manual_seed(seed)
        self.even = even_mixture(len(circles), circles)
        self.mixture: ProductMixture = self.even
        self.flow: FlowSampler | None = None
        self.log: list[str] = []

    def first(self) -> Blend:
        """Before anything is known: even points."""
        return Blend([self.even], torch.ones(1))

    def next(self, other: Fold, already: float, *, fresh: bool, train_flow: bool) -> Blend:
        """The blend fitted to ``other``'s points. ``already`` is the part of all evaluations that is made."""
        weights = other.weights.abs()
        if not bool(weights.any()):
            return self.first()
        held = torch.rand(len(weights), generator=self.generator) < 1 / HELD_OUT
        fit, choose = ~held, held
        flat = tempered(weights, wanted=40.0 * len(self.circles))
        data = Fitting(other.u[fit], flat[fit], other.u[choose], flat[choose])
        if not (bool(data.weights.any()) and bool(data.held_out_weights.any())):
            return self.first()
        self.mixture = fit_mixture(data, self.mixture, self.generator, fresh=fresh)
        chosen = weights[choose]
        known = worth_of(chosen)
        samplers: list[ProductMixture | FlowSampler] = [self.even, self.mixture]
        if known < TRUSTED:
            shares = torch.cat([torch.tensor([EVEN_SHARE]), (1 - EVEN_SHARE) * self.mixture.shares])
            return Blend(samplers, shares)
        log_q = other.log_total[choose] - torch.tensor(float(len(other))).log()
        ratios = self._ratios(samplers, other.u[choose], log_q)
        start = torch.cat([torch.tensor([0.02]), 0.98 * self.mixture.shares])
        shares = best_shares(start, ratios, chosen, already)
        spare = relative_variance(ratios @ shares, chosen)
        self.log.append(f"K={len(self.mixture)} known={known:.0f} rv={spare:.4f}")
        if self.flow_wanted or (self.flow_wanted is None and (self.flow is not None or spare > FLOW_FROM)):
            if len(self.circles) > 1:
                if train_flow:
                    self._train(other, fit, weights)
                if self.flow is not None:
                    samplers.append(self.flow.snapshot())
                    ratios = self._ratios(samplers, other.u[choose], log_q)
                    start = torch.cat([0.5 * start, torch.tensor([0.5])])
                    shares = best_shares(start, ratios, chosen, already)
                    spare2 = relative_variance(ratios[:, -1], chosen)
                    spare = relative_variance(ratios @ shares, chosen)
                    self.log.append(f"  flow share={float(shares[-1]):.3f} rv_flow={spare2:.4f} rv={spare:.4f}")
        shares = torch.where(shares < 1e-3, 0.0, shares)
        return Blend(samplers, shares)

    def _train(self, other: Fold, fit: Tensor, weights: Tensor) -> None:
        if self.flow is None:
            frame = ProductMixture(
                find_nodes(other.u[fit], weights[fit], 32), torch.ones(1, len(self.circles), 33).double(), torch.ones(1),
                self.circles,
            ).improved(other.u[fit], weights[fit] * (worth_of(weights[fit]) / float(weights[fit].sum())), 5)
            frame = ProductMixture(frame.nodes, 0.9 * frame.heights + 0.1, torch.ones(1), self.circles)
            seed = int(torch.randint(2**31, (1,), generator=self.generator))
            self.flow = new_flow_sampler(frame, self.circles, seed)
        log_values = other.values[fit].abs().clamp(min=1e-300).log()
        self.flow.train(other.u[fit], weights[fit], log_values, self.flow_steps, self.loss, self.generator)

    @staticmethod
    def _ratios(samplers: list[ProductMixture | FlowSampler], u: Tensor, log_q: Tensor) -> Tensor:
        """(N, K): each density over that of the points."""
        return torch.cat([sampler.log_densities(u) - log_q[:, None] for sampler in samplers], dim=1).exp()


def relative_variance(ratio: Tensor, weights: Tensor) -> float:
    """Of weights |f| / q', where ratio is q' / q and the points with their weights came from q."""
    return float(len(weights) * (weights.square() / ratio.clamp(min=1e-12)).sum() / weights.sum() ** 2) - 1
