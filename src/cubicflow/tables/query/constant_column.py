"""Conditions on a constant column: its one value meets a condition, or no row does."""

from __future__ import annotations

import math
from datetime import date

import numpy as np
import pyarrow as pa

from cubicflow.tables.arrow_types import is_date, is_number, shown
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.query.conditions import Condition
from cubicflow.tables.query.constraints import number_of
from cubicflow.tables.table_error import TableError


def meets(column: Column, condition: Condition) -> bool:
    """Return whether the value of a constant column meets a condition. Raise TableError if they cannot be compared."""
    if condition.relation in ("missing", "present"):
        return condition.relation == "present"
    if condition.relation in ("=", "in", "!=", "not in"):
        same = any(_is_value(column, value) for value in condition.values)
        return same == (condition.relation in ("=", "in"))
    if not is_number(column.arrow_type) and not is_date(column.arrow_type):
        raise TableError(
            f"condition {condition.text!r}: column {column.name!r} holds words, which have no order; compare with =, "
            "!= or in"
        )
    value = number_of(column, column.decode(np.zeros(1)))[0]
    ends = [None if end is None else _number(column, condition, end) for end in condition.values]
    if condition.relation == "range":
        return (ends[0] is None or ends[0] <= value) and (ends[1] is None or value <= ends[1])
    end = ends[0]
    assert end is not None  # noqa: S101 - a comparison has a value
    return bool({"<": value < end, "<=": value <= end, ">": value > end, ">=": value >= end}[condition.relation])


def _number(column: Column, condition: Condition, end: object) -> float:
    """Return the end of a range as a number; dates are in microseconds."""
    try:
        found = float(number_of(column, _array(end))[0])
    except TableError:
        found = math.nan
    if not math.isfinite(found):
        one, many = ("date", "dates") if is_date(column.arrow_type) else ("number", "numbers")
        value = shown(column.decode(np.zeros(1)))[0]
        raise TableError(
            f"condition {condition.text!r}: column {column.name!r} holds {many}, and {str(end)!r} is not a {one}; give "
            f"a {one}, written as {value}"
        )
    return found


def _is_value(column: Column, value: object) -> bool:
    try:
        column.encode(_array(value))
    except TableError:
        return False
    return True


def _array(value: object) -> pa.Array:
    """Return an array of one value: a date, or the text of another value."""
    return pa.array([value if isinstance(value, date) else str(value)])
