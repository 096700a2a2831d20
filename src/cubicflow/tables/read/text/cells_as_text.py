"""Cells of a spreadsheet or of SQLite as text: the cells of a column may have different types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from itertools import islice

import pyarrow as pa

from cubicflow.tables.read.table import BATCH_ROWS, spool
from cubicflow.tables.read.text.csv_file import MISSING

MISSING_TEXTS = frozenset(MISSING)


def as_text_rows(table: object, names: Sequence[str], rows: Iterable[Sequence[object]]) -> pa.Table:
    """Return rows of cells as columns of strings, in memory or in a temporary file. ``table`` is a name for errors."""
    schema = pa.schema(dict.fromkeys(names, pa.string()))

    def batches() -> Iterator[pa.RecordBatch]:
        remaining = iter(rows)
        while pending := list(islice(remaining, BATCH_ROWS)):
            columns = ([as_text(cell) for cell in column] for column in zip(*pending, strict=True))
            yield pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in columns], schema=schema)

    return spool(table, batches(), schema)


def as_text(cell: object) -> str | None:
    """Return a cell as a CSV file would hold it; None for a missing value.

    >>> [as_text(cell) for cell in (True, 0.1, datetime(2024, 12, 31), " a ", "NA", None)]
    ['true', '0.1', '2024-12-31', 'a', None, None]
    """
    if cell is None:
        return None
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, datetime):
        is_day = (cell.hour, cell.minute, cell.second, cell.microsecond, cell.tzinfo) == (0, 0, 0, 0, None)
        return cell.date().isoformat() if is_day else cell.isoformat(" ")
    if isinstance(cell, date):
        return cell.isoformat()
    text = (repr(cell) if isinstance(cell, float) else str(cell)).strip()
    return None if text in MISSING_TEXTS else text
