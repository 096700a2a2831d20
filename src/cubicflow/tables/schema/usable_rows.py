"""The rows of a table that are used: rows that lack a value are refused, dropped, or kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cubicflow.tables.read.table import Table
from cubicflow.tables.table_error import TableError, some

COMPLETE = "fit a model of columns, or leave such rows out"  # advice for rows that lack a value


class Missing(StrEnum):
    """The handling of rows that lack a value: ``error`` refuses the table, ``drop`` leaves those rows out, and
    ``model`` models missing values as values.

    >>> Missing("drop")
    <Missing.DROP: 'drop'>
    """

    ERROR = "error"
    DROP = "drop"
    MODEL = "model"

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise TableError(f"missing should be one of {', '.join(cls)}, got {value!r}")


@dataclass(frozen=True)
class Piece:
    """A batch of rows to use, after rows that lack a value are handled.

    Attributes:
        batch: the rows.
        numbers: their row numbers in the table, from 0.
        read: the number of rows read for this piece, including dropped ones.
        gaps: the number of missing values among the rows read.
    """

    batch: pa.RecordBatch
    numbers: NDArray[np.int64]
    read: int
    gaps: int = 0


def pieces(table: Table, columns: Sequence[str], missing: Missing | str = Missing.ERROR) -> Iterator[Piece]:
    """Yield the named columns piece by piece. Rows that lack a value are dropped, refused or kept, as ``missing`` says.

    With Missing.ERROR, the first missing value ends the stream. The rest of the table is read to count missing values,
    and TableError names the columns that have them.
    """
    start, missing = 0, Missing(missing)
    batches = table.batches(columns)
    for batch in batches:
        gaps = _gaps(batch)
        numbers = np.arange(start, start + len(batch))
        start += len(batch)
        if missing is Missing.MODEL or not gaps.any():
            yield Piece(batch, numbers, len(batch), int(gaps.sum()))
            continue
        if missing is Missing.ERROR:
            raise _incomplete(table, columns, start - len(batch), gaps, batches)
        whole = ~gaps.any(axis=0)
        yield Piece(batch.filter(pa.array(whole)), numbers[whole], len(batch), int(gaps.sum()))


def _gaps(batch: pa.RecordBatch) -> NDArray[np.bool_]:
    """Return a mask (columns, rows) of missing values."""
    return np.stack([pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False) for column in batch.columns])


def _incomplete(
    table: Table, columns: Sequence[str], before: int, first: NDArray[np.bool_], rest: Iterator[pa.RecordBatch]
) -> TableError:
    """Return the error for a table with missing values, the first of which comes after ``before`` complete rows."""
    totals, rows, read = np.zeros(len(columns), dtype=np.int64), 0, before
    for gaps in chain([first], map(_gaps, rest)):
        totals += gaps.sum(axis=1)
        rows += int(gaps.any(axis=0).sum())
        read += gaps.shape[1]
    empty = [name for name, count in zip(columns, totals.tolist(), strict=True) if count == read]
    if read == 1:
        return TableError(f"{table.name}: row 1 lacks a value, in {some(empty)}; {COMPLETE}", missing="drop")
    if empty:
        return without_values(empty).about(table.name)
    found = ", ".join(f"{name!r} ({count})" for name, count in zip(columns, totals.tolist(), strict=True) if count)
    if rows == read:
        worst = columns[int(totals.argmax())]
        return TableError(
            f"{table.name}: every row lacks a value, in {found}; leave out the emptiest column, {worst!r}",
            drop=[worst],
        )
    lack = "rows lack" if rows > 1 else "row lacks"
    return TableError(f"{table.name}: {rows} {lack} a value, in {found}; {COMPLETE}", missing="drop")


def without_values(columns: Sequence[str]) -> TableError:
    """Return the error for columns without any value."""
    return TableError(f"column {some(columns)} has no values at all; leave it out", drop=list(columns))
