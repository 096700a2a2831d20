"""What users pass, arrays and frames of any library, as tables with a schema, and samples back as what they passed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cubicflow.estimator.weighted_rows import Floats, distinct
from cubicflow.tables import Schema, TableEncoder, TableError, TableOptions, infer
from cubicflow.tables.arrow_types import is_readable, without_views
from cubicflow.tables.cell_encoder import PlainReader
from cubicflow.tables.encoder import Numbers
from cubicflow.tables.inference import FEWEST_ROWS, Inferred
from cubicflow.tables.kinds.real import Real
from cubicflow.tables.source import MemoryTable, Missing, Undivided
from cubicflow.tables.table_error import some

WEIGHTS = "sample_weight of fit"


def is_frame(data: Any) -> bool:
    """Whether the data have named and typed columns. Frames whose columns are not named by text count as arrays."""
    return hasattr(data, "columns") and all(isinstance(name, str) for name in names(data))


def names(frame: Any) -> list[Any]:
    """Of a frame's columns."""
    return list(frame.column_names if isinstance(frame, pa.Table) else frame.columns)


def arrow_table(frame: Any) -> pa.Table:
    """A frame's columns, without pandas' index."""
    if type(frame).__module__.partition(".")[0] == "pandas":
        rows = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    else:
        rows = frame if isinstance(frame, pa.Table) else pa.table(frame)
    return rows.cast(without_views(rows.schema))


def without_gaps(rows: pa.Table) -> pa.Table:
    """The table, if no value is missing in it."""
    gaps = {
        name: pc.sum(pc.is_null(column, nan_is_null=True)).as_py() or 0
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    }
    if any(gaps.values()):
        listed = ", ".join(f"{name!r} ({count})" for name, count in gaps.items() if count)
        raise ValueError(f"Input X contains NaN or lacks values, in {listed}; leave such rows out first, or fill them")
    return rows


def empty_like(frame: Any) -> Any:
    """The frame without its rows, kept as a pattern for samples."""
    return frame.slice(0, 0) if isinstance(frame, pa.Table) else frame.head(0)


def like(pattern: Any, rows: pa.Table) -> Any:
    """Rows as a frame with the library, columns and types of the pattern."""
    if isinstance(pattern, pa.Table):
        return rows.cast(pattern.schema)
    if type(pattern).__module__.partition(".")[0] == "pandas":
        return rows.to_pandas()[list(pattern.columns)].astype(pattern.dtypes.to_dict())
    columns = {name: rows.column(name) for name in pattern.columns}
    return type(pattern)(columns).cast(dict(pattern.schema))


def array_table(x: Floats, prefix: str) -> pa.Table:
    """The columns of a matrix, named x0, x1, ..."""
    return pa.table({f"{prefix}{i}": np.ascontiguousarray(x[:, i]) for i in range(x.shape[1])})


def array_kinds(kinds: Mapping[Any, str], x_names: Sequence[str], y_names: Sequence[str] = ()) -> dict[str, str]:
    """What each column of arrays holds: real numbers, unless told by the number of a column of X or by y0, y1, ..."""
    known: dict[Any, str] = {**dict(enumerate(x_names)), **{name: name for name in y_names}}
    if unknown := [key for key in kinds if key not in known]:
        of_y = f", and of y {some(y_names)}" if y_names else ""
        raise ValueError(f"kinds names a column {unknown[0]!r}; the columns of X are {some(range(len(x_names)))}{of_y}")
    return dict.fromkeys([*x_names, *y_names], "real") | {known[key]: kind for key, kind in kinds.items()}


def learn_real(rows: pa.Table, weights: Floats, context: tuple[str, ...]) -> Schema:
    """The schema of a table all of whose columns are taken as real, whatever they hold."""
    found, counts = distinct(np.stack([column.to_numpy() for column in rows.columns], axis=1), weights)
    columns = []
    for i, name in enumerate(rows.column_names):
        values = found[:, i]
        column = Real(name, "double", "context" if name in context else "model")
        shape, _ = column.shape(values.min(), values.max(), values)
        shaped = shape.shaped(values)[0]
        mean = float(np.average(shaped, weights=counts))
        std = float(np.sqrt(np.average(np.square(shaped - mean), weights=counts)))
        varies = values.min() < values.max()  # the mean of equal values is rounded, so their std may not be 0
        columns.append(replace(column, map=replace(shape, mean=mean, std=std if varies and std else 1.0)))
    return Schema(tuple(columns))


def learn_typed(rows: pa.Table, weights: Floats, context: tuple[str, ...], kinds: Mapping[str, str]) -> Schema:
    """The schema of a table whose columns are typed as the command line types them, unless told."""
    return infer_typed(rows, weights, context, kinds, Missing.ERROR).schema


def infer_typed(
    rows: pa.Table, weights: Floats, context: tuple[str, ...], kinds: Mapping[str, str], missing: Missing
) -> Inferred:
    """The same, with all that was seen on the way. The schema has no column of weights."""
    if len(rows) < FEWEST_ROWS:
        raise ValueError(
            f"n_samples={len(rows)}: to tell what its columns hold, a frame, or an array with kinds, needs at least "
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
    found = infer(MemoryTable(rows.combine_chunks()), options, Undivided(), atoms=missing is Missing.MODEL)
    return replace(found, schema=Schema(tuple(c for c in found.schema.columns if c.role != "weights")))


def _is_constant(column: pa.ChunkedArray) -> bool:
    return is_readable(column.type) and len(pc.unique(column)) == 1


def read(encoder: TableEncoder | PlainReader, rows: pa.Table, name: str = "the frame") -> Numbers:
    """The rows as plain numbers. A table that is not like the fitted one is refused, the difference spelled out."""
    return encoder.read(_only_batch(encoder.schema, rows, name))


def read_context(encoder: TableEncoder, rows: pa.Table) -> Floats:
    """What a conditional density is given, (N, C), of rows without the columns that are modelled."""
    given = Schema(tuple(column for column in encoder.schema.columns if column.role in ("context", "dropped")))
    return encoder.read_context(_only_batch(given, rows, "X"))


def _only_batch(schema: Schema, rows: pa.Table, name: str) -> pa.RecordBatch:
    table = MemoryTable(rows.combine_chunks(), name)
    batch = next(table.batches(schema.check(table), rows=max(len(rows), 1)), None)
    if batch is None:
        raise TableError(f"{name}: there are no rows")
    return batch
