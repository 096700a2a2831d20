"""Tables returned by queries to SQLite or DuckDB. A query runs once, and a spool keeps the rows."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from cubicflow.extras import need
from cubicflow.tables.arrow_types import without_views
from cubicflow.tables.read.table import (
    BATCH_ROWS,
    Found,
    Kept,
    Origin,
    Table,
    Text,
    as_text_rows,
    check_names,
    spool,
    types_of,
)
from cubicflow.tables.table_error import TableError, some


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
            rows = as_text_rows(where, names, _without_blobs(where, names, found))
    except sqlite3.Error as error:
        raise TableError(f"{where}: SQLite refuses the query: {_line(error)}") from None
    return _table(where, rows, f"sqlite:{path}?query={query}", Text())


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
            batches = found.to_arrow_reader(BATCH_ROWS)
            schema = without_views(batches.schema)
            rows = spool(where, (batch.cast(schema) for batch in batches), schema)
    except (duckdb.Error, pa.ArrowException) as error:
        raise TableError(f"{where}: DuckDB refuses the query: {_line(error)}") from None
    return _table(where, rows, f"duckdb:{path or ''}?query={query}")


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


def _table(where: str, rows: pa.Table, source: str, text: Text | None = None) -> Table:
    if not len(rows):
        raise TableError(f"{where}: the query returns no row; change the query")
    found = Found(fingerprint=_fingerprint(rows))
    return Table(where, types_of(where, rows.schema), Kept(rows), Origin(source), text, found=found)


def _fingerprint(rows: pa.Table) -> str:
    """Return a hash of rows that does not depend on how the rows are split into batches."""
    digests = []
    for name, type, column in zip(rows.column_names, rows.schema.types, rows.columns, strict=True):
        digest = hashlib.sha256(f"{name}\0{type}\0".encode())
        if pa.types.is_nested(type):  # nested columns are never modelled
            digest.update(str(len(column)).encode())
        for chunk in column.chunks if not pa.types.is_nested(type) else ():
            plain = chunk.dictionary_decode() if pa.types.is_dictionary(type) else chunk
            texts = (plain if pa.types.is_binary(type) else plain.cast(pa.large_string())).to_pylist()
            digest.update("".join("\1" if text is None else f"{text}\0" for text in texts).encode("utf-8", "replace"))
        digests.append(digest.hexdigest())
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _without_blobs(where: str, names: list[str], rows: Any) -> Iterator[tuple[object, ...]]:
    for row in rows:
        for name, cell in zip(names, row, strict=True):
            if isinstance(cell, bytes):
                raise TableError(f"{where}: column {name!r} holds binary data (a BLOB); leave it out of the query")
        yield row


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
