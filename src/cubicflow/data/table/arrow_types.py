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
        *(pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string()),
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


def without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same words as plain strings. Some libraries keep text as views, from which Arrow cannot take rows yet."""
    schema = schema_without_views(batch.schema)
    columns = [_plain(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def schema_without_views(schema: pa.Schema) -> pa.Schema:
    """The schema of what :func:`without_views` makes."""
    return pa.schema([(name, _plain_type(type)) for name, type in zip(schema.names, schema.types, strict=True)])


def _plain_type(type: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(type):
        return pa.dictionary(type.index_type, _plain_type(type.value_type), type.ordered)
    return pa.large_string() if pa.types.is_string_view(type) else type


def _plain(column: pa.Array) -> pa.Array:
    if column.type == _plain_type(column.type):
        return column
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(column.indices, _plain(column.dictionary), ordered=column.type.ordered)
    return column.cast(pa.large_string())


def is_text(type: pa.DataType) -> bool:
    """Strings, and dictionaries of strings."""
    if pa.types.is_dictionary(type):
        type = type.value_type
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


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
