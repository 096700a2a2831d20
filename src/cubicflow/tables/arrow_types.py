"""Arrow types by name, as a schema in JSON keeps them."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cubicflow.tables.errors import TableError

PLAIN = {
    str(type): type
    for type in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string()),
        *(pa.date32(), pa.date64()),
        *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    )
}
DECIMALS = {  # by their bits, and the most digits that these hold
    "32": (pa.decimal32, 9),
    "64": (pa.decimal64, 18),
    "128": (pa.decimal128, 38),
    "256": (pa.decimal256, 76),
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
    if match := re.fullmatch(r"decimal(32|64|128|256)\((\d{1,2}), (\d{1,2})\)", name):
        make, most = DECIMALS[match[1]]
        if 1 <= int(match[2]) <= most:
            return make(int(match[2]), int(match[3]))
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
    if pa.types.is_decimal(type) and type.scale < 0:
        return False
    return is_text(type) or is_number(type) or is_date(type) or bool(pa.types.is_boolean(type))


def epsilon_of(type: pa.DataType) -> float:
    """The relative spacing of the floating-point numbers that a column's values are kept in."""
    name = {pa.float16(): "float16", pa.float32(): "float32"}.get(type, "float64")
    return float(np.finfo(name).eps)


def exact_cast(array: pa.Array, type: pa.DataType) -> pa.Array:
    """The values as another type, and null for each that is none of its values: 1.5 is no whole number."""
    if array.type == type:
        return array
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())  # the only way arrow knows
    if pa.types.is_decimal(array.type) != pa.types.is_decimal(type):
        array = array.cast(pa.float64(), safe=False)  # arrow finds no room for whole numbers in short decimals
    if pa.types.is_floating(type) and pa.types.is_floating(array.type):
        nearest = array.cast(pa.float32()).cast(type) if pa.types.is_float16(type) else array.cast(type)
        wide = nearest.cast(pa.float32()) if pa.types.is_float16(type) else nearest
        too_large = pc.and_(pc.is_inf(wide), pc.is_finite(array))
        return pc.if_else(too_large, pa.scalar(None, type), nearest)
    try:
        cast = array.cast(type, safe=False)
        same = pc.equal(cast.cast(array.type, safe=False), array)
    except pa.ArrowInvalid:
        return pa.nulls(len(array), type)
    return pc.if_else(same, cast, pa.scalar(None, type))


def shown(values: pa.Array) -> list[str]:
    """Values as messages write them: words in quotes, dates and decimals as in a table."""
    if is_date(values.type):
        return [str(text) for text in values.cast(pa.string()).to_pylist()]
    return [str(value) if pa.types.is_decimal(values.type) else repr(value) for value in values.to_pylist()]
