"""Conversion of arrays and frames to tables with a schema, and of samples back to frames of the same library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cubicflow.advice import message_of
from cubicflow.estimator.weighted_rows import merged_duplicates
from cubicflow.tables import (
    FEWEST_ROWS,
    Inferred,
    Missing,
    Schema,
    TableError,
    TableOptions,
    Undivided,
    infer,
    real_schema,
)
from cubicflow.tables.model import FlowEncoder, Numbers, PlainRows
from cubicflow.tables.read import in_memory, is_readable, without_views
from cubicflow.weights import Floats

WEIGHTS = "sample_weight of fit"


def is_frame(data: Any) -> bool:
    """Return whether the data have columns whose names are text. Other frames are treated as arrays."""
    return hasattr(data, "columns") and all(isinstance(name, str) for name in names(data))


def names(frame: Any) -> list[Any]:
    """Return the names of a frame's columns."""
    return list(frame.column_names if isinstance(frame, pa.Table) else frame.columns)


def arrow_table(frame: Any) -> pa.Table:
    """Return a frame as an arrow table, without the index of pandas."""
    if type(frame).__module__.partition(".")[0] == "pandas":
        rows = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    else:
        rows = frame if isinstance(frame, pa.Table) else pa.table(frame)
    return rows.cast(without_views(rows.schema))


def without_gaps(rows: pa.Table) -> pa.Table:
    """Return the table; raise ValueError if values are missing."""
    gaps = {
        name: pc.sum(pc.is_null(column, nan_is_null=True)).as_py() or 0
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    }
    if any(gaps.values()):
        listed = ", ".join(f"{name!r} ({count})" for name, count in gaps.items() if count)
        raise ValueError(
            f"Input X contains NaN or lacks values, in {listed}; remove these rows or fill the values first"
        )
    return rows


def empty_like(frame: Any) -> Any:
    """Return the frame without its rows, as a template for samples."""
    return frame.slice(0, 0) if isinstance(frame, pa.Table) else frame.head(0)


def in_form_of(template: Any, rows: pa.Table) -> Any:
    """Return rows as a frame with the library, columns and types of the template."""
    if isinstance(template, pa.Table):
        return rows.cast(template.schema)
    if type(template).__module__.partition(".")[0] == "pandas":
        return rows.to_pandas()[list(template.columns)].astype(template.dtypes.to_dict())
    columns = {name: rows.column(name) for name in template.columns}
    return type(template)(columns).cast(dict(template.schema))


def array_table(x: Floats, prefix: str) -> pa.Table:
    """Return the columns of a matrix as a table, named by ``prefix`` and a number: x0, x1, ..."""
    return pa.table({f"{prefix}{i}": np.ascontiguousarray(x[:, i]) for i in range(x.shape[1])})


def learn_real(rows: pa.Table, weights: Floats, context: tuple[str, ...]) -> Schema:
    """Return a schema in which all columns are real."""
    found, counts = merged_duplicates(np.stack([column.to_numpy() for column in rows.columns], axis=1), weights)
    return real_schema(rows.column_names, found, counts, context)


@contextmanager
def without_arguments() -> Iterator[None]:
    """Shorten the messages of tables inside the block: an estimator does not have their arguments."""
    try:
        yield
    except TableError as error:
        raise TableError(message_of(error)) from None


@without_arguments()
def infer_typed(
    rows: pa.Table, weights: Floats, context: tuple[str, ...], kinds: Mapping[str, str], missing: Missing
) -> Inferred:
    """Infer the kinds of the columns that are not in ``kinds``, as the command line does.

    The schema has no column of weights.
    """
    if len(rows) < FEWEST_ROWS:
        raise ValueError(
            f"n_samples={len(rows)}: to infer the kinds of columns, a frame, or an array with kinds, needs at least "
            f"{FEWEST_ROWS} rows with a weight; give more rows, or an array of real numbers without kinds"
        )
    constant = [name for name in context if _is_constant(rows.column(name))]
    weighing = len(np.unique(weights)) > 1
    if weighing:
        rows = rows.append_column(WEIGHTS, pa.array(weights))
    options = TableOptions(
        kinds=dict(kinds),
        context=tuple(name for name in context if name not in constant),
        weights=WEIGHTS if weighing else None,
        drop=tuple(constant),
        missing=missing,
    )
    found = infer(in_memory(rows.combine_chunks()), options, Undivided())
    return replace(found, schema=Schema(tuple(c for c in found.schema.columns if c.role != "weights")))


def _is_constant(column: pa.ChunkedArray) -> bool:
    return is_readable(column.type) and len(pc.unique(column)) == 1


@without_arguments()
def read(encoder: PlainRows, rows: pa.Table, name: str = "the frame") -> Numbers:
    """Return the rows as plain numbers. Raises TableError with the differences if the columns do not fit the schema."""
    return encoder.read(_only_batch(encoder.schema, rows, name))


@without_arguments()
def read_context(encoder: FlowEncoder, rows: pa.Table) -> Floats:
    """Return the features (N, C) of the context of rows that lack the modelled columns."""
    given = Schema(tuple(column for column in encoder.schema.columns if column.role in ("context", "dropped")))
    features = encoder.context_inputs(encoder.read_context(_only_batch(given, rows, "X")))
    if features is None:
        raise TypeError("the model has no context")
    return features


def _only_batch(schema: Schema, rows: pa.Table, name: str) -> pa.RecordBatch:
    table = in_memory(rows.combine_chunks(), name)
    batch = next(table.batches(schema.check(table), rows=max(len(rows), 1)), None)
    if batch is None:
        raise TableError(f"{name}: there are no rows; give at least one")
    return batch
