"""The values of a column as numbers, codes or floats, and back; every value that does not belong is refused."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import epsilon_of, exact_cast, is_date, is_number, is_text, shown
from cubicflow.tables.column import GRIDDED, LEVELLED, Column, duration
from cubicflow.tables.errors import TableError, listed
from cubicflow.tables.grid import LARGEST, Codes, Grid
from cubicflow.tables.sample_range import code_range, decimal_range, value_range
from cubicflow.tables.text_types import read_text

Floats = NDArray[np.float64]

ABSURD = 1e12  # standard deviations; the square of much more is no float32


def to_numbers(column: Column, array: pa.Array) -> Floats:
    """y of every value: its code, or the value itself. ``array`` has no gaps."""
    array = as_type(column, array)
    if column.kind in LEVELLED:
        return _level_codes(column, array)
    if column.kind in GRIDDED:
        return _within_limits(column, _grid_codes(column, array), array)
    return _within_limits(column, _finite(column, array), array)


def as_type(column: Column, array: pa.Array) -> pa.Array:
    """Text read as the column's type, and dictionaries spelled out."""
    type = column.arrow_type
    if is_text(type):
        return plain_text(array)
    if not is_text(array.type):
        return array
    if pa.types.is_decimal(type) or (is_number(type) and column.kind not in LEVELLED):
        whole = column.kind == "integer" or (column.kind == "constant" and pa.types.is_integer(type))
        type = pa.int64() if whole else pa.float64()
    try:
        return read_text(array, type)
    except pa.ArrowInvalid:
        pass
    if pa.types.is_integer(type):  # 3.0 is a whole number too
        try:
            return read_text(array, pa.float64())
        except pa.ArrowInvalid:
            type = pa.float64()
    wrong = next(text for text in array.to_pylist() if not _reads(text, type))
    raise TableError(f"column {column.name!r} should hold {_words(column)}, found {wrong!r}")


def plain_text(array: pa.Array) -> pa.Array:
    """Strings, whatever arrow calls them."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(pa.string())


def floats(array: pa.Array) -> Floats:
    """Any numbers as float64; float16 passes through float32, the only way arrow knows."""
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    result: Floats = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return result


def whole_numbers(array: pa.Array) -> NDArray[np.int64]:
    """Integers and dates as int64; raises ArrowInvalid for an unsigned number beyond it."""
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    result: NDArray[np.int64] = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return result


def from_numbers(column: Column, y: Floats) -> pa.Array:
    """The inverse of :func:`to_numbers`: code + u, or the value itself, as the column's own values."""
    type = column.arrow_type
    if column.kind in LEVELLED:
        codes = np.clip(np.floor(y), 0, len(column.levels) - 1).astype(np.int64)
        return _words_back(column.value_set.take(pa.array(codes)), type)
    if column.grid is not None:
        codes = np.clip(np.floor(y), *code_range(column)).astype(np.int64)
        if column.kind == "stepped":
            return _floats_back(column.grid.values(codes), type, column.grid.decimals)
        return _whole_back(column.grid, codes, type)
    digits = type.scale if column.decimals is None and pa.types.is_decimal(type) else column.decimals
    with np.errstate(over="ignore"):  # digits after the point of a number near the largest
        values = y if digits is None else np.round(y, digits)
    return _floats_back(np.clip(values, *value_range(column, digits)), type, digits)


def constants(column: Column, rows: int) -> pa.Array:
    """A constant column."""
    assert column.value is not None  # noqa: S101 - constants have one
    return _words_back(
        column.decode_values([column.value]).take(pa.array(np.zeros(rows, dtype=np.int64))), column.arrow_type
    )


def check_constant(column: Column, array: pa.Array) -> None:
    """Refuse any other value."""
    expected = column.decode_values([column.value]) if column.value is not None else pa.nulls(1)
    array = as_type(column, array)
    same = pc.fill_null(pc.equal(exact_cast(array, expected.type), expected[0]), False)
    if not pc.all(same).as_py():
        other = array.filter(pc.invert(same))[:1]
        raise TableError(
            f"column {column.name!r} was always {shown(expected)[0]} in the fitted table; here it is also "
            f"{shown(other)[0]}"
        )


def as_given(column: Column, array: pa.Array) -> pa.Array:
    """Values of a context column as its own type, or as they were read where that cannot hold them: 2.5 rooms."""
    read = as_type(column, array)
    if is_text(column.arrow_type):
        return _words_back(read, column.arrow_type)
    own = exact_cast(read, column.arrow_type)
    return read if own.null_count else own


def _level_codes(column: Column, array: pa.Array) -> Floats:
    known = column.value_set
    codes = pc.index_in(exact_cast(array, known.type), known, skip_nulls=True)
    if codes.null_count:
        unseen = pc.unique(array.filter(pc.is_null(codes)))
        raise TableError(
            f"column {column.name!r} holds {listed(shown(unseen))}, which the fitted table did not; it held "
            f"{listed(shown(known), 10)}"
        )
    result: Floats = codes.to_numpy().astype(np.float64)
    return result


