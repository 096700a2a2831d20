"""Readers of columnar files: Parquet files, folders of them, Feather files, and files and streams of Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from cubicflow.tables.arrow_types import without_views
from cubicflow.tables.read.file_checks import Stamps, check_unpacked
from cubicflow.tables.read.table import Origin, Table, types_of
from cubicflow.tables.table_error import TableError, some

NUMBER_BYTES = 8  # bytes of a value in memory, at least
ARROW_FILE, OLD_FEATHER = b"ARROW1", b"FEA1"


def parquet_table(path: Path) -> Table:
    """Return the table in a .parquet file, or in all .parquet files of a folder and its subfolders, in the order of
    their names."""
    stamps = Stamps(lambda: _parts(path))
    files = _parts(path)
    if not files:
        raise TableError(f"{path}: this folder holds no .parquet file; give the path of a file")
    schema = _schema(files[0])
    for file in files[1:]:
        other = _schema(file)
        if not other.equals(schema):
            reason = difference(files[0].name, schema, file.name, other)
            raise TableError(f"{path}: the files are not parts of one table: {reason}")

    def read(columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        for file in files:
            yield from _rows_of_parquet(file, columns, rows)

    return Table(str(path), types_of(path, schema), read, Origin(str(path.resolve()), tuple(files), stamps))


def _rows_of_parquet(path: Path, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    try:
        packed, unpacked = path.stat().st_size, 0
        with parquet.ParquetFile(path) as file:
            check_unpacked(path, packed, _announced_bytes(file, columns))
            for batch in file.iter_batches(batch_size=rows, columns=columns):
                unpacked += batch.nbytes
                check_unpacked(path, packed, unpacked)  # the sizes in the metadata may be wrong
                batch.validate(full=True)  # a damaged page can decode to offsets out of range
                batch = batch.select(columns)
                yield batch.cast(without_views(batch.schema))
    except (pa.ArrowException, OSError, EOFError) as error:
        raise TableError(damaged(path, error)) from None


def _parts(path: Path) -> list[Path]:
    """Return the files of a table: the file at the path, or all files of a folder."""
    if not path.is_dir():
        return [path]
    return sorted(file for end in ("parquet", "pq") for file in path.rglob(f"*.{end}"))


def _announced_bytes(file: parquet.ParquetFile, columns: list[str]) -> int:
    """Return the unpacked size of some columns in bytes: the size in the metadata, at least 8 bytes for each value."""
    metadata = file.metadata
    pages = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        parts = (group.column(i) for i in range(group.num_columns))
        pages += sum(part.total_uncompressed_size for part in parts if part.path_in_schema.split(".")[0] in columns)
    return max(int(pages), int(metadata.num_rows) * len(columns) * NUMBER_BYTES)


def _schema(path: Path) -> pa.Schema:
    try:
        return without_views(parquet.read_schema(path))
    except (pa.ArrowException, OSError, EOFError) as error:
        raise TableError(damaged(path, error)) from None


def damaged(path: object, error: Exception) -> str:
    """Return the message for a Parquet file that cannot be read."""
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return f"{path}: not a complete Parquet file: {reason}"


def difference(one: str, schema: pa.Schema, another: str, other: pa.Schema) -> str:
    """Return a phrase that says how the schema of the file ``another`` differs from that of the file ``one``."""
    lacks = [name for name in schema.names if name not in other.names]
    adds = [name for name in other.names if name not in schema.names]
    if lacks or adds:
        return f"{another} lacks {some(lacks) or 'no column'} and adds {some(adds) or 'no column'} compared with {one}"
    for name in schema.names:
        expected, found = schema.field(name).type, other.field(name).type
        if expected != found:
            return f"column {name!r} is {expected} in {one} and {found} in {another}"
    return f"{one} and {another} have the same columns in a different order"


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
    def opened() -> Iterator[pa.RecordBatchReader]:
        """Open a reader of the batches. The file is not memory-mapped: the process would crash if the file shrank."""
        try:
            with pa.OSFile(str(path)) as file:
                yield pa.ipc.open_stream(file) if is_stream else pa.ipc.open_file(file)
        except (pa.ArrowException, OSError, EOFError) as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise TableError(f"{path}: not a complete Arrow file: {reason}") from None

    def read(columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        with opened() as reader:
            found = reader if is_stream else map(reader.get_batch, range(reader.num_record_batches))
            for batch in found:
                chosen = batch.select(columns)
                chosen.validate(full=True)  # a damaged file can hold offsets outside its buffers
                for start in range(0, len(chosen), rows):
                    part = chosen.slice(start, rows)
                    yield part.cast(without_views(part.schema))

    with opened() as reader:
        schema = without_views(reader.schema)
    return Table(str(path), types_of(path, schema), read, Origin(str(path.resolve()), (path,), stamps))
