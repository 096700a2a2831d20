"""Sums that samples keep: the last column of a sum, in the model's order, is computed from the other columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from cubicflow.tables.arrow_types import Floats, is_date
from cubicflow.tables.asking.constraints import Constraint, LinearConstraint, number_of
from cubicflow.tables.asking.particles import Computed, Walk
from cubicflow.tables.kinds.gridded import Gridded


def computed_columns(walk: Walk, constraints: Sequence[Constraint]) -> dict[int, Computed]:
    """Return, for the last column of every sum, a function that computes it from the plain numbers of earlier columns.

    Sums with dates, and sums with columns that are neither modelled nor constant, are left out.
    """
    found: dict[int, Computed] = {}
    for constraint in constraints:
        if not isinstance(constraint, LinearConstraint) or constraint.relation != "=":
            continue
        schema, order = walk.encoder.schema, walk.encoder.order
        others = [name for name in constraint.names if name not in order]
        modelled = [order.index(name) for name in constraint.names if name in order]
        has_dates = any(is_date(schema[name].arrow_type) for name in constraint.names)
        if modelled and not has_dates and all(schema[name].role == "constant" for name in others):
            found.setdefault(max(modelled), _function(walk, constraint, max(modelled)))
    return found


def _function(walk: Walk, constraint: LinearConstraint, last: int) -> Computed:
    column, cells, order = walk.columns[last], walk.cells[last], walk.encoder.order

    def compute(y: Floats) -> Floats:
        values: Mapping[str, Floats] = {
            name: _values(walk, name, y[:, order.index(name)] if name in order else np.zeros(len(y)))
            for name in constraint.names
            if name != column.name
        }
        value = constraint.solve(column.name, values)
        gap = np.isnan(value)
        value = np.where(gap, 0.0, value)
        if isinstance(column, Gridded):
            value = np.round(value, column.grid.decimals)
        found = column.rounded(column.encode_any(pa.array(value)))
        is_valid = ~gap & np.isfinite(found)
        found = np.where(is_valid, found, np.inf)
        return np.where(
            cells.encode(found)[:, 0] >= 0, found, np.inf
        )  # inf: the column must be drawn, also for unseen values

    return compute


def _values(walk: Walk, name: str, y: Floats) -> Floats:
    """Return the values of plain numbers; NaN for a missing value."""
    column = walk.encoder.schema[name]
    gap = np.isnan(y)
    return np.where(gap, np.nan, number_of(column, column.decode(np.where(gap, 0.0, y))))
