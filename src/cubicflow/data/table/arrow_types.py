"""Arrow types by name, as a schema in JSON keeps them."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from cubicflow.data.table.errors import TableError

PLAIN = {
    str(type): type
    for type in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.string_view()),
        *(pa.date32(), pa.date64()),
        *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    )
}
WORDS = pa.dictionary(pa.int32(), pa.string())  # what pandas calls a categorical


def type_name(type: pa.DataType) -> str:
    """The name of a type that a column of a table may have."""
    return "words" if pa.types.is_dictionary(type) else str(type)


def type_of(name: str) -> pa.DataType:
    """The inverse of :func:`type_name`."""
    if name == "words":
        return WORDS
    if name in PLAIN:
        return PLAIN[name]
    if match := re.fullmatch(r"timestamp\[(s|ms|us|ns), tz=([\w/+:-]{1,64})\]", name):
        return pa.timestamp(match[1], match[2])
    if (match := re.fullmatch(r"decimal128\((\d{1,2}), (\d{1,2})\)", name)) and 1 <= int(match[1]) <= 38:
        return pa.decimal128(int(match[1]), int(match[2]))
    raise TableError(f"{name!r} is not the type of a column that cubicflow reads")


def is_text(type: pa.DataType) -> bool:
    """Strings, and dictionaries of strings."""
    if pa.types.is_dictionary(type):
        type = type.value_type
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type))


def is_number(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type))


def is_date(type: pa.DataType) -> bool:
    return bool(pa.types.is_date(type) or pa.types.is_timestamp(type))


def is_readable(type: pa.DataType) -> bool:
    """Whether a column of the type can be modelled at all."""
    return is_text(type) or is_number(type) or is_date(type) or bool(pa.types.is_boolean(type))


def epsilon_of(type: pa.DataType) -> float:
    """The relative spacing of the floating-point numbers that a column's values are kept in."""
    name = {pa.float16(): "float16", pa.float32(): "float32"}.get(type, "float64")
    return float(np.finfo(name).eps)
