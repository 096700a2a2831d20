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
from cubicflow.tables.schema.sets import Set
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
            return Set.between(*_levels(condition, column))
        return Set.between(*_possible(_intervals(condition, column), column))
    except TableError as error:
        raise error.about(f"condition {condition.text!r}") from None


def check_constant(condition: Condition, column: Column) -> None:
    """Raise TableError if the value of a constant column does not meet a condition, or cannot be compared with it."""
    try:
        meets = _constant_meets(condition, column)
    except TableError as error:
        raise error.about(f"condition {condition.text!r}") from None
    if not meets:
        value = shown(column.decode(np.zeros(1)))[0]
        raise TableError(
            f"condition {condition.text!r}: column {column.name!r} is always {value}; leave the condition out"
        )


def _constant_meets(condition: Condition, column: Column) -> bool:
    if condition.relation in ("missing", "present"):
        return condition.relation == "present"
    if condition.relation in ("=", "in", "!=", "not in"):
        same = any(_is_constant(column, value) for value in condition.values)
        return same == (condition.relation in ("=", "in"))
    if not is_number(column.arrow_type) and not is_date(column.arrow_type):
        raise TableError(f"column {column.name!r} holds words, which have no order; compare with =, != or in")
    first, last = _ends(condition, [_number(value, column) for value in condition.values], whole=False)
    return bool(first <= number_of(column, column.decode(np.zeros(1)))[0] <= last)


def _is_constant(column: Column, value: object) -> bool:
    try:
        column.encode(pa.array([_text(value, column)]))
    except TableError:
        return False
    return True


def _levels(condition: Condition, column: Column) -> tuple[Interval, ...]:
    if condition.relation in ("=", "!=", "in", "not in"):
        codes = sorted({_code(column, value) for value in condition.values})
        if condition.relation in ("=", "in"):
            return tuple((code, code) for code in codes)
        return tuple(each for each in _others(codes, whole=True) if each[0] < len(column.levels) and each[1] >= 0)
    if not is_number(column.arrow_type):
        raise TableError(f"column {column.name!r} holds words, which have no order; compare with =, != or in")
    low, high = _ends(condition, [_number(value, column) for value in condition.values], whole=False)
    return tuple((float(i), float(i)) for i, level in enumerate(column.levels) if low <= float(level) <= high)


def _others(points: Sequence[float], *, whole: bool) -> tuple[Interval, ...]:
    """Return the intervals between sorted numbers. ``whole`` allows whole numbers only."""
    ends = [-math.inf, *points, math.inf]
    between = ((_after(low, whole), _before(high, whole)) for low, high in pairwise(ends))
    return tuple((first, last) for first, last in between if first <= last)


def _code(column: Column, value: object) -> int:
    code = column.encode_any(pa.array([_text(value)]))[0]
    if math.isfinite(code):
        return int(code)
    near = difflib.get_close_matches(_text(value), column.labels, n=1)
    hint = f"did you mean {near[0]!r}? It has" if near else "it has"
    raise TableError(
        f"column {column.name!r} never holds {_text(value)!r}; {hint} {listed(shown(column.values(column.levels)), 20)}"
    )


def _intervals(condition: Condition, column: Column) -> tuple[Interval, ...]:
    whole = column.has_steps
    numbers = [_number(value, column) for value in condition.values]
    if condition.relation in ("=", "in", "!=", "not in"):
        for number, value in zip(numbers, condition.values, strict=True):
            if whole and number is not None and number != math.floor(number):
                raise TableError(f"column {column.name!r} holds {column.expected_values}, not {_text(value)}")
        points = sorted({number for number in numbers if number is not None})
        if condition.relation in ("=", "in"):
            return tuple((point, point) for point in points)
        return _others(points, whole=whole)
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
    first, last = -math.inf, math.inf
    if condition.relation == "range":
        low, high = numbers
        if low is not None and high is not None and low > high:
            raise TableError(
                f"the range ends at {_text(condition.values[1])}, before it begins; write the lower end first"
            )
        first = first if low is None else math.ceil(low) if whole else low
        last = last if high is None else math.floor(high) if whole else high
    else:
        number = float(numbers[0])  # type: ignore[arg-type] # a comparison has a value
        match condition.relation:
            case "<":
                last = math.ceil(number) - 1 if whole else _before(number, whole)
            case "<=":
                last = math.floor(number) if whole else number
            case ">":
                first = math.floor(number) + 1 if whole else _after(number, whole)
            case _:
                first = math.ceil(number) if whole else number
    if first > last:
        raise TableError("no value of the column lies in this range; widen the range")
    return first, last


def _before(number: float, whole: bool) -> float:
    return number if math.isinf(number) else number - 1 if whole else math.nextafter(number, -math.inf)


def _after(number: float, whole: bool) -> float:
    return number if math.isinf(number) else number + 1 if whole else math.nextafter(number, math.inf)


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
    if column.is_list:
        return float(text)
    if column.role == "constant":
        return float(number_of(column, pa.array([text]))[0])
    # a context column without a map has no limits, and accepts values between the steps
    unlimited, array = replace(column, role="context", map=None), pa.array([text])
    if unlimited.is_circle and not wrapped:
        return float(unlimited.unwrapped(unlimited.read(array))[0])
    return float(unlimited.encode(array)[0])


def _text(value: object, column: Column | None = None) -> str:
    """Return a value as text, written as in a table."""
    if isinstance(value, datetime) and value.time() == time() and (column is None or column.type == "date32[day]"):
        return value.date().isoformat()
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    return value.isoformat() if isinstance(value, date) else str(value)
