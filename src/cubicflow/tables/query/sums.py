"""Constraints in a walk through the columns: sums are computed, and rows that break a constraint are found.

The last column of a sum, in the model's order, is computed from the other columns. A row is checked at the last column
of each constraint. Sums are checked too: the last column may not hold the computed value, such as a negative number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cubicflow.tables.arrow_types import Floats, is_date
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.query.constraints import CLOSE, Constraint, LinearConstraint, kept_rows, number_of
from cubicflow.tables.schema.plain_rows import with_gaps
from cubicflow.tables.schema.sets import Flags

if TYPE_CHECKING:
    from cubicflow.tables.query.walk import Walk

Computed = Callable[[Floats], Floats]
Check = Callable[[Floats, Floats | None], Flags]


def computed_columns(walk: Walk) -> dict[int, Computed]:
    """Return, for the last column of every sum, a function that computes it from the plain numbers of earlier columns.

    The function returns inf where a value of the sum is missing, and -inf where the column cannot hold the result. Sums
    with dates, and sums with columns that are neither modelled nor constant, are left out.
    """
    found: dict[int, Computed] = {}
    for constraint, modelled in _sums(walk):
        found.setdefault(max(modelled), partial(_solved, walk, constraint, max(modelled)))
    return found


def solved_by_sums(walk: Walk, i: int, y: Floats) -> Floats:
    """Return column i of rows (N, D), computed from the other columns of a sum; infinite where no sum gives it."""
    found = np.full(len(y), np.inf)
    for constraint, modelled in _sums(walk):
        if i in modelled:
            found = np.where(np.isinf(found), _solved(walk, constraint, i, y), found)
    return found


def _sums(walk: Walk) -> Iterator[tuple[LinearConstraint, list[int]]]:
    """Yield the sums that can be computed, with their columns in the model's order."""
    schema, order = walk.encoder.schema, walk.encoder.order
    for constraint in walk.constraints:
        if not isinstance(constraint, LinearConstraint) or constraint.relation != "=":
            continue
        modelled = [order.index(name) for name in constraint.names if name in order]
        others = [schema[name] for name in constraint.names if name not in order]
        has_dates = any(is_date(schema[name].arrow_type) for name in constraint.names)
        if modelled and not has_dates and all(column.role == "constant" for column in others):
            yield constraint, modelled


def checks_of(walk: Walk) -> dict[int, Check]:
    """Return, for the last column of every constraint, a function that finds the rows which keep the constraint.

    A copy is always kept, so it needs no check.
    """
    order, groups = walk.encoder.order, dict[int, list[Constraint]]()
    for constraint in walk.constraints:
        if not _is_copy(walk, constraint):
            last = max((order.index(name) for name in constraint.names if name in order), default=0)
            groups.setdefault(last, []).append(constraint)
    return {last: partial(_keeps, walk, group) for last, group in groups.items()}


def _keeps(walk: Walk, constraints: Sequence[Constraint], y: Floats, context: Floats | None) -> Flags:
    schema, names = walk.encoder.schema, {name for constraint in constraints for name in constraint.names}
    rows = {name: with_gaps(schema[name], _numbers(walk, name, y, context)) for name in names}
    return kept_rows(constraints, pa.RecordBatch.from_pydict(rows), schema)


def _numbers(walk: Walk, name: str, y: Floats, context: Floats | None = None) -> Floats:
    """Return the plain numbers (N,) of a column in rows (N, D). A constant has the number 0."""
    if name in walk.encoder.order:
        return y[:, walk.encoder.order.index(name)]
    column = walk.encoder.schema[name]
    if column.role == "context" and context is not None:
        return context[:, walk.encoder.schema.context.index(column)]
    return np.zeros(len(y))


def _is_copy(walk: Walk, constraint: Constraint) -> bool:
    """Return whether a constraint computes one column from another that holds the same numbers."""
    if not isinstance(constraint, LinearConstraint) or len(constraint.names) != 2 or constraint.bound:
        return False
    if constraint.relation != "=" or sorted(constraint.factors) != [-1, 1]:
        return False
    one, other = (walk.encoder.order.index(name) if name in walk.encoder.order else -1 for name in constraint.names)
    return (
        max(one, other) in walk.computed
        and min(one, other) >= 0
        and walk.coders[one].cells == walk.coders[other].cells
        and replace(walk.columns[one], name="") == replace(walk.columns[other], name="")
    )


def _solved(walk: Walk, constraint: LinearConstraint, i: int, y: Floats) -> Floats:
    column, schema = walk.columns[i], walk.encoder.schema
    others = (name for name in constraint.names if name != column.name)
    value = constraint.solve(column.name, {name: _values(schema[name], _numbers(walk, name, y)) for name in others})
    value = np.broadcast_to(value, len(y))
    gap = np.isnan(value)
    value = np.where(gap, 0.0, value)
    if column.has_steps:
        value = np.round(value, column.exact_decimals)
    found = column.rounded(column.encode_any(pa.array(value)))
    unseen = walk.coders[i].cells.encode(found)[:, 0] < 0  # never drawn
    return np.where(gap, np.inf, np.where(np.isfinite(found) & ~unseen, found, -np.inf))


def out_of_reach(walk: Walk) -> bool:
    """Return whether the ranges of columns inside the sets of a walk show that every row breaks some comparison.

    For example, a + b = c has no row with a in 0..1, b in 0..1 and c > 5.
    """
    for constraint in walk.constraints:
        if not isinstance(constraint, LinearConstraint):
            continue
        ranges = [_range(walk, name) for name in constraint.names]
        if None in ranges:
            continue
        parts = np.sort(np.array(ranges) * np.array(constraint.factors)[:, None], axis=1)
        low, high = parts.sum(axis=0)
        slack = CLOSE * np.abs(parts[np.isfinite(parts)]).sum()
        if constraint.relation in ("=", "<", "<=") and low > constraint.bound + slack:
            return True
        if constraint.relation in ("=", ">", ">=") and high < constraint.bound - slack:
            return True
    return False


def _range(walk: Walk, name: str) -> tuple[float, float] | None:
    """Return the smallest and the largest value of a column inside its set; None if it has no range.

    A missing value keeps every constraint, and a circle has no order.
    """
    column, order = walk.encoder.schema[name], walk.encoder.order
    if name in order:
        i = order.index(name)
        within = walk.set_of(i)
        if within.gap[0] or column.is_circle:
            return None
        y = np.array([within.ends.min(), within.ends.max()])
        if not column.counts_mass:
            low, high = walk.coders[i].cells.scale.limits  # type: ignore[attr-defined] # cells of numbers have a scale
            return max(y[0], low), min(y[1], high)
        if column.is_list:
            codes = np.arange(float(len(column.levels)))
            y = codes[within.contains(codes)]
    else:
        y = _numbers(walk, name, np.empty((1, 0)), None if walk.context is None else np.atleast_2d(walk.context))
    values = _values(column, y)
    return None if np.isnan(values).any() else (values.min(), values.max())


def _values(column: Column, y: Floats) -> Floats:
    """Return the values of plain numbers; NaN for a missing value."""
    return number_of(column, with_gaps(column, y))
