"""Tables returned by queries to SQLite or DuckDB. A query runs once, and a spool keeps the rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from cubicflow.extras import need
from cubicflow.tables.arrow_types import without_views
from cubicflow.tables.csv_file import spool
from cubicflow.tables.files.text_rows import RowsDigest, TextRows, text_batches
from cubicflow.tables.source import BATCH_ROWS, MemoryTable, Table, check_names
from cubicflow.tables.table_error import TableError, some


class QueriedTable(MemoryTable):
    """Rows with the types of a database."""

    def __init__(self, rows: pa.Table, name: str, fingerprint: str, source: str) -> None:
        super().__init__(rows, name)
        self._fingerprint, self._source = fingerprint, source

    def source(self) -> str | None:
        return self._source


def query_sqlite(where: str, file: str, query: str) -> Table:
    """Return the rows of a query to SQLite, as text: the cells of a column may have different types in SQLite."""
    path = _database(where, file)
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            if not query:
                names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
                raise _no_query(where, names)
            found = database.execute(query)
            if found.description is None:
                raise TableError(f"{where}: this query returns no table; give one that selects rows")
            names = [column[0] for column in found.description]
            check_names(where, names)
            rows, fingerprint = _spooled(where, text_batches(names, _without_blobs(where, names, found)))
    except sqlite3.Error as error:
        raise TableError(f"{where}: SQLite refuses the query: {_line(error)}") from None
    return TextRows(rows, where, fingerprint, f"sqlite:{path}?query={query}")


def query_duckdb(where: str, file: str, query: str) -> Table:
    """Return the rows of a query to DuckDB. Without a file the database is empty, and the query names files to read."""
    try:
        duckdb = need("duckdb", "this query")
    except ImportError as error:
        raise TableError(f"{where}: {error}") from None
    path = _database(where, file) if file else None
    try:
        database = duckdb.connect(":memory:" if path is None else str(path), read_only=path is not None)
        with closing(database):
            if not query:
                raise _no_query(where, [row[0] for row in database.execute("SHOW TABLES").fetchall()])
            found = database.sql(query)
            if found is None:
                raise TableError(f"{where}: this query returns no table; give one that selects rows")
            check_names(where, found.columns)
            rows, fingerprint = _spooled(where, _without_view_types(found.to_arrow_reader(BATCH_ROWS)))
    except (duckdb.Error, pa.ArrowException) as error:
        raise TableError(f"{where}: DuckDB refuses the query: {_line(error)}") from None
    return QueriedTable(rows, where, fingerprint, f"duckdb:{path or ''}?query={query}")


DATABASES: dict[str, Callable[[str, str, str], Table]] = {"duckdb": query_duckdb, "sqlite": query_sqlite}


def _database(where: str, file: str) -> Path:
    path = Path(file).absolute()
    if not file or not path.is_file():
        raise TableError(f"{where}: there is no database {file!r}; check the path")
    return path


def _no_query(where: str, tables: list[str]) -> TableError:
    example = f"?query=SELECT * FROM {tables[0]}" if tables else "?query=SELECT ..."  # noqa: S608 - never executed
    holds = f"its tables are {some(tables, 10)}" if tables else "it holds no table"
    return TableError(f"{where}: a database needs a query ({holds}): {where.removesuffix('?query=')}{example}")


def _without_view_types(batches: Any) -> Iterator[pa.RecordBatch]:
    schema = without_views(batches.schema)
    yield pa.RecordBatch.from_pylist([], schema=schema)  # the first batch is empty; it fixes the schema
    for batch in batches:
        yield batch.cast(schema)


def _spooled(where: str, batches: Iterator[pa.RecordBatch]) -> tuple[pa.Table, str]:
    """Return all rows and their fingerprint."""
    digest = RowsDigest()

    def watched() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            digest.see(batch)
            yield batch

    try:
        rows = pa.Table.from_batches(spool(watched(), None))
    except OSError as error:
        raise TableError(
            f"{where}: there is no room for a copy of its rows ({error.strerror or error}); free some space"
        ) from None
    if not len(rows):
        raise TableError(f"{where}: the query returns no row; change the query")
    return rows, digest.result()


def _without_blobs(where: str, names: list[str], rows: Any) -> Iterator[tuple[object, ...]]:
    for row in rows:
        for name, cell in zip(names, row, strict=True):
            if isinstance(cell, bytes):
                raise TableError(f"{where}: column {name!r} holds binary data (a BLOB); leave it out of the query")
        yield row


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
