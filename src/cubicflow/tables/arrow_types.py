"""Arrow types: their names in a schema, exact conversions between them, and the types that text can be read as."""

from __future__ import annotations

import re
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cubicflow.tables.table_error import TableError

Floats = NDArray[np.float64]

WORDS = pa.dictionary(pa.int32(), pa.string())  # the type of a pandas categorical


def type_name(type: pa.DataType) -> str:
    """Return the name of a column's type, as a schema stores it."""
    return "words" if pa.types.is_dictionary(type) else str(type)


def type_of(name: str) -> pa.DataType:
    """Return the type with this name, the inverse of :func:`type_name`.

    Raises TableError for a name that is not the type of a readable column.
    """
    if name == "words":
        return WORDS
    try:
        if match := re.fullmatch(r"timestamp\[(s|ms|us|ns), tz=([\w/+:-]{1,64})\]", name):
            return pa.timestamp(match[1], match[2])
        if match := re.fullmatch(r"(decimal(?:32|64|128|256))\((\d{1,2}), (\d{1,2})\)", name):
            return getattr(pa, match[1])(int(match[2]), int(match[3]))  # raises ValueError for too many digits
        type = pa.type_for_alias(name)
    except ValueError:
        type = None
    if type is None or str(type) != name or not is_readable(type):
        raise TableError(f"{name!r} is not a column type that cubicflow can read")
    return type


def without_views(schema: pa.Schema) -> pa.Schema:
    """Return the schema with string views replaced by large strings: Arrow cannot take rows from string views yet."""
    return pa.schema([(name, _plain(type)) for name, type in zip(schema.names, schema.types, strict=True)])


def _plain(type: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(type):
        return pa.dictionary(type.index_type, _plain(type.value_type), type.ordered)
    return pa.large_string() if pa.types.is_string_view(type) else type


def is_text(type: pa.DataType) -> bool:
    """Return whether a type is a string, or a dictionary of strings."""
    if pa.types.is_dictionary(type):
        type = type.value_type
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


def is_number(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type))


def is_date(type: pa.DataType) -> bool:
    return bool(pa.types.is_date(type) or pa.types.is_timestamp(type))


def is_readable(type: pa.DataType) -> bool:
    """Return whether a column of the type can be modelled."""
    if pa.types.is_decimal(type) and type.scale < 0:
        return False
    return is_text(type) or is_number(type) or is_date(type) or bool(pa.types.is_boolean(type))


def epsilon_of(type: pa.DataType) -> float:
    """Return the machine epsilon of a column's type; that of float64 for a type that is not floating."""
    name = {pa.float16(): "float16", pa.float32(): "float32"}.get(type, "float64")
    return float(np.finfo(name).eps)


def exact_cast(array: pa.Array, type: pa.DataType) -> pa.Array:
    """Return the values as another type, with null for a value that the type cannot hold, such as 1.5 for int64."""
    if array.type == type:
        return array
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())  # Arrow casts float16 only to float32
    if pa.types.is_decimal(array.type) != pa.types.is_decimal(type):
        array = array.cast(pa.float64(), safe=False)  # Arrow cannot cast integers to decimals with few digits
    if pa.types.is_floating(type) and pa.types.is_floating(array.type):
        nearest = array.cast(pa.float32()).cast(type) if pa.types.is_float16(type) else array.cast(type)
        too_large = np.isinf(floats(nearest)) & np.isfinite(floats(array))
        return pc.if_else(pa.array(too_large), pa.scalar(None, type), nearest)
    try:
        cast = array.cast(type, safe=False)
        same = pc.equal(cast.cast(array.type, safe=False), array)
    except pa.ArrowInvalid:
        return pa.nulls(len(array), type)
    return pc.if_else(same, cast, pa.scalar(None, type))


def shown(values: pa.Array) -> list[str]:
    """Return values as messages print them: words in quotes, dates and decimals as in a table."""
    if is_date(values.type):
        return [str(text) for text in values.cast(pa.string()).to_pylist()]
    return [str(value) if pa.types.is_decimal(values.type) else repr(value) for value in values.to_pylist()]


def family(type: pa.DataType) -> str:
    """Return the family of a type: text, number, date, or the type itself.

    A column of a new table may have another type of the same family than the fitted column.
    """
    if is_text(type):
        return "text"
    if is_number(type):
        return "number"
    return "date" if is_date(type) else str(type)


# --- conversions between types ---


