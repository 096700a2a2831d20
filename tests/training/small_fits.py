"""A small flow, a small table, and a loss that acts at a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import cubicflow as cf
from cubicflow.data.rows import Batch
from cubicflow.flows import Flow
from cubicflow.training.losses import negative_log_likelihood


def acting_at(step: int, action: Callable[[], Any]) -> Callable[[Any, Batch], Tensor]:
    """Return the negative log likelihood as a loss that also calls ``action`` at the start of a step."""
    steps = iter(range(-1, 10**9))  # call -1 initialises layers

    def loss(flow: Any, batch: Batch) -> Tensor:
        if flow.training and next(steps) == step:
            action()
        return negative_log_likelihood(flow, batch)

    return loss


def curved_rows() -> Tensor:
    """Return rows that are not normal, so that a flow has something to learn."""
    z = torch.randn(600, 2, generator=torch.Generator().manual_seed(0))
    return torch.stack([z[:, 0], z[:, 0] ** 2 + 0.3 * z[:, 1]], dim=1)


def small_flow(features: int = 2, **settings: Any) -> Flow:
    """Return the same flow at every call."""
    torch.manual_seed(5)
    small = {"num_layers": 1, "hidden_features": 8, "num_blocks": 1, "num_bins": 4, "dropout": 0.1}
    return cf.flows.tabular(features, **{**small, **settings})
