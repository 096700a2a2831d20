"""Tables that are in memory already: frames of any library that speaks Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from cubicflow.tables.source import BATCH_ROWS, Table, check_names


class MemoryTable(Table):
    """An arrow table. ``name`` is what messages call it.

    >>> MemoryTable(pa.table({"a": [1, 2]})).names
    ['a']
    """

    def __init__(self, rows: pa.Table, name: str = "the frame") -> None:
        check_names(Path(name), rows.column_names)
        super().__init__(Path(name), dict(zip(rows.column_names, rows.schema.types, strict=True)))
        self._rows = rows

    def batches(self, columns: Sequence[str] | None = None, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        wanted = self._rows if columns is None else self._rows.select(list(columns))
        yield from wanted.combine_chunks().to_batches(max_chunksize=rows)

    @property
    def files(self) -> list[Path]:
        return []