def plain_text(array: pa.Array) -> pa.Array:
    """Return text of any Arrow type as plain strings."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(pa.string())


def floats(array: pa.Array) -> Floats:
    """Return numbers of any type as float64. float16 passes through float32: Arrow has no direct cast."""
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    result: Floats = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return result


def amounts(array: pa.Array) -> Floats:
    """Return numbers as float64, and dates in microseconds; NaN for a missing value."""
    if is_date(array.type):
        unit = pa.timestamp("us", getattr(array.type, "tz", None))
        array = array.cast(unit, safe=False).cast(pa.int64())
    return floats(array)


def whole_numbers(array: pa.Array) -> NDArray[np.int64]:
    """Return integers and dates as int64. Raises ArrowInvalid for an unsigned integer beyond int64."""
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    result: NDArray[np.int64] = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return result


def decimal_range(type: pa.DataType) -> tuple[Decimal, Decimal]:
    """Return the smallest and the largest value of a decimal type."""
    most = f"{10**type.precision - 1}e-{type.scale}"
    return Decimal(f"-{most}"), Decimal(most)


def floats_as(values: Floats, type: pa.DataType, decimals: int | None) -> pa.Array:
    """Return floats as a numeric type. A decimal gets ``decimals`` digits after the point, at most its own scale."""
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


def whole_as(values: NDArray[np.int64], type: pa.DataType) -> pa.Array:
    """Return int64 values as a type of numbers or dates."""
    whole = pa.array(values, type=pa.int64())
    if pa.types.is_date32(type):
        return whole.cast(pa.int32()).cast(type)
    if pa.types.is_float16(type):
        return whole.cast(pa.float32()).cast(type)
    if pa.types.is_decimal(type):
        return whole.cast(pa.string()).cast(type)
    return whole.cast(type, safe=False)


def words_as(array: pa.Array, type: pa.DataType) -> pa.Array:
    """Return plain values cast to the type, which may be a dictionary type."""
    return (array.dictionary_encode() if pa.types.is_dictionary(type) else array).cast(type)


# --- text ---

# Each ladder lists types from narrow to wide: text that fits a type also fits the wider ones. Other text is words.
NUMBERS = (pa.int64(), pa.float64())
DATES = (pa.date32(), *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")))
ZONED = tuple(pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us", "ns"))
LADDERS = [(pa.bool_(),), NUMBERS, DATES, ZONED]

TRUTH = r"(?i)^(true|false)$"
# Text that is not taken for a number: 007 is a code, and 0x1F is a word.
NOT_DECIMAL = r"^[+-]?0[0-9xX]"
# Integers with so many digits that float64 cannot distinguish all of them.
LONG_WHOLE = r"^[+-]?[0-9]{17,}$"


def narrowest(text: pa.Array, before: pa.DataType) -> pa.DataType:
    """Return the narrowest type that fits a column of text.

    ``before`` is the type of the column's earlier rows: null if none of them had a value.
    """
    text = text.drop_null()
    if not len(text):
        return before
    ladders = LADDERS
    if before != pa.null():
        ladders = [ladder[ladder.index(before) :] for ladder in LADDERS if before in ladder]
    return next((type for ladder in ladders for type in ladder if fits(text, type)), pa.string())


def wider(type: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the wider one of two types of a ladder; ``type`` if no ladder has both.

    >>> wider(pa.int64(), pa.float64()), wider(pa.float64(), pa.int64()), wider(pa.string(), pa.int64())
    (DataType(double), DataType(double), DataType(string))
    """
    return next((max(type, other, key=each.index) for each in LADDERS if type in each and other in each), type)


def fits(text: pa.Array, type: pa.DataType) -> bool:
    """Return whether every text parses as a value of the type."""
    if pa.types.is_boolean(type):
        return bool(pc.all(pc.match_substring_regex(text, TRUTH)).as_py())
    if type in NUMBERS and pc.any(pc.match_substring_regex(text, NOT_DECIMAL)).as_py():
        return False
    try:
        read_text(text, type)
    except pa.ArrowInvalid:
        return False
    return type != pa.float64() or not _become_equal(text)


def _become_equal(text: pa.Array) -> bool:
    """Return whether different integers, such as identifiers of 25 digits, become equal in float64."""
    long = pc.unique(text.filter(pc.match_substring_regex(text, LONG_WHOLE)))
    return len(pc.unique(read_text(long, pa.float64()))) < len(long)


def read_text(text: pa.Array, type: pa.DataType) -> pa.Array:
    """Return text parsed as values of the type. Raises ArrowInvalid for text that does not parse."""
    if type in NUMBERS:
        text = pc.replace_substring_regex(text, r"^\+", "")
    return pc.cast(text, type)
