"""Fitting of many rows: one flow, trained in batches with the recipe of the command line."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from cubicflow.flows import Flow
from cubicflow.tables.fitting import SUITED_TRAINING, suited_flow
from cubicflow.tables.model.flow_encoder import FlowEncoder, log_likelihood
from cubicflow.tables.model.plain_rows import Numbers
from cubicflow.tables.table_rows import TableRows
from cubicflow.training import TrainingConfig, fit
from cubicflow.weights import Floats

MANY = 5_000  # rows; with more rows, training in batches is faster than training members on all rows at once
HELD_OUT = 10  # one of this many rows is held out for early stopping


def fit_many(
    encoder: FlowEncoder,
    numbers: Numbers,
    weights: Floats,
    settings: dict[str, Any],
    training: dict[str, Any],
    *,
    progress: bool,
) -> tuple[Flow, Floats, np.ndarray[Any, np.dtype[np.int64]]]:
    """Train a flow; return the flow, the log likelihoods of the held-out rows, and their row numbers.

    ``settings`` are arguments of the recipe. ``training`` are fields of :class:`~cubicflow.training.TrainingConfig`.
    Both replace defaults that depend on the rows.
    """
    kept = np.flatnonzero(weights > 0)
    parts = [numbers.y, numbers.context, (weights / weights[kept].mean())[:, None]]
    rows = TableRows(encoder, np.concatenate([part for part in parts if part is not None], axis=1))
    config = TrainingConfig(**{**SUITED_TRAINING, **training})
    order = np.random.default_rng(config.seed).permutation(kept)
    held_out, seen = np.split(order, [len(order) // HELD_OUT])
    flow = suited_flow(encoder, len(seen), config.seed, settings)
    fit(flow, rows.part(torch.from_numpy(seen)), rows.part(torch.from_numpy(held_out)), config, progress=progress)
    flow.double()
    context = None if numbers.context is None else numbers.context[held_out]
    return flow, log_likelihood(flow, encoder, Numbers(numbers.y[held_out], context, None)), held_out
