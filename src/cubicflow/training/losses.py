"""Losses of rows: functions of a flow and a batch that return one number for each row.

The loop computes their weighted mean over the rows of all processes. A loss of your own with a single number returns
``number.expand(len(batch.x))``. A loss may compute gradients itself, in validation too: for example
``torch.autograd.grad`` with respect to ``batch.x``, after ``batch.x.requires_grad_()``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor

from cubicflow.data.rows import Batch
from cubicflow.flows import dequantise

Loss = Callable[[Any, Batch], Tensor]  # (flow, batch) -> (B,)
AnyLoss = TypeVar("AnyLoss", bound=Loss)


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

    >>> import torch
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

    >>> import torch
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
