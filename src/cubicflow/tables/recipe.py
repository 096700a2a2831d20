"""A flow whose size suits a table: small for few rows, which a large one would learn by heart."""

from __future__ import annotations

from typing import Any

import torch

from cubicflow.flows import Flow, tabular
from cubicflow.tables.encoder import TableEncoder


def suited_settings(rows: int) -> dict[str, Any]:
    """Settings of :func:`cubicflow.flows.tabular` for this many training rows.

    >>> suited_settings(300)["hidden_features"], suited_settings(50_000)["hidden_features"]
    (32, 128)
    """
    width = 32 if rows < 2_000 else 64 if rows < 10_000 else 128 if rows < 200_000 else 256
    return {
        "num_layers": 5 if rows < 2_000 else 6 if rows < 200_000 else 10,
        "hidden_features": width,
        "num_bins": 8,
        "dropout": 0.2 if rows < 2_000 else 0.1 if rows < 10_000 else 0.0,
    }


# Of training: runs on tables are short, so the rate is above the 5e-4 that suits hundreds of thousands of steps.
SUITED_TRAINING: dict[str, Any] = {"learning_rate": 1e-3}


def suited_flow(encoder: TableEncoder, rows: int, seed: int, settings: dict[str, Any]) -> Flow:
    """A flow for the encoder's columns. ``settings`` are the user's, and come before those that suit the rows."""
    torch.manual_seed(seed)
    chosen = {**suited_settings(rows), **settings}
    return tabular(encoder.features, context_features=encoder.context_features, **chosen)
