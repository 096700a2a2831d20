"""Readers of columnar files: Parquet files, folders of them, Feather files, and files and streams of Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from cubicflow.data.parquet_files import announced_bytes, checked_batches, difference, files_in, opened
from cubicflow.tables.arrow_types import without_views
from cubicflow.tables.read.stamps import Stamps
from cubicflow.tables.read.table import Origin, Table, types_of
from cubicflow.tables.read.unpacking import check_unpacked
from cubicflow.tables.table_error import TableError

ARROW_FILE, OLD_FEATHER = b"ARROW1", b"FEA1"


def parquet_table(path: Path) -> Table:
    """Return the table in a .parquet file, or in all .parquet files of a folder and its subfolders, in the order of
    their names."""
    stamps = Stamps(lambda: files_in(path))
    files = files_in(path)
    if not files:
        raise TableError(f"{path}: this folder holds no .parquet file; give the path of a file")
    schema = _schema(files[0])
    for file in files[1:]:
        if not (other := _schema(file)).equals(schema):
            reason = difference(files[0].name, schema, file.name, other)
            raise TableError(f"{path}: the files are not parts of one table: {reason}")

    def read(columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        for file in files:
            with opened(file, file, TableError) as content:
                packed, unpacked = file.stat().st_size, 0
                check_unpacked(file, packed, announced_bytes(content, columns))
                for batch in checked_batches(content, columns, rows):
                    unpacked += batch.nbytes
                    check_unpacked(file, packed, unpacked)  # the sizes in the metadata may be wrong
                    yield batch.cast(without_views(batch.schema))

    return Table(str(path), types_of(path, schema), read, Origin(str(path.resolve()), tuple(files), stamps))


def _schema(path: Path) -> pa.Schema:
    with opened(path, path, TableError) as file:
        return without_views(file.schema_arrow)


def arrow_table(path: Path) -> Table:
    """Return the table in a .feather, .arrow, .ipc or .arrows file. The first bytes, not the name, tell a file from a
    stream."""
    stamps = Stamps(lambda: [path])
    with path.open("rb") as file:
        start = file.read(len(ARROW_FILE))
    if start.startswith(OLD_FEATHER):
        raise TableError(f"{path}: Feather version 1 is not supported; write the table as version 2")
    is_stream = start != ARROW_FILE

    @contextmanager
    def stream() -> Iterator[pa.RecordBatchReader]:
        """Open a reader of the batches. The file is not memory-mapped: the process would crash if the file shrank."""
        try:
            with pa.OSFile(str(path)) as file:
                yield pa.ipc.open_stream(file) if is_stream else pa.ipc.open_file(file)
        except (pa.ArrowException, OSError, EOFError) as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise TableError(f"{path}: not a complete Arrow file: {reason}") from None

    def read(columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        with stream() as reader:
            found = reader if is_stream else map(reader.get_batch, range(reader.num_record_batches))
            for batch in found:
                chosen = batch.select(columns)
                chosen.validate(full=True)  # a damaged file can hold offsets outside its buffers
                for start in range(0, len(chosen), rows):
                    part = chosen.slice(start, rows)
                    yield part.cast(without_views(part.schema))

    with stream() as reader:
        schema = without_views(reader.schema)
    return Table(str(path), types_of(path, schema), read, Origin(str(path.resolve()), (path,), stamps))
