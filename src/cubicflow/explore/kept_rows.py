"""Rows that keep the constraints of a fit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.fitted import FittedTable
from cubicflow.tables.model.plain_rows import table_rows


def keeps_constraints(fitted: FittedTable, y: Floats, given: Mapping[str, pa.Array] | None = None) -> NDArray[np.bool_]:
    """Return which rows keep the constraints that a model was fitted with.

    The rows are plain numbers (N, D) in the table's order. ``given`` has the context columns.
    """
    kept = np.ones(len(y), np.bool_)
    if fitted.constraints:
        batch = table_rows(fitted.schema, {**(given or {}), **fitted.encoder.decode_numbers(y)}, len(y))
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for constraint in fitted.constraints:
            kept &= ~constraint.broken(columns, fitted.schema)
    return kept
