"""Files that Arrow parses into typed columns: Parquet files and folders of them, Feather files, files and streams of
Arrow, and lines of JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyarrow import json as arrow_json

from cubicflow.data.parquet_files import announced_bytes, checked_batches, difference, files_in, opened
from cubicflow.tables.arrow_types import without_views
from cubicflow.tables.read.file_checks import check_unpacked
from cubicflow.tables.read.table import Found, Kept, Origin, Table, types_of
from cubicflow.tables.read.text.lines import line_blocks, number_of_lines
from cubicflow.tables.table_error import TableError, one_line

ARROW_FILE, OLD_FEATHER = b"ARROW1", b"FEA1"
BLOCK_BYTES = 1 << 24  # bytes; an object of JSON must fit into one block


def parquet_table(path: Path) -> Table:
    """Return the table in a .parquet file, or in all .parquet files of a folder and its subfolders, in the order of
    their names."""
    origin = Origin.of(path, lambda: files_in(path))
    files = origin.files
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

    return Table(str(path), types_of(path, schema), read, origin)


def _schema(path: Path) -> pa.Schema:
    with opened(path, path, TableError) as file:
        return without_views(file.schema_arrow)


def arrow_table(path: Path) -> Table:
    """Return the table in a .feather, .arrow, .ipc or .arrows file. The first bytes, not the name, tell a file from a
    stream."""
    origin = Origin.of(path)
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
            raise TableError(f"{path}: not a complete Arrow file: {one_line(error)}") from None

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
    return Table(str(path), types_of(path, schema), read, origin)


def json_lines_table(path: Path) -> Table:
    """Return the table in a .jsonl or .ndjson file, read into memory.

    A row without a key has a missing value in that column. A column of nested values cannot be modelled and must be
    dropped.
    """
    origin = Origin.of(path)
    lines = sum(map(number_of_lines, line_blocks(path)))
    try:
        with pa.input_stream(str(path)) as file:  # unpacks a .gz file
            rows = arrow_json.read_json(file, arrow_json.ReadOptions(block_size=BLOCK_BYTES))
    except (pa.ArrowException, OSError, EOFError) as error:
        raise TableError(f"{path}: {_explained(one_line(error))}") from None
    remark = f"{lines:,} lines hold {len(rows):,} objects; each object is a row"
    # The numbers differ by empty lines, by objects over several lines, and by several objects in a line.
    found = Found(remarks=(remark,) if lines != len(rows) else ())
    return Table(str(path), types_of(path, rows.schema), Kept(rows), origin, found=found).settled()


def _explained(error: str) -> str:
    """Return Arrow's error about lines of JSON with a remedy."""
    if found := re.search(r"Column\(/(.*?)\) changed from (\w+) to (\w+)", error):
        name, before, after = found.groups()
        return (
            f"column {name!r} holds a {before} in some rows and a {after} in others; write one kind of value, and null "
            "for missing values"
        )
    if "straddling" in error:
        return f"a line is longer than {BLOCK_BYTES >> 20} MiB; write one object per line"
    return f"not lines of JSON: {error.removeprefix('JSON parse error: ')}; write one object per line"
