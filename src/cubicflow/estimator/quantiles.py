"""Exact distribution functions and quantiles of one-dimensional conditional flows, without sampling.

A flow of one feature is an increasing map of x for every context, so its distribution function at x is that of the base
at the noise of x. The distribution function of a mixture is the weighted mean of its members' functions. A quantile of
a mixture lies between the smallest and the largest quantile of its members. Newton's method with the exact density
converges in this bracket in a few steps.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cubicflow.flows import Flow, Mixture

STEPS = 100  # most Newton steps


@torch.no_grad()
def cumulative(flow: Flow | Mixture, x: Tensor, context: Tensor) -> Tensor:
    """Return P(X <= x | context) of shape (...), for x (..., 1) and context (..., C)."""
    flows, weights = _members(flow)
    parts = [_base_cumulative(member, member.to_noise(x, context)[0][..., 0]) for member in flows]
    return (torch.stack(parts, dim=-1) * weights).sum(-1)


@torch.no_grad()
def quantile(flow: Flow | Mixture, levels: Tensor, context: Tensor) -> Tensor:
    """Return the x (N,) at which the distribution function equals ``levels`` (N,) in (0, 1), given context (N, C)."""
    flows, _ = _members(flow)
    own = torch.stack([_own_quantile(member, levels, context) for member in flows])
    low, high, x = own.amin(0), own.amax(0), own.mean(0)
    epsilon = torch.finfo(x.dtype).eps
    active = torch.arange(len(x), device=x.device)  # rows that have not converged
    for _ in range(STEPS if len(flows) > 1 else 0):
        at, conditions = x[active], context[active]
        error = cumulative(flow, at[:, None], conditions) - levels[active]
        low[active], high[active] = torch.where(error < 0, at, low[active]), torch.where(error > 0, at, high[active])
        newton = at - error * torch.exp(-flow.log_prob(at[:, None], conditions))
        inside = (newton > low[active]) & (newton < high[active])
        moved = torch.where(inside, newton, (low[active] + high[active]) / 2)
        # Converged: the error of the level, or the step of x, is at the limit of this precision.
        converged = (error.abs() <= 4 * epsilon) | ((moved - at).abs() <= epsilon * at.abs())
        x[active] = torch.where(converged, at, moved)
        active = active[~converged]
        if not len(active):
            break
    return x


def _members(flow: Flow | Mixture) -> tuple[list[Flow], Tensor]:
    if isinstance(flow, Mixture):
        return flow.flows, flow.log_weights.exp()
    return [flow], flow.base.anchor.new_ones(1)


def _base_cumulative(flow: Flow, z: Tensor) -> Tensor:
    mean, scale = _normal(flow)
    # torch's ndtr computes (1 + erf) / 2, which loses relative precision in the lower tail. erfc does not.
    below: Tensor = torch.special.erfc((mean - z) / scale * math.sqrt(0.5)) / 2
    return below


def _own_quantile(flow: Flow, levels: Tensor, context: Tensor) -> Tensor:
    mean, scale = _normal(flow)
    z = mean + scale * torch.special.ndtri(levels)
    return flow.from_noise(z[:, None], context)[0][:, 0]


def _normal(flow: Flow) -> tuple[Tensor, Tensor]:
    """Return mean and scale of a base that is a single normal; raise TypeError for another base."""
    base = flow.base
    if (normal := base.as_normal()) is None:
        raise TypeError(f"quantiles need a flow with a normal base, got {type(base).__name__}; draw samples instead")
    mean, scale = normal
    return mean[0], scale[0]
