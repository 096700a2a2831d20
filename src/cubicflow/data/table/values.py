"""The values of a column as numbers, codes or floats, and back; every value that does not belong is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cubicflow.data.table.arrow_types import epsilon_of, is_date, is_number, is_text
from cubicflow.data.table.column import GRIDDED, LEVELLED, Column
from cubicflow.data.table.errors import TableError, some
from cubicflow.data.table.text_types import read_text

Floats = NDArray[np.float64]

FURTHEST = 2**53  # codes beyond are not exact
ABSURD = 1e12  # standard deviations; the square of much more is no float32


def to_numbers(column: Column, array: pa.Array) -> Floats:
    """y of every value: its code, or the value itself. ``array`` has no gaps."""
    array = as_type(column, array)
    if column.kind in LEVELLED:
        return _level_codes(column, array)
    if column.kind in GRIDDED:
        return _within_limits(column, _grid_codes(column, array), array)
    values = floats(array)
    infinite = ~np.isfinite(values)
    if infinite.any():
        raise TableError(f"column {column.name!r} holds {int(infinite.sum())} infinite values; remove those rows")
    return _within_limits(column, values, array)


def as_type(column: Column, array: pa.Array) -> pa.Array:
    """Text read as the column's type, and dictionaries spelled out."""
    type = column.arrow_type
    if is_text(type):
        return plain_text(array)
    if not is_text(array.type):
        return array
    if pa.types.is_decimal(type) or (is_number(type) and column.kind not in LEVELLED):
        type = pa.float64() if column.kind != "integer" else pa.int64()
    try:
        return read_text(array, type)
    except pa.ArrowInvalid:
        pass
    if column.kind == "integer":  # 3.0 is a whole number too
        try:
            return read_text(array, pa.float64())
        except pa.ArrowInvalid:
            pass
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
        codes = np.floor(np.clip(y, -FURTHEST, FURTHEST)).astype(np.int64)
        if column.kind == "stepped":
            return _floats_back(column.grid.values(codes), type, column.grid.decimals)
        return _whole_back(column.grid.origin, column.grid.step, codes, type)
    most = float(np.finfo(np.float32 if pa.types.is_float32(type) else np.float64).max)
    values = np.clip(y, -most, most)
    return _floats_back(values if column.decimals is None else np.round(values, column.decimals), type, None)


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
    if array.type != expected.type:
        array = array.cast(expected.type, safe=False)
    other = array.filter(pc.not_equal(array, expected[0]))
    if len(other):
        raise TableError(
            f"column {column.name!r} was always {column.value!r} in the fitted table; here it is also "
            f"{other[0].as_py()!r}"
        )


def _level_codes(column: Column, array: pa.Array) -> Floats:
    known = column.value_set
    if array.type != known.type:
        array = array.cast(known.type, safe=False)
    codes = pc.index_in(array, known)
    if codes.null_count:
        unseen = pc.unique(array.filter(pc.is_null(codes))).to_pylist()
        raise TableError(
            f"column {column.name!r} holds {some(unseen)}, which the fitted table did not; it held "
            f"{some(list(column.levels), 10)}"
        )
    result: Floats = codes.to_numpy().astype(np.float64)
    return result


def _grid_codes(column: Column, array: pa.Array) -> Floats:
    grid = column.grid
    assert grid is not None  # noqa: S101 - gridded kinds have one
    if is_date(array.type) and array.type != column.arrow_type:
        try:
            array = array.cast(column.arrow_type)
        except pa.ArrowInvalid:
            raise TableError(f"column {column.name!r} holds times finer than {column.type}, as it was fitted") from None
    if pa.types.is_integer(array.type) or is_date(array.type):
        try:
            values = whole_numbers(array)
        except pa.ArrowInvalid:
            raise TableError(f"column {column.name!r} holds whole numbers beyond 2^63") from None
        if grid.decimals:
            codes, fit = grid.codes(values.astype(np.float64))
        else:
            far = np.abs(values.astype(np.float64) - float(grid.origin)) > FURTHEST
            if far.any():
                raise TableError(f"column {column.name!r} holds {values[far][0]}, absurdly far from what was fitted")
            codes, fit = (values - grid.origin) // grid.step, (values - grid.origin) % grid.step == 0
    else:
        codes, fit = grid.codes(floats(array), epsilon_of(array.type))
    if not fit.all():
        wrong = array.filter(pa.array(~fit))
        raise TableError(
            f"column {column.name!r} holds {len(wrong)} values that are not {_words(column)}, the first is "
            f"{wrong[0].as_py()!r}; round them"
        )
    return codes.astype(np.float64)


def _within_limits(column: Column, y: Floats, array: pa.Array) -> Floats:
    if column.map is None or not y.size:
        return y
    low, high = column.map.limits
    # a code is the left end of its step; a value with a density must lie strictly inside
    outside = (y < low) | (y >= high) if column.counts_mass else (y <= low) | (y >= high)
    if outside.any():
        first = array.filter(pa.array(outside))[0].as_py()
        raise TableError(
            f"column {column.name!r} holds {int(outside.sum())} values outside of its range as fitted, the first is "
            f"{first!r}; leave those rows out, or fit again with wider --bounds"
        )
    ends = np.array([y.argmin(), y.argmax()])  # the map is increasing
    inside = y[ends] + (0.5 if column.counts_mass else 0.0)
    absurd = ends[np.abs(column.map.forward(inside)[0]) > ABSURD]
    if absurd.size:
        raise TableError(
            f"column {column.name!r} holds {array[int(absurd[0])].as_py()!r}, absurdly far from what was fitted; "
            "remove such rows"
        )
    return y


def _whole_back(origin: int, step: int, codes: NDArray[np.int64], type: pa.DataType) -> pa.Array:
    largest = 2**63 - 1
    if pa.types.is_integer(type):
        bits = type.bit_width - (0 if pa.types.is_unsigned_integer(type) else 1)
        largest = min(largest, 2**bits - 1)
    smallest = 0 if pa.types.is_unsigned_integer(type) else -largest - 1
    if pa.types.is_date32(type):
        smallest, largest = -(2**31), 2**31 - 1
    codes = np.clip(codes, -((origin - smallest) // step), (largest - origin) // step)
    whole = pa.array(origin + step * codes, type=pa.int64())
    if pa.types.is_date32(type):
        return whole.cast(pa.int32()).cast(type)
    if pa.types.is_float16(type):
        return whole.cast(pa.float32()).cast(type)
    return whole.cast(type, safe=False)


def _floats_back(values: Floats, type: pa.DataType, decimals: int | None) -> pa.Array:
    if pa.types.is_decimal(type):
        scale = type.scale if decimals is None else min(decimals, type.scale)
        return pa.array([f"{value:.{scale}f}" for value in values.tolist()]).cast(type)
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


def _words(column: Column) -> str:
    if column.kind == "integer" and column.grid is not None and column.grid.step == 1:
        return "whole numbers"
    if column.grid is not None and column.kind != "datetime":
        start = column.grid.origin / 10**column.grid.decimals
        return f"multiples of {column.grid.width:.12g}" + (
            f" counted from {start:.12g}" if start % column.grid.width else ""
        )
    return {"real": "numbers", "datetime": "date-times", "boolean": "true or false"}.get(column.kind, "known values")
