"""Rows of a spreadsheet or of SQLite, read once as text: the cells of a column may have different types."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from cubicflow.tables.arrow_types import narrowest
from cubicflow.tables.csv_file import MISSING, SpooledTable
from cubicflow.tables.source import BATCH_ROWS, MemoryTable, Table

MISSING_TEXTS = frozenset(MISSING)


class TextRows(MemoryTable):
    """Columns of strings. Their types are inferred from all rows, as in a CSV file."""

    is_text = True

    def __init__(self, rows: pa.Table, name: str, fingerprint: str, source: str | None) -> None:
        super().__init__(rows, name)
        self._fingerprint, self._source = fingerprint, source

    def source(self) -> str | None:
        return self._source

    def spooled(self, columns: Sequence[str], folder: Path | None = None) -> Table:  # noqa: ARG002 - already spooled
        types = dict.fromkeys(columns, pa.null())
        for batch in self.batches(columns):
            for name, type in types.items():
                types[name] = narrowest(batch.column(name), type)
        return SpooledTable(self, self._rows.select(list(columns)), types)


def text_batches(names: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[pa.RecordBatch]:
    """Yield batches of strings from rows of cells. The last batch may be empty, so there is at least one."""
    schema = pa.schema(dict.fromkeys(names, pa.string()))
    pending: list[Sequence[object]] = []

    def batch() -> pa.RecordBatch:
        columns = zip(*pending, strict=True) if pending else [()] * len(names)
        arrays = [pa.array([as_text(cell) for cell in column], pa.string()) for column in columns]
        pending.clear()
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    for row in rows:
        pending.append(row)
        if len(pending) == BATCH_ROWS:
            yield batch()
    yield batch()


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


class RowsDigest:
    """A hash of rows that does not depend on how the rows are split into batches."""

    def __init__(self) -> None:
        self._columns: dict[str, Any] = {}

    def see(self, batch: pa.RecordBatch) -> None:
        for name, type, column in zip(batch.schema.names, batch.schema.types, batch.columns, strict=True):
            digest = self._columns.setdefault(name, hashlib.sha256(f"{name}\0{type}\0".encode()))
            if pa.types.is_nested(type):  # nested columns are never modelled
                digest.update(str(len(column)).encode())
                continue
            if pa.types.is_dictionary(type):
                column = column.dictionary_decode()
            texts = column.cast(pa.large_string()).to_pylist() if not pa.types.is_binary(type) else column.to_pylist()
            digest.update("".join("\1" if text is None else f"{text}\0" for text in texts).encode("utf-8", "replace"))

    def result(self) -> str:
        return hashlib.sha256("".join(digest.hexdigest() for digest in self._columns.values()).encode()).hexdigest()
