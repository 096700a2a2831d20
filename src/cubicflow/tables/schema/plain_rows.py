"""Rows of a table as plain numbers, and plain numbers as rows.

The plain number of a value is a code for a step or a word, and the value itself for a real number. It is NaN for a
missing value, and inf for a value that the column cannot hold, such as an unseen word.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.read.file_checks import changed
from cubicflow.tables.read.table import Table
from cubicflow.tables.schema import Schema
from cubicflow.tables.schema.split import PARTS, Split
from cubicflow.tables.schema.usable_rows import Missing, pieces
from cubicflow.tables.table_error import TableError, some

MOST_IN_MEMORY = 1 << 27  # numbers; one gibibyte


class Numbers(NamedTuple):
    """Rows as plain numbers: ``y`` (N, D), and ``context`` (N, C) and ``weights`` (N,), or None."""

    y: Floats
    context: Floats | None
    weights: Floats | None


class PlainRows:
    """The conversion between rows of a table with this schema and plain numbers.

    >>> from cubicflow.tables import infer
    >>> from cubicflow.tables.read.table import in_memory
    >>> rows = PlainRows(infer(in_memory(pa.table({"word": ["a", "b"] * 20, "size": range(40)}))).schema)
    >>> rows.read(pa.RecordBatch.from_pydict({"word": ["b", "c"], "size": [7, None]})).y.tolist()
    [[1.0, 7.0], [inf, nan]]
    >>> rows.decode(np.array([[1.0, 7.0]])).to_pylist()
    [{'word': 'b', 'size': 7}]
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.columns = schema.model
        self.features = len(self.columns)

    def numbers_of(self, column: Column, array: pa.Array) -> Floats:
        """Return the plain numbers of a column's values."""
        return plain_numbers(column, array)

    def read(self, batch: pa.RecordBatch, *, weights: bool = False) -> Numbers:
        """Return a batch as plain numbers. Raises TableError for wrong constants and for missing or negative
        weights."""
        for column in self.schema.of_role("constant"):
            column.encode(_present(batch.column(column.name))[0])  # raises for any value but the constant
        y = np.column_stack([self.numbers_of(column, batch.column(column.name)) for column in self.columns])
        context = self.read_context(batch) if self.schema.context else None
        found = None
        if weights and (weights_column := self.schema.weights) is not None:
            array = batch.column(weights_column.name)
            if array.null_count:
                raise TableError(
                    f"column {weights_column.name!r} lacks {array.null_count} weights; every row needs one"
                )
            found = weights_column.needed_map.forward(weights_column.encode(array))[0]
            if (found < 0).any():
                least = float(weights_column.needed_map.inverse(found.min()))
                raise TableError(
                    f"column {weights_column.name!r} holds negative weights, such as {least:g}; weights must be 0 or "
                    "more"
                )
        return Numbers(y, context, found)

    def split(self, numbers: Floats) -> Numbers:
        """Split plain numbers (N, D + C + weight) into y, context and weights."""
        ends = self.features, self.features + len(self.schema.context)
        y, context, weights = np.split(np.asarray(numbers), ends, axis=1)
        return Numbers(y, context if self.schema.context else None, weights[:, 0] if weights.shape[1] else None)

    def read_context(self, batch: pa.RecordBatch) -> Floats:
        """Return the plain numbers (N, C) of the context columns. The batch may lack other columns."""
        return np.column_stack([self.numbers_of(c, batch.column(c.name)) for c in self.schema.context])

    def decode(self, y: Floats, given: Mapping[str, pa.Array] | None = None) -> pa.RecordBatch:
        """Return plain numbers (N, D) as rows with the table's own columns. ``given`` holds the context columns."""
        own = {column.name: with_gaps(column, y[:, i]) for i, column in enumerate(self.columns)}
        return table_rows(self.schema, {**(given or {}), **own}, len(y))

    def context_from(self, given: Mapping[str, object], rows: int) -> tuple[Floats | None, dict[str, pa.Array]]:
        """Return the context's plain numbers, and the context columns, of rows that share the values in ``given``.

        The numbers are None for a schema without context.
        """
        wanted = check_given(self.schema, given)
        if not wanted:
            return None, {}
        text = pa.RecordBatch.from_pydict({name: [str(given[name])] for name in wanted})
        numbers = np.column_stack([column.encode(text.column(column.name)) for column in self.schema.context])
        each = pa.array(np.zeros(rows, dtype=np.int64))
        arrays = {column.name: column.given(text.column(column.name)).take(each) for column in self.schema.context}
        return np.repeat(numbers, rows, axis=0), arrays


