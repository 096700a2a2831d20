"""Fitting of one model, trained in batches with the recipe of the command line."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cubicflow.tables import Schema
from cubicflow.tables.fitting import fit_rows
from cubicflow.tables.model.plain_rows import Numbers
from cubicflow.tables.model.table_model import TableModel
from cubicflow.weights import Floats

MANY = 5_000  # rows; with more rows, training in batches is faster than training members on all rows at once
HELD_OUT = 10  # one of this many rows is held out for early stopping


def fit_many(
    name: str,
    schema: Schema,
    numbers: Numbers,
    weights: Floats,
    settings: dict[str, Any],
    training: dict[str, Any],
    *,
    progress: bool,
) -> tuple[TableModel, Floats, NDArray[np.int64]]:
    """Train the model with this name; return it, the log likelihoods of the held-out rows, and their row numbers.

    ``settings`` are settings of the model. ``training`` are fields of :class:`~cubicflow.training.TrainingConfig`. Both
    replace defaults that depend on the rows.
    """
    kept = np.flatnonzero(weights > 0)
    parts = [numbers.y, numbers.context, (weights / weights[kept].mean())[:, None]]
    rows = np.concatenate([part for part in parts if part is not None], axis=1)
    order = np.random.default_rng(training["seed"]).permutation(kept)
    held_out, seen = np.split(order, [max(len(order) // HELD_OUT, 1)])
    model, scores = fit_rows(name, schema, rows, (seen, held_out), settings, training, progress=progress)
    return model, scores, held_out
