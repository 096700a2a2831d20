"""Losses of a target that can be evaluated, up to a constant, and not sampled. They draw samples of the flow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cubicflow.arguments import number
from cubicflow.data.rows import Batch
from cubicflow.training.losses import Loss, log_prob

LogDensity = Callable[..., Tensor]  # x (..., D) [, context (..., C)] -> (...,), up to a constant
SAMPLES_EACH = 16  # samples for each row of context


def reverse_kl(log_density: LogDensity, *, path_gradient: bool = False) -> Loss:
    """Return a loss that estimates KL(flow || target) from samples of the flow.

    Use it for a target that can be evaluated but not sampled. The flow finds one mode and may miss others. Fit with
    ``train=None``. For a flow with context (amortised inference), fit with rows of context, and pass a
    ``log_density(x, context)``. The weights of a base that is a mixture are not trained.

    With ``path_gradient`` the gradient is that of :func:`alpha_divergence` for alpha = 0. It has less variance near the
    target, and costs a second pass, in the other direction.

    >>> import cubicflow as cf
    >>> loss = reverse_kl(lambda x: -x.square().sum(-1) / 2)
    >>> loss(cf.flows.tabular(2, num_layers=1, hidden_features=8), Batch(torch.empty(5, 0))).shape
    torch.Size([5])
    """

    if path_gradient:
        return alpha_divergence(log_density, 0.0)

    def loss(flow: Any, batch: Batch) -> Tensor:
        x, log_q, given = _samples(flow, batch, 1)
        difference: Tensor = log_q - log_density(x, *given)
        return difference[0] if given else difference

    return loss


def importance_weighted(log_density: LogDensity) -> Loss:
    """Return a loss that estimates KL(target || flow) from samples of the flow with weights target / flow.

    The flow learns every part of the target that its samples reach. Fit with ``train=None``: the weights are then
    normalised over each process's share of the batch. For a flow with context, fit with rows of context, and pass a
    ``log_density(x, context)``: the weights are then normalised over the samples of each row.

    >>> import cubicflow as cf
    >>> loss = importance_weighted(lambda x: -x.square().sum(-1) / 2)
    >>> loss(cf.flows.tabular(2, num_layers=1, hidden_features=8), Batch(torch.empty(5, 0))).shape
    torch.Size([5])
    """

    def loss(flow: Any, batch: Batch) -> Tensor:
        with torch.no_grad():
            x, log_q, given = _samples(flow, batch, SAMPLES_EACH)
            shares = torch.softmax(log_density(x, *given) - log_q, dim=0)
            weights = shares if given else shares * len(x)
        cross_entropy: Tensor = -weights * log_prob(flow, x, batch.context)
        return cross_entropy.sum(0) if given else cross_entropy

    return loss


def alpha_divergence(log_density: LogDensity, alpha: float) -> Loss:
    """Return a loss that estimates log E[w^alpha] / (alpha (alpha - 1)), with w = target / flow at samples of the flow.

    Up to a constant this is Rényi's divergence of the target from the flow, over alpha. alpha = 0 is
    KL(flow || target), which may miss modes. alpha = 1 is KL(target || flow), which covers them. Numbers in between are
    between both. Fit with ``train=None``, or with context, as for :func:`importance_weighted`. The flow must have
    samples as well as densities of given rows.

    The gradient is taken along the paths of the samples x alone:

        -sum of s_i d/dx (log w)(x_i) dx_i / d parameters,    s_i = w_i^alpha / sum of w_j^alpha.

    For alpha = 0 it leaves out the derivative of log w at a fixed x, whose mean is 0 (Roeder et al., Sticking the
    landing, NeurIPS 2017). For other alpha that derivative becomes a path derivative itself (Tucker et al., Doubly
    reparameterized gradient estimators, ICLR 2019):

        d/d parameters E[w^alpha] = alpha (1 - alpha) E[w^alpha d/dx (log w) dx / d parameters].

    Where flow and target are equal, every gradient is 0.

    >>> import cubicflow as cf
    >>> loss = alpha_divergence(lambda x: -x.square().sum(-1) / 2, 0.5)
    >>> loss(cf.flows.tabular(2, num_layers=1, hidden_features=8), Batch(torch.empty(5, 0))).shape
    torch.Size([5])
    """
    alpha = number("alpha", alpha)

    def loss(flow: Any, batch: Batch) -> Tensor:
        x, _, given = _samples(flow, batch, SAMPLES_EACH if alpha else 1)
        fixed = x.detach().requires_grad_()
        target = log_density(fixed, *given)
        log_w = target - log_prob(flow, fixed, batch.context)  # (B,) or (S, B)
        (slopes,) = torch.autograd.grad(log_w.sum(), fixed)
        log_w = log_w.detach()
        along_paths = (slopes * (x - fixed.detach())).flatten(log_w.ndim).sum(-1)  # zeros, with the gradients of log w
        shares = torch.softmax(alpha * log_w, dim=0)
        divergence: Tensor = _divergence(log_w, alpha) - (shares * along_paths).sum(0)
        return divergence.expand(len(batch.x))

    return loss


def _samples(flow: Any, batch: Batch, each: int) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Return samples x, their log densities, and the arguments of a log density besides x. Without context there is one
    sample (B, D) for each row. With context there are ``each`` samples (S, B, D) for each row, and rows (S, B, C)."""
    if batch.context is None:
        return *flow.sample_and_log_prob(len(batch.x)), ()
    x, log_q = flow.sample_and_log_prob(each, batch.context)
    return x, log_q, (batch.context.expand(each, *batch.context.shape),)


def _divergence(log_w: Tensor, alpha: float) -> Tensor:
    """Return the divergence from logarithms of weights (S, ...), up to a constant. Shape (...)."""
    if alpha == 0:
        return -log_w.mean(0)
    if alpha == 1:
        return (torch.softmax(log_w, dim=0) * log_w).sum(0) - _log_mean(log_w)
    return _log_mean(alpha * log_w) / (alpha * (alpha - 1))


def _log_mean(log_values: Tensor) -> Tensor:
    return torch.logsumexp(log_values, dim=0) - math.log(len(log_values))