def plain_numbers(column: Column, array: pa.Array) -> Floats:
    """Return the plain number of every value of a column."""
    values, present = _present(array)
    y = np.full(len(array), np.nan)
    y[present] = column.encode_any(values)
    return y


def with_gaps(column: Column, y: Floats) -> pa.Array:
    """Return plain numbers as values of the column, with null for NaN."""
    gaps = np.isnan(y)
    if not gaps.any():
        return column.decode(y)
    values = column.decode(np.where(gaps, y[~gaps][0] if (~gaps).any() else 0.0, y))
    return pc.if_else(pa.array(gaps), pa.scalar(None, values.type), values)


def table_rows(schema: Schema, arrays: Mapping[str, pa.Array], rows: int) -> pa.RecordBatch:
    """Return columns as a batch in the table's own order, with the constant columns of the schema added."""
    every = {**arrays, **{c.name: c.decode(np.zeros(rows)) for c in schema.of_role("constant")}}
    names = [column.name for column in schema.columns if column.name in every]
    return pa.RecordBatch.from_arrays([every[name] for name in names], names=names)


def check_given(schema: Schema, given: Mapping[str, object]) -> list[str]:
    """Return the names of the context columns. Raises TableError unless ``given`` has exactly these names."""
    wanted = [column.name for column in schema.context]
    if missing := [name for name in wanted if name not in given]:
        raise TableError(f"the model is conditional: give a value for {some(missing)}", given={missing[0]: ...})
    if extra := [name for name in given if name not in wanted]:
        known = f"of its context columns {some(wanted)} only" if wanted else "of context columns only, and has none"
        raise TableError(
            f"{some(extra)} cannot be given: a flow takes values {known}; for conditions on any column, fit a model of "
            "columns",
            model="columns",
        )
    return wanted


def _present(array: pa.Array) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Return the values of an array that are not missing, and a mask of their places."""
    missing = pc.is_null(array, nan_is_null=True).to_numpy(zero_copy_only=False)
    return (array if not missing.any() else array.filter(pa.array(~missing))), ~missing


def load_numbers(
    table: Table, schema: Schema, split: Split, missing: Missing | str, rows: int, folder: Path | None = None
) -> tuple[NDArray[np.float64], list[NDArray[np.int64]]]:
    """Return the plain numbers (rows, D + C + weight) of a table, and the row numbers of each part.

    The numbers are in memory or, if there are many, in a temporary file in ``folder``. The file has no name. The system
    deletes it when the process ends, even by a crash.
    """
    reader, columns = PlainRows(schema), schema.check(table, weights=True)
    shape = rows, len(schema.model) + len(schema.context) + (schema.weights is not None)
    if math.prod(shape) <= MOST_IN_MEMORY:
        numbers: NDArray[np.float64] = np.empty(shape)
    else:
        with tempfile.TemporaryFile(dir=folder) as file:
            numbers = np.memmap(file, np.float64, "w+", shape=shape)
    labels = np.empty(rows, dtype=np.int8)
    filled = stop = 0
    for piece in pieces(table, columns, missing):
        stop = filled + len(piece.numbers)
        if stop > rows:
            break
        read = reader.read(piece.batch, weights=True)
        numbers[filled:stop] = np.column_stack([part for part in read if part is not None])
        labels[filled:stop] = split.parts_of(piece.numbers)
        filled = stop
    if stop != rows:
        raise changed(table.name, rows, stop)
    return numbers, [np.flatnonzero(labels == i) for i in range(len(PARTS))]
