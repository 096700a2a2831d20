"""Conditions on a constant column: its one value meets a condition, or no row does."""

from __future__ import annotations

import pyarrow as pa

from cubicflow.tables.asking.conditions import Condition
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.table_error import TableError


def meets(column: Column, condition: Condition) -> bool:
    """Return whether the value of a constant column meets a condition. Raise TableError if they cannot be compared."""
    if condition.relation in ("missing", "present"):
        return condition.relation == "present"
    if condition.relation in ("=", "in", "!=", "not in"):
        same = any(_is_value(column, value) for value in condition.values)
        return same == (condition.relation in ("=", "in"))
    value = getattr(column, "value", None)
    if isinstance(value, str | bool) or not isinstance(value, int | float):
        raise TableError(f"condition {condition.text!r}: column {column.name!r} holds no numbers; compare with =")
    try:
        ends = [None if end is None else float(str(end)) for end in condition.values]
    except ValueError:
        raise TableError(
            f"condition {condition.text!r}: column {column.name!r} holds numbers; compare with a number"
        ) from None
    if condition.relation == "range":
        return (ends[0] is None or ends[0] <= value) and (ends[1] is None or value <= ends[1])
    end = ends[0]
    assert end is not None  # noqa: S101 - a comparison has a value
    return {"<": value < end, "<=": value <= end, ">": value > end, ">=": value >= end}[condition.relation]


def _is_value(column: Column, value: object) -> bool:
    try:
        column.encode(pa.array([str(value)]))
    except TableError:
        return False
    return True
