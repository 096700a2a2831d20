"""The table that a model was fitted to, opened again, and some of its rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.advice import message_of
from cubicflow.tables.fitted import FittedTable
from cubicflow.tables.read.places import is_path, open_table
from cubicflow.tables.read.table import Table
from cubicflow.tables.read.text.reading import Reading
from cubicflow.tables.schema.split import RowSample
from cubicflow.tables.schema.usable_rows import pieces
from cubicflow.tables.table_error import TableError

ROW = "\0row"  # name of a temporary column


def fitted_file(fitted: FittedTable, reading: Reading | None = None) -> Table:
    """Return the table that a model was fitted to. Raises TableError with the reason if it is not there, or is another
    one.
    """
    if not is_path(fitted.source):
        raise TableError("the fitted table came from a query, a URL or a pipe, which is not read again")
    if not Path(fitted.source).exists():
        raise TableError(f"the fitted table {fitted.source} no longer exists")
    try:
        table = open_table(fitted.source, reading or fitted.reading)
        is_source = fitted.is_source(table)
    except (ValueError, OSError) as error:
        raise TableError(f"the fitted table cannot be read: {message_of(error)}") from None
    if not is_source:
        raise TableError(f"the fitted table {fitted.source} has changed since the fit")
    return table


def some_rows(fitted: FittedTable, table: Table, most: int) -> tuple[pa.RecordBatch, NDArray[np.int64]] | None:
    """Return at most ``most`` usable rows of a table, with the fitted columns, and their row numbers; None if no row is
    usable.

    The rows are chosen by a hash of their numbers.
    """
    chosen = RowSample(most)
    for piece in pieces(table, fitted.schema.check(table), fitted.missing):
        chosen.update(piece.batch.append_column(ROW, pa.array(piece.numbers)), piece.numbers)
    rows = chosen.table().combine_chunks()
    if not len(rows):
        return None
    numbers: NDArray[np.int64] = rows.column(ROW).to_numpy()
    return rows.drop_columns([ROW]).to_batches()[0], numbers
