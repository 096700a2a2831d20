"""Exact distribution functions and quantiles of one-dimensional conditional flows; nothing is drawn.

A flow of one feature is an increasing map of x for every context, so its distribution function is the base's at the
noise of x. A mixture's is the mean of its members', and its quantile lies between the smallest and the largest of
theirs: a bracket that costs nothing, in which Newton's method with the exact density converges in a few steps.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cubicflow.distributions import NormalMixture, StandardNormal
from cubicflow.flows import Flow, Mixture

STEPS = 100


@torch.no_grad()
def cumulative(flow: Flow | Mixture, x: Tensor, context: Tensor) -> Tensor:
    """P(X <= x | context): (..., 1) and (..., C) -> (...)."""
    flows, weights = _members(flow)
    parts = [_base_cumulative(member, member.to_noise(x, context)[0][..., 0]) for member in flows]
    return (torch.stack(parts, dim=-1) * weights).sum(-1)


@torch.no_grad()
def quantile(flow: Flow | Mixture, levels: Tensor, context: Tensor) -> Tensor:
    """The x at which the distribution function is ``levels``: (N,) in (0, 1) and (N, C) -> (N,)."""
    flows, _ = _members(flow)
    own = torch.stack([_own_quantile(member, levels, context) for member in flows])
    low, high, x = own.amin(0), own.amax(0), own.mean(0)
    epsilon = torch.finfo(x.dtype).eps
    left = torch.arange(len(x), device=x.device)  # rows that are not there yet
    for _ in range(STEPS if len(flows) > 1 else 0):
        at, told = x[left], context[left]
        above = cumulative(flow, at[:, None], told) - levels[left]
        low[left], high[left] = torch.where(above < 0, at, low[left]), torch.where(above > 0, at, high[left])
        newton = at - above * torch.exp(-flow.log_prob(at[:, None], told))
        inside = (newton > low[left]) & (newton < high[left])
        moved = torch.where(inside, newton, (low[left] + high[left]) / 2)
        # as near as the level, or x itself, can be told in this precision
        there = (above.abs() <= 4 * epsilon) | ((moved - at).abs() <= epsilon * at.abs())
        x[left] = torch.where(there, at, moved)
        left = left[~there]
        if not len(left):
            break
    return x


def _members(flow: Flow | Mixture) -> tuple[list[Flow], Tensor]:
    if isinstance(flow, Mixture):
        return flow.flows, flow.log_weights.exp()
    return [flow], flow.base.anchor.new_ones(1)


def _base_cumulative(flow: Flow, z: Tensor) -> Tensor:
    mean, scale = _normal(flow)
    # torch's own ndtr is (1 + erf) / 2, which has no relative precision in the lower tail
    below: Tensor = torch.special.erfc((mean - z) / scale * math.sqrt(0.5)) / 2
    return below


def _own_quantile(flow: Flow, levels: Tensor, context: Tensor) -> Tensor:
    mean, scale = _normal(flow)
    z = mean + scale * torch.special.ndtri(levels)
    return flow.from_noise(z[:, None], context)[0][:, 0]


def _normal(flow: Flow) -> tuple[Tensor, Tensor]:
    """Mean and scale of a base that is a single normal."""
    base = flow.base
    if isinstance(base, NormalMixture) and base.components == 1:
        return base.means[0, 0], base.log_scales[0, 0].exp()
    if isinstance(base, StandardNormal):
        return base.anchor, base.anchor + 1
    raise TypeError(f"the quantile of a {type(base).__name__} base is not known in closed form")
