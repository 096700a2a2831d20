"""Losses: functions of a flow and a batch that return one number for each row.

The loop computes their weighted mean over the rows of all processes. A loss of your own with a single number returns
``number.expand(len(batch.x))``. A loss may compute gradients itself, in validation too: for example
``torch.autograd.grad`` with respect to ``batch.x``, after ``batch.x.requires_grad_()``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from cubicflow.data.rows import Batch
from cubicflow.flows import dequantise

Loss = Callable[[Any, Batch], Tensor]  # (flow, batch) -> (B,)
AnyLoss = TypeVar("AnyLoss", bound=Loss)
LogDensity = Callable[..., Tensor]  # x (..., D) [, context (..., C)] -> (...,), up to a constant
SAMPLES_EACH = 16  # samples for each row of context


def one_pass(loss: AnyLoss) -> AnyLoss:
    """Mark a loss that calls every layer exactly once, and runs the same kernels for all batches. A step with such a
    loss can be replayed as a CUDA graph, and can compute the gradients of weights on a second stream.

    >>> @one_pass
    ... def squared(flow, batch):
    ...     return flow.log_prob(batch.x) ** 2
    >>> is_one_pass(squared)
    True
    """
    loss.one_pass = True  # type: ignore[attr-defined]
    return loss


def is_one_pass(loss: Loss) -> bool:
    """Return whether a loss is marked by :func:`one_pass`."""
    return bool(getattr(loss, "one_pass", False))


@one_pass
def negative_log_likelihood(flow: Any, batch: Batch) -> Tensor:
    """Return -log p(x | context) of each row, the loss of maximum likelihood. Default loss. Shape (B,).

    >>> import cubicflow as cf
    >>> flow = cf.flows.tabular(2, num_layers=1, hidden_features=8)
    >>> x = torch.randn(5, 2)
    >>> torch.equal(negative_log_likelihood(flow, Batch(x)), -flow.log_prob(x))
    True
    """
    return -log_prob(flow, batch.x, batch.context)


@one_pass
def dequantised_likelihood(flow: Any, batch: Batch) -> Tensor:
    """Return the negative log likelihood of integer pixel values plus uniform noise. Default for uint8 rows.

    >>> import cubicflow as cf
    >>> flow = cf.flows.image((1, 4, 4), num_levels=1, num_layers=1, hidden_features=8)
    >>> pixels = torch.randint(256, (3, 1, 4, 4), dtype=torch.uint8)
    >>> dequantised_likelihood(flow, Batch(pixels)).shape
    torch.Size([3])
    """
    return -log_prob(flow, dequantise(batch.x), batch.context)


def log_prob(flow: Any, x: Tensor, context: Tensor | None) -> Tensor:
    """Return log p(x | context), of shape (B,).

    Without context the flow is called with x alone: a user's flow need not have an argument for context.
    """
    found: Tensor = flow.log_prob(x) if context is None else flow.log_prob(x, context)
    return found


def reverse_kl(log_density: LogDensity) -> Loss:
    """Return a loss that estimates KL(flow || target) from samples of the flow.

    Use it for a target that can be evaluated but not sampled. The flow finds one mode and may miss others. Fit with
    ``train=None``. For a flow with context (amortised inference), fit with rows of context, and pass a
    ``log_density(x, context)``.

    >>> import cubicflow as cf
    >>> loss = reverse_kl(lambda x: -x.square().sum(-1) / 2)
    >>> loss(cf.flows.tabular(2, num_layers=1, hidden_features=8), Batch(torch.empty(5, 0))).shape
    torch.Size([5])
    """

    def loss(flow: Any, batch: Batch) -> Tensor:
        if batch.context is not None:
            x, log_prob = flow.sample_and_log_prob(1, batch.context)  # (1, B, D), (1, B)
            conditional: Tensor = log_prob - log_density(x, batch.context[None])
            return conditional[0]
        x, log_prob = flow.sample_and_log_prob(len(batch.x))  # (B, D), (B,)
        difference: Tensor = log_prob - log_density(x)
        return difference

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
        if batch.context is not None:
            with torch.no_grad():
                x, log_prob = flow.sample_and_log_prob(SAMPLES_EACH, batch.context)  # (S, B, D), (S, B)
                shares = torch.softmax(log_density(x, batch.context.expand(SAMPLES_EACH, -1, -1)) - log_prob, dim=0)
            conditional: Tensor = -(shares * flow.log_prob(x, batch.context)).sum(0)
            return conditional
        with torch.no_grad():
            x, log_prob = flow.sample_and_log_prob(len(batch.x))  # (B, D), (B,)
            weights = torch.softmax(log_density(x) - log_prob, dim=0) * len(x)  # mean 1
        cross_entropy: Tensor = -weights * flow.log_prob(x)
        return cross_entropy

    return loss