def _finite(column: Column, array: pa.Array) -> Floats:
    values = floats(array)
    infinite = ~np.isfinite(values)
    if infinite.any():
        raise TableError(f"column {column.name!r} holds {int(infinite.sum())} infinite values; remove those rows")
    return values


def _grid_codes(column: Column, array: pa.Array) -> Floats:
    """Codes of values on the grid. Between them only a context value may lie: a density can be given anything."""
    grid = column.grid
    assert grid is not None  # noqa: S101 - gridded kinds have one
    if is_date(array.type) and array.type != column.arrow_type:
        try:
            array = array.cast(column.arrow_type)
        except pa.ArrowInvalid:
            raise TableError(f"column {column.name!r} holds times finer than {column.type}, as it was fitted") from None
    if pa.types.is_integer(array.type) or is_date(array.type):
        try:
            whole = whole_numbers(array)
        except pa.ArrowInvalid:
            raise TableError(f"column {column.name!r} holds whole numbers beyond 2^63") from None
        values = whole.astype(np.float64)
        if grid.decimals:
            codes, fit = grid.codes(values)
        else:
            far = np.abs(values - float(grid.origin)) > LARGEST
            if far.any():
                first = shown(array.filter(pa.array(far))[:1])[0]
                raise TableError(f"column {column.name!r} holds {first}, absurdly far from what was fitted")
            codes, fit = (whole - grid.origin) // grid.step, (whole - grid.origin) % grid.step == 0
    else:
        values = _finite(column, array)
        codes, fit = grid.codes(values, epsilon_of(array.type))
    if fit.all():
        return codes.astype(np.float64)
    if column.role == "context":
        return np.where(fit, codes, (values * 10.0**grid.decimals - float(grid.origin)) / grid.step)
    wrong = array.filter(pa.array(~fit))
    raise TableError(
        f"column {column.name!r} holds {len(wrong)} values that are not {_on_grid(column)}, the first is "
        f"{shown(wrong[:1])[0]}; round them"
    )


def _within_limits(column: Column, y: Floats, array: pa.Array) -> Floats:
    if column.map is None or not y.size:
        return y
    low, high = column.map.limits
    # a code is the left end of its step; a value with a density must lie strictly inside
    outside = (y < low) | (y >= high) if column.counts_mass else (y <= low) | (y >= high)
    if outside.any():
        first = shown(array.filter(pa.array(outside))[:1])[0]
        raise TableError(
            f"column {column.name!r} holds {int(outside.sum())} values outside of its range as fitted, the first is "
            f"{first}; leave those rows out, or fit again with wider --bounds"
        )
    ends = np.array([y.argmin(), y.argmax()])  # the map is increasing
    inside = y[ends] + (0.5 if column.counts_mass else 0.0)
    absurd = ends[np.abs(column.map.forward(inside)[0]) > ABSURD]
    if absurd.size:
        raise TableError(
            f"column {column.name!r} holds {shown(array[int(absurd[0]) :][:1])[0]}, absurdly far from what was fitted; "
            "remove such rows"
        )
    return y


def _whole_back(grid: Grid, codes: Codes, type: pa.DataType) -> pa.Array:
    whole = pa.array(grid.origin + grid.step * codes, type=pa.int64())
    if pa.types.is_date32(type):
        return whole.cast(pa.int32()).cast(type)
    if pa.types.is_float16(type):
        return whole.cast(pa.float32()).cast(type)
    if pa.types.is_decimal(type):
        return whole.cast(pa.string()).cast(type)
    return whole.cast(type, safe=False)


def _floats_back(values: Floats, type: pa.DataType, decimals: int | None) -> pa.Array:
    if pa.types.is_decimal(type):
        scale = type.scale if decimals is None else min(decimals, type.scale)
        smallest, largest = decimal_range(type)
        exact = (Decimal(f"{value:.{scale}f}") for value in values.tolist())
        return pa.array([min(max(value, smallest), largest) for value in exact], type=type)
    if pa.types.is_integer(type):
        return pa.array(np.rint(values).astype(np.int64)).cast(type, safe=False)
    if pa.types.is_float16(type):
        return pa.array(values.astype(np.float16))
    return pa.array(values).cast(type, safe=False)


def _words_back(array: pa.Array, type: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(type):
        return array.dictionary_encode().cast(type)
    return array.cast(type)


def _reads(text: str, type: pa.DataType) -> bool:
    try:
        read_text(pa.array([text]), type)
    except pa.ArrowInvalid:
        return False
    return True


def _on_grid(column: Column) -> str:
    if column.grid is None or column.kind != "datetime":
        return _words(column)
    start = shown(column.decode_values([column.grid.origin]))[0]
    return f"date-times in steps of {duration(column.arrow_type, column.grid.step)} counted from {start}"


def _words(column: Column) -> str:
    if column.kind == "integer" and column.grid is not None and column.grid.step == 1:
        return "whole numbers"
    if column.grid is not None and column.kind != "datetime":
        start = column.grid.origin / 10**column.grid.decimals
        return f"multiples of {column.grid.width:.12g}" + (
            f" counted from {start:.12g}" if start % column.grid.width else ""
        )
    return {"real": "numbers", "datetime": "date-times", "boolean": "true or false"}.get(column.kind, "known values")
