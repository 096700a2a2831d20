"""Fitting of a model of columns, with the recipe of the command line."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from cubicflow.estimator import inputs
from cubicflow.estimator.many_rows import HELD_OUT
from cubicflow.tables import ColumnsModel, Schema
from cubicflow.tables.fitting import suited_columns_model, suited_columns_training
from cubicflow.tables.model.cell_encoder import CellEncoder
from cubicflow.tables.model.columns_likelihood import score_rows
from cubicflow.tables.model.plain_rows import Numbers, PlainRows
from cubicflow.tables.table_rows import TableRows
from cubicflow.training import TrainingConfig, fit
from cubicflow.weights import Floats


class FittedColumns(NamedTuple):
    """Fitted model of columns, its encoder, and the mean log likelihood of held-out rows."""

    model: ColumnsModel
    cells: CellEncoder
    held_out_score: float


def fit_columns(
    schema: Schema,
    rows: pa.Table,
    weights: Floats,
    settings: dict[str, Any],
    training: dict[str, Any],
    *,
    progress: bool,
) -> FittedColumns:
    """Train a model of columns on nine tenths of the rows; the last tenth is for early stopping.

    ``settings`` are arguments of :class:`~cubicflow.tables.model.network.ColumnsModel`. ``training`` are fields of
    :class:`~cubicflow.training.TrainingConfig`. Both replace defaults that depend on the rows.
    """
    y = inputs.read(PlainRows(schema), rows).y
    seed = training["seed"]
    held_out, seen = np.split(np.random.default_rng(seed).permutation(len(y)), [max(len(y) // HELD_OUT, 1)])
    cells = CellEncoder.learn(schema, y[seen], None, weights[seen])
    model = suited_columns_model(cells, y[seen], seed, settings)
    every = TableRows(cells, np.column_stack([y, weights / weights.mean()]))
    train, validation = (every.part(torch.from_numpy(part)) for part in (seen, held_out))
    config = TrainingConfig(**{**suited_columns_training(len(seen)), **training})
    model = fit(model, train, validation, config, progress=progress).flow.double()
    scores = score_rows(model, cells, Numbers(y[held_out], None, None)).log_p
    return FittedColumns(model, cells, float(np.average(scores, weights=weights[held_out])))
