"""A table as a stream of complete rows that know their numbers; rows that lack a value are dropped or refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cubicflow.tables.errors import TableError
from cubicflow.tables.options import Missing
from cubicflow.tables.source import BATCH_ROWS, Table


@dataclass(frozen=True)
class Piece:
    """Some complete rows: ``batch``, their ``numbers`` in the table from 0, and how many rows were read for them."""

    batch: pa.RecordBatch
    numbers: NDArray[np.int64]
    read: int


def pieces(table: Table, columns: Sequence[str], missing: Missing = "error", rows: int = BATCH_ROWS) -> Iterator[Piece]:
    """The named columns of all complete rows.

    With missing="error" the first gap ends the stream: the rest of the table is read to count the gaps, and an error
    says how many there are in which columns.
    """
    start = 0
    batches = table.batches(columns, rows)
    for batch in batches:
        gaps = [_gaps(batch.column(name)) for name in columns]
        numbers = np.arange(start, start + len(batch))
        start += len(batch)
        if any(gap.any() for gap in gaps):
            if missing == "error":
                raise _incomplete(table, columns, gaps, batches)
            whole = ~np.logical_or.reduce(gaps)
            yield Piece(batch.filter(pa.array(whole)), numbers[whole], len(batch))
        else:
            yield Piece(batch, numbers, len(batch))


def _gaps(column: pa.Array) -> NDArray[np.bool_]:
    result: NDArray[np.bool_] = pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False)
    return result


def _incomplete(
    table: Table, columns: Sequence[str], first: list[NDArray[np.bool_]], rest: Iterator[pa.RecordBatch]
) -> TableError:
    totals = np.array([gap.sum() for gap in first])
    rows = int(np.logical_or.reduce(first).sum())
    for batch in rest:
        gaps = [_gaps(batch.column(name)) for name in columns]
        totals += [gap.sum() for gap in gaps]
        rows += int(np.logical_or.reduce(gaps).sum())
    listed = ", ".join(f"{name!r} ({count})" for name, count in zip(columns, totals.tolist(), strict=True) if count)
    lack = "rows lack" if rows > 1 else "row lacks"
    return TableError(f"{table.path}: {rows} {lack} a value, in {listed}; leave such rows out", "--missing drop")
