"""The log probability of rows under a model of columns, in the data's own units."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import torch
from torch import Tensor

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.model.cell_encoder import CellEncoder
from cubicflow.tables.model.cells import CELL
from cubicflow.tables.model.network import ColumnsModel
from cubicflow.tables.model.plain_rows import Numbers, Scored

ROWS_AT_ONCE = 1 << 12
CELLS_AT_ONCE = 1 << 16  # a cell of a number needs a few kilobytes for its spline


@torch.no_grad()
def score_rows(model: ColumnsModel, encoder: CellEncoder, numbers: Numbers, *, observed_only: bool = False) -> Scored:
    """Return the scores of rows. Every row is encoded once.

    The model runs in float64, whatever the dtype of its weights. A spline may be steep: float32 params would leave a
    mass only three correct digits. With ``observed_only``, the log p of a value is conditioned on the value being
    present, and a missing value contributes 0.
    """
    model = in_float64(model)
    shape = len(numbers.y), len(encoder.order)
    terms, baseline, unseen = np.empty(shape), np.empty(len(numbers.y)), np.empty(shape, np.bool_)
    at_once = min(max(CELLS_AT_ONCE // len(encoder.order), 1), ROWS_AT_ONCE)
    for start in range(0, len(terms), at_once):
        rows = slice(start, start + at_once)
        cells = encoder.inputs(numbers.y[rows])
        kinds = cells.reshape(len(cells), -1, CELL)[:, :, 0]
        context = None if numbers.context is None else _to_device(model, encoder.context_inputs(numbers.context[rows]))
        x = _to_device(model, cells)
        found = model.conditionals(x, context)
        if observed_only:
            found = found - model.log_presence(x, encoder.gaps, encoder.log_seen, context)
        ruled = encoder.log_ruled(found.double().cpu().numpy(), numbers.y[rows])
        is_gap = (kinds == encoder.gaps) & (kinds >= 0)
        terms[rows] = np.where(is_gap, 0, ruled) if observed_only else ruled
        baseline[rows], unseen[rows] = encoder.log_independent(cells), kinds < 0
    return Scored(terms.sum(axis=1), terms, baseline if encoder.has_dependence else None, unseen)


def in_float64(model: ColumnsModel) -> ColumnsModel:
    """Return the model with float64 weights: the model itself if it has them, else a copy."""
    return model if model.positions.dtype == torch.float64 else deepcopy(model).double()


def _to_device(model: ColumnsModel, cells: Floats | None) -> Tensor:
    """Return cells in float64, on the model's device."""
    return torch.from_numpy(cells).to(model.positions.device)
