"""Parquet files, and folders of them that are one table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from cubicflow.tables.arrow_types import schema_without_views, without_views
from cubicflow.tables.source import Table, check_names
from cubicflow.tables.table_error import TableError, some


class ParquetTable(Table):
    """A .parquet file, or all .parquet files in a folder (and below it) in the order of their names."""

    def __init__(self, path: Path) -> None:
        files = [path]
        if path.is_dir():
            files = sorted(file for end in ("parquet", "pq") for file in path.rglob(f"*.{end}"))
            if not files:
                raise TableError(f"{path}: this is a folder, and no .parquet file lies in it; give the file itself")
        schema = _schema(files[0])
        for file in files[1:]:
            other = _schema(file)
            if not other.equals(schema):
                raise TableError(
                    f"{path}: the files are not parts of one table: {_difference(files[0], schema, file, other)}"
                )
        check_names(path, schema.names)
        super().__init__(path, dict(zip(schema.names, schema.types, strict=True)))
        self.files = files

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        for path in self.files:
            try:
                with parquet.ParquetFile(path) as file:
                    for batch in file.iter_batches(batch_size=rows, columns=columns):
                        batch.validate(full=True)  # a damaged page can decode into values that point nowhere
                        yield without_views(batch.select(columns))
            except (pa.ArrowException, OSError, EOFError) as error:
                raise TableError(_damaged(path, error)) from None


def _schema(path: Path) -> pa.Schema:
    try:
        return schema_without_views(parquet.read_schema(path))
    except (pa.ArrowException, OSError, EOFError) as error:
        raise TableError(_damaged(path, error)) from None


def _damaged(path: Path, error: Exception) -> str:
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return f"{path}: not a whole Parquet file: {reason}"


def _difference(first: Path, schema: pa.Schema, file: Path, other: pa.Schema) -> str:
    only = [name for name in schema.names if name not in other.names]
    extra = [name for name in other.names if name not in schema.names]
    if only or extra:
        return (
            f"{file.name} lacks {some(only) or 'no column'} and adds {some(extra) or 'none'} compared with {first.name}"
        )
    for name in schema.names:
        if other.field(name).type != schema.field(name).type:
            return (
                f"column {name!r} is {schema.field(name).type} in {first.name} and {other.field(name).type} in "
                f"{file.name}"
            )
    return f"{first.name} and {file.name} have their columns in different order"
