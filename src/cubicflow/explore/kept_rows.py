"""Rows that keep the constraints of a fit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.encoder import table_rows
from cubicflow.tables.fitted import FittedTable
from cubicflow.tables.query.constraints import kept_rows


def keeps_constraints(fitted: FittedTable, y: Floats, given: Mapping[str, pa.Array] | None = None) -> NDArray[np.bool_]:
    """Return which rows keep the constraints that a model was fitted with.

    The rows are plain numbers (N, D) in the table's order. ``given`` has the context columns.
    """
    if not fitted.constraints:
        return np.ones(len(y), np.bool_)
    batch = table_rows(fitted.schema, {**(given or {}), **fitted.encoder.decode_numbers(y)}, len(y))
    return kept_rows(fitted.constraints, batch, fitted.schema)
