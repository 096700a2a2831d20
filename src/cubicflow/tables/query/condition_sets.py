"""The set of a column's plain numbers that meets a condition.

A comparison with a value excludes missing values. > and >= differ by one code, or by the next float64 of a real column.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import date, datetime, time
from itertools import pairwise

import numpy as np
import pyarrow as pa

from cubicflow.tables.arrow_types import is_date, is_number, shown
from cubicflow.tables.kinds.column import Bounds, Column
from cubicflow.tables.query.conditions import Condition, column_of, texts_of
from cubicflow.tables.query.constraints import number_of
from cubicflow.tables.schema import Schema
from cubicflow.tables.schema.sets import Flags, Set
from cubicflow.tables.table_error import TableError, listed

Interval = tuple[float, float]
EVERYTHING: tuple[Interval, ...] = ((-math.inf, math.inf),)


def sets_of(
    conditions: Sequence[Condition], schema: Schema, gaps: Collection[str], *, complete: bool
) -> dict[str, Set]:
    """Return the set of allowed values of each conditioned column that is modelled, by its name.

    Args:
        gaps: the columns whose values can be missing.
        complete: whether no set has the missing value.

    Raises:
        TableError: conditions contradict one another, or do not suit their columns.
    """
    sets: dict[str, Set] = {}
    for condition in conditions:
        column = column_of(schema, condition)
        if column.role == "constant":
            check_constant(condition, column)
        if column.role != "model":
            continue
        new = set_of(condition, column, gaps=column.name in gaps)
        sets[column.name] = sets.get(column.name, Set.everything(gap=not complete)) & new
        if sets[column.name].is_empty:
            about = [each for each in conditions if each.column == column.name]
            raise TableError(
                f"{texts_of(about)} contradict one another: no value of column {column.name!r} meets all of them; "
                "leave one out"
            )
    return sets


def set_of(condition: Condition, column: Column, *, gaps: bool) -> Set:
    """Return the set of a column's plain numbers that meets a condition. ``gaps`` tells whether values can be missing.

    Raises:
        TableError: no value meets the condition, or the condition does not suit the column.
    """
    if condition.relation == "missing":
        if not gaps:
            raise TableError(
                f"condition {condition.text!r}: column {column.name!r} has no missing value in the fitted table; leave "
                "the condition out"
            )
        return Set.between(gap=True)
    if condition.relation == "present":
        return Set.everything(gap=False)
    try:
        if column.is_list:
            return Set.codes(_meeting(condition, column))
        return Set.between(*_possible(_intervals(condition, column), column))
    except TableError as error:
        raise error.about(f"condition {condition.text!r}") from None


def check_constant(condition: Condition, column: Column) -> None:
    """Raise TableError if the value of a constant column does not meet a condition, or cannot be compared with it."""
    if condition.relation in ("missing", "present"):
        meets = condition.relation == "present"
    else:
        try:
            (meets,) = _meeting(condition, column)
        except TableError as error:
            raise error.about(f"condition {condition.text!r}") from None
    if not meets:
        value = shown(column.decode(np.zeros(1)))[0]
        raise TableError(
            f"condition {condition.text!r}: column {column.name!r} is always {value}; leave the condition out"
        )


def _meeting(condition: Condition, column: Column) -> Flags:
    """Return which values of a list meet a condition; a constant column is a list of one value."""
    values = column.decode(np.arange(len(column.levels) if column.is_list else 1.0))
    if condition.relation in ("=", "!=", "in", "not in"):
        among = np.isin(np.arange(len(values)), [_code(column, value) for value in condition.values])
        return among if condition.relation in ("=", "in") else ~among
    if not is_number(column.arrow_type) and not is_date(column.arrow_type):
        raise TableError(f"column {column.name!r} holds words, which have no order; compare with =, != or in")
    first, last = _ends(condition, [_number(value, column) for value in condition.values], whole=False)
    numbers = number_of(column, values)
    return (first <= numbers) & (numbers <= last)


def _code(column: Column, value: object) -> float:
    """Return the place of a value in a list; inf for a value that a constant column does not hold."""
    text = _text(value, column)
    code = float(column.encode_any(pa.array([text]))[0])
    if column.is_list and not math.isfinite(code):
        near = difflib.get_close_matches(text, column.labels, n=1)
        hint = f"did you mean {near[0]!r}? It has" if near else "it has"
        raise TableError(
            f"column {column.name!r} never holds {text!r}; {hint} {listed(shown(column.values(column.levels)), 20)}"
        )
    return code


def _intervals(condition: Condition, column: Column) -> tuple[Interval, ...]:
    whole = column.has_steps
    numbers = [_number(value, column) for value in condition.values]
    if condition.relation in ("=", "in", "!=", "not in"):
        for number, value in zip(numbers, condition.values, strict=True):
            if whole and number is not None and number != math.floor(number):
                raise TableError(f"column {column.name!r} holds {column.expected_values}, not {_text(value, column)}")
        points = sorted({number for number in numbers if number is not None})
        if condition.relation in ("=", "in"):
            return tuple((point, point) for point in points)
        between = (_between(*ends, strict=True, whole=whole) for ends in pairwise([None, *points, None]))
        return tuple((first, last) for first, last in between if first <= last)
    if column.turn is not None:
        return _on_circle(condition, column, column.turn, whole=whole)
    return (_ends(condition, numbers, whole=whole),)


def _possible(intervals: tuple[Interval, ...], column: Column) -> tuple[Interval, ...]:
    """Return the intervals that samples of the column can reach.

    The model may give numbers beyond the limits of a column of steps a small probability, and a sample is rounded to
    the nearest limit. So an interval that holds a limit also holds the numbers beyond it, and no other interval does.
    """
    if not column.has_steps or column.is_circle:
        return intervals
    low, high = column.code_range
    found = tuple(
        (first, last) if first == last else (-math.inf if first <= low else first, math.inf if last >= high else last)
        for first, last in intervals
        if first <= high and last >= low
    )
    if not found:
        smallest, largest = shown(column.decode(np.array([low, high])))
        raise TableError(f"column {column.name!r} runs from {smallest} to {largest}; choose values in this range")
    return found


def _on_circle(condition: Condition, column: Column, turn: Bounds, *, whole: bool) -> tuple[Interval, ...]:
    """Return the numbers of a comparison or a range.

    A range is the arc from its lower to its upper end, which may cross the seam. A comparison is with the numbers from
    the first end of the circle up to the second.
    """
    numbers = [_number(value, column, wrapped=False) for value in condition.values]
    low, high = turn
    if condition.relation == "range" and None not in numbers:
        first, last = map(float, numbers)  # type: ignore[arg-type] # no end is open
        if last - first >= high - low:
            return EVERYTHING
        if whole:
            last = math.floor(first + (last - first) % (high - low))
            first = math.ceil(first)
            if first > last:
                raise TableError("no value of the column lies in this range; widen the range")
            if last - first >= high - low - 1:
                return EVERYTHING
            first, last = first % high, last % high
        else:
            first, last = (float(_number(value, column) or 0) for value in condition.values)
        return ((first, last),) if first <= last else ((-math.inf, last), (first, math.inf))
    for i, number in enumerate(numbers):  # a number inside the turn is compared as a row holds it
        if number is not None and low <= number < high:
            numbers[i] = _number(condition.values[i], column)
    first, last = _ends(condition, numbers, whole=whole)
    if first >= high or last < low:
        start, stop = column.unlimited(np.array(turn)).tolist()
        raise TableError(
            f"the values of column {column.name!r} run from {start:.12g} to just below {stop:.12g}, and none lies in "
            "this range; write an arc across the seam as a range, from its lower to its upper end"
        )
    return ((first, last),)


def _ends(condition: Condition, numbers: Sequence[float | None], *, whole: bool) -> Interval:
    """Return the first and the last number of a comparison or a range. ``whole`` allows whole numbers only."""
    is_above = condition.relation in (">", ">=")
    low, high = numbers if condition.relation == "range" else (numbers[0], None) if is_above else (None, numbers[0])
    if low is not None and high is not None and low > high:
        raise TableError(f"the range ends at {condition.values[1]}, before it begins; write the lower end first")
    first, last = _between(low, high, strict=condition.relation in ("<", ">"), whole=whole)
    if first > last:
        raise TableError("no value of the column lies in this range; widen the range")
    return first, last


def _between(low: float | None, high: float | None, *, strict: bool, whole: bool) -> Interval:
    """Return the first and the last number between two ends, None for no end. ``strict`` excludes the ends."""

    def first(end: float | None) -> float:
        if end is None:
            return -math.inf
        if whole:
            return math.floor(end) + 1 if strict else math.ceil(end)
        return math.nextafter(end, math.inf) if strict else end

    return first(low), -first(None if high is None else -high)


def _number(value: object, column: Column, *, wrapped: bool = True) -> float | None:
    """Return the plain number of a value, or None for an open end. The number may lie between the column's steps.

    Without ``wrapped``, the number of a value beyond the ends of a circle lies beyond these ends too.
    """
    if value is None:
        return None
    text = _text(value, column)
    try:
        found = _read(text, column, wrapped=wrapped)
    except (TableError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        one, many = ("date", "dates") if is_date(column.arrow_type) else ("number", "numbers")
        example = shown(column.decode(np.zeros(1)))[0]
        raise TableError(
            f"column {column.name!r} holds {many}, and {text!r} is not a {one}; give a {one}, written as {example}"
        )
    return found


def _read(text: str, column: Column, *, wrapped: bool) -> float:
    array = pa.array([text])
    if column.is_list or column.role == "constant":
        return float(number_of(column, array)[0])
    # a context column without a map has no limits, and accepts values between the steps
    unlimited = replace(column, role="context", map=None)
    if unlimited.is_circle and not wrapped:
        return float(unlimited.unwrapped(unlimited.read(array))[0])
    return float(unlimited.encode(array)[0])


def _text(value: object, column: Column) -> str:
    """Return a value as text, written as in a table."""
    if isinstance(value, datetime):
        is_day = value.time() == time() and not column.type.startswith("timestamp")
        return value.date().isoformat() if is_day else value.isoformat(sep=" ")
    return value.isoformat() if isinstance(value, date) else str(value)
