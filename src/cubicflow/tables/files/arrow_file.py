"""Feather files, and files and streams in the Arrow IPC format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from cubicflow.tables.arrow_types import without_views
from cubicflow.tables.source import Table, check_names
from cubicflow.tables.table_error import TableError
from cubicflow.tables.watched_files import WatchedFiles

FILE, OLD_FEATHER = b"ARROW1", b"FEA1"


class ArrowTable(Table):
    """A .feather, .arrow, .ipc or .arrows file. The first bytes, not the name, tell a file from a stream."""

    def __init__(self, path: Path) -> None:
        watched = WatchedFiles(path, lambda: [path])
        with path.open("rb") as file:
            start = file.read(len(FILE))
        if start.startswith(OLD_FEATHER):
            raise TableError(f"{path}: Feather version 1 is not supported; write the table as version 2")
        self._is_stream = start != FILE
        with self._opened(path) as reader:
            schema = without_views(reader.schema)
        check_names(path, schema.names)
        super().__init__(path, dict(zip(schema.names, schema.types, strict=True)), watched)

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        with self._opened(self.path) as reader:
            found = reader if self._is_stream else map(reader.get_batch, range(reader.num_record_batches))
            for batch in found:
                chosen = batch.select(columns)
                chosen.validate(full=True)  # a damaged file can hold offsets outside its buffers
                for start in range(0, len(chosen), rows):
                    part = chosen.slice(start, rows)
                    yield part.cast(without_views(part.schema))

    @contextmanager
    def _opened(self, path: Path) -> Iterator[pa.RecordBatchReader]:
        """Open a reader of the batches. The file is not memory-mapped: the process would crash if the file shrank."""
        try:
            with pa.OSFile(str(path)) as file:
                yield pa.ipc.open_stream(file) if self._is_stream else pa.ipc.open_file(file)
        except (pa.ArrowException, OSError, EOFError) as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise TableError(f"{path}: not a complete Arrow file: {reason}") from None
