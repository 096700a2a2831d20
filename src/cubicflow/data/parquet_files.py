"""Parquet files: found, opened, compared, and read with checks. All of cubicflow reads Parquet through this module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

ENDINGS = (".parquet", ".pq")
NUMBER_BYTES = 8  # bytes of a value in memory, at least


def files_in(path: Path) -> list[Path]:
    """Return the file at the path, or all Parquet files of a folder and its subfolders, in the order of their names."""
    if not path.is_dir():
        return [path]
    return sorted(file for ending in ENDINGS for file in path.rglob(f"*{ending}"))


@contextmanager
def opened(
    source: Any, name: object, error: type[ValueError] = ValueError, **options: Any
) -> Iterator[parquet.ParquetFile]:
    """Open a file. If its content is damaged, which may show later, ``error`` is raised inside the ``with`` block.

    Args:
        source: a path or an open file.
        name: the name of the file in messages.
        error: the class of the error to raise.
        options: options of ``pyarrow.parquet.ParquetFile``.
    """
    try:
        with parquet.ParquetFile(source, **options) as file:
            yield file
    except (pa.ArrowException, OSError, EOFError) as damage:
        reason = next(iter(str(damage).splitlines()), type(damage).__name__)
        raise error(f"{name}: not a complete Parquet file: {reason}") from None


def checked_batches(
    file: parquet.ParquetFile, columns: Sequence[str] | None, rows: int, groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield at most so many rows at once of the columns, or of all columns, in all row groups or in some of them."""
    chosen = None if columns is None else list(columns)
    for batch in file.iter_batches(rows, row_groups=groups, columns=chosen):
        batch.validate(full=True)  # a damaged page can decode to offsets out of range
        yield batch if chosen is None else batch.select(chosen)


def rows_between(
    file: parquet.ParquetFile, columns: Sequence[str], rows: int, first: int, last: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows from ``first`` to ``last - 1``, at most so many at once. Only their row groups are read."""
    groups, start, end = [], 0, 0
    for number in range(file.metadata.num_row_groups):
        before, end = end, end + file.metadata.row_group(number).num_rows
        if end <= first:
            start = end
        elif before < last:
            groups.append(number)
    for batch in checked_batches(file, columns, rows, groups):
        inside = batch.slice(max(first - start, 0), max(last - max(first, start), 0))
        start += len(batch)
        if len(inside):
            yield inside
        if start >= last:
            return


def announced_bytes(file: parquet.ParquetFile, columns: Sequence[str]) -> int:
    """Return the unpacked size of some columns in bytes: the size in the metadata, at least 8 bytes for each value."""
    metadata, pages = file.metadata, 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        parts = (group.column(i) for i in range(group.num_columns))
        pages += sum(part.total_uncompressed_size for part in parts if part.path_in_schema.split(".")[0] in columns)
    return max(int(pages), int(metadata.num_rows) * len(columns) * NUMBER_BYTES)


def difference(one: object, schema: pa.Schema, another: object, other: pa.Schema) -> str:
    """Return a phrase that says how the schema of the file ``another`` differs from that of the file ``one``.

    >>> difference("1.parquet", pa.schema({"a": pa.int64()}), "2.parquet", pa.schema({"a": pa.string()}))
    "column 'a' is int64 in 1.parquet and string in 2.parquet"
    """
    lacks = [repr(name) for name in schema.names if name not in other.names]
    adds = [repr(name) for name in other.names if name not in schema.names]
    if lacks or adds:
        return f"{another} lacks {_some(lacks)} and adds {_some(adds)} compared with {one}"
    for name in schema.names:
        expected, found = schema.field(name).type, other.field(name).type
        if expected != found:
            return f"column {name!r} is {expected} in {one} and {found} in {another}"
    return f"{one} and {another} have the same columns in a different order"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more}" if names else "no column"
