"""Opening a table: by the name of a file, from standard input, at a URL, by a query, or in a part of a workbook."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from cubicflow.data.plane import GaussianGrid, ImageDensity
from cubicflow.files import cache_folder, replacing
from cubicflow.tables.read.arrow_files import arrow_table, json_lines_table, parquet_table
from cubicflow.tables.read.fetched import Copy, copy_of_standard_input, copy_of_url
from cubicflow.tables.read.numpy_file import numpy_table
from cubicflow.tables.read.queries import DATABASES
from cubicflow.tables.read.sheets import sheet_table
from cubicflow.tables.read.table import Table
from cubicflow.tables.read.text.csv_file import csv_table
from cubicflow.tables.read.text.reading import Reading
from cubicflow.tables.table_error import TableError

STANDARD_INPUT = "-"
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://.+", re.DOTALL)
URL_AS_PATH = re.compile(r"(https?|s3|gs|gcs):/[^/].*")  # pathlib.Path merges the two slashes of a URL
INSIDE = re.compile(r"(duckdb|sqlite|xlsx):(.*)", re.DOTALL)
SHEET_KEYS = ("sheet", "cells")
BUILT_IN_POINTS = 100_000
BUILT_IN: dict[str, Callable[[], GaussianGrid | ImageDensity]] = {
    "gaussians": GaussianGrid,
    "grace-hopper": ImageDensity.from_file,
}


def open_table(path: str | Path, reading: Reading | None = None) -> Table:
    """Open the table at a path: .csv, .tsv, .jsonl (also .gz), .parquet, a folder of .parquet files, .feather, .arrow,
    .xlsx, .npy or .npz; or a built-in table by its name.

    The path may also be ``-`` for standard input, a URL ``https://...`` or ``s3://...``, a query
    ``duckdb:file?query=...`` or ``sqlite:file?query=...``, or a part of a workbook, ``xlsx:file?sheet=...&cells=...``.
    ``reading`` says which rows hold the names, which lines are comments, and in which notations columns are written.

    >>> open_table("gaussians").names  # doctest: +SKIP
    ['x', 'y']
    """
    reading = reading or Reading()
    table = _opened(str(path), reading)
    if table.text is None:
        return table
    notations = {name: found for name, found in reading.notations.items() if name in table.types}
    return replace(table, text=replace(table.text, notations=notations))


def _opened(place: str, reading: Reading) -> Table:
    if place == STANDARD_INPUT:
        return _from_copy(copy_of_standard_input(), reading)
    if not _exists(place):
        if URL.fullmatch(place):
            return _from_copy(copy_of_url(place), reading)
        if URL_AS_PATH.fullmatch(place):
            raise TableError(f"{place}: a URL has two slashes after its scheme; give it as text, not as a Path")
        if inside := INSIDE.fullmatch(place):
            return _inside(place, inside[1], inside[2], reading)
    return _from_file(Path(place), reading)


def _exists(place: str) -> bool:
    try:
        return Path(place).exists()
    except OSError:  # a query may be longer than the name of a file
        return False


def is_path(source: str) -> bool:
    """Return whether a table's source is a local path, which is safe to open.

    A run folder from someone else may name a query or a URL. Opening those would run SQL or contact a network.
    """
    return source != STANDARD_INPUT and not (URL.fullmatch(source) or INSIDE.fullmatch(source))


def _from_copy(copy: Copy, reading: Reading) -> Table:
    """Return the table in a temporary copy, named after its origin. The table keeps the copy alive."""
    try:
        table = _from_file(copy.path, reading)
    except TableError as error:
        raise copy.renamed(error) from None

    def read(columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        try:
            yield from table.read(columns, rows)
        except TableError as error:
            raise copy.renamed(error) from None

    return replace(table, name=copy.name, read=read, origin=replace(table.origin, source=copy.source))


def _from_file(path: Path, reading: Reading) -> Table:
    """Return the table in a file or a folder, or the built-in table of that name. The ending gives the format."""
    if not path.exists() and str(path) in BUILT_IN:
        path = built_in_table(str(path))
    if not path.exists():
        raise TableError(
            f"{path}: there is no such file, and no built-in table of that name ({', '.join(BUILT_IN)}); check the path"
        )
    if path.is_dir():
        return parquet_table(path)
    if not path.is_file():
        raise TableError(
            f"{path}: a table is read several times, and a pipe only once; save it as a file first, or send it to "
            "standard input and give - as its name"
        )
    if path.stat().st_size == 0:
        raise TableError(f"{path}: the file is empty; give a file that holds a table")
    ending = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    match ending.lower():
        case ".csv" | ".tsv" | ".csv.gz" | ".tsv.gz":
            return csv_table(path, reading)
        case ".jsonl" | ".ndjson" | ".jsonl.gz" | ".ndjson.gz":
            return json_lines_table(path)
        case ".parquet" | ".pq":
            return parquet_table(path)
        case ".feather" | ".arrow" | ".arrows" | ".ipc":
            return arrow_table(path)
        case ".xlsx" | ".xlsm":
            return sheet_table(path, reading)
        case ".npy" | ".npz":
            return numpy_table(path)
        case ".db" | ".sqlite" | ".sqlite3" | ".duckdb":
            scheme = "duckdb" if ending.lower() == ".duckdb" else "sqlite"
            raise TableError(f"{path}: a database needs a query: {scheme}:{path}?query=SELECT ...")
    raise TableError(
        f"{path}: unknown kind of table; the name of a table ends in .csv, .tsv, .jsonl (also .gz), "
        ".parquet, .feather, .arrow, .xlsx, .npy or .npz, or is a folder of .parquet files"
    )


def built_in_table(name: str) -> Path:
    """Return the path of a built-in table: an .npz file with columns x and y, points of a plane density.

    The file is created on first use in the cache folder. A file in the working folder takes precedence over a built-in
    table of the same name: this function is called only if no such file exists.
    """
    path = cache_folder() / "built-in" / f"{name}.npz"
    if not path.exists():
        points = BUILT_IN[name]().sample(BUILT_IN_POINTS, 0)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            np.savez(file, x=points[:, 0], y=points[:, 1])
    return path


def _inside(text: str, kind: str, rest: str, reading: Reading) -> Table:
    file, _, request = rest.partition("?")
    if kind == "xlsx":
        parts = dict(part.partition("=")[::2] for part in request.split("&") if part)
        if unknown := [key for key in parts if key not in SHEET_KEYS]:
            raise TableError(f"{text}: a workbook has no setting {unknown[0]!r}; use {' and '.join(SHEET_KEYS)}")
        return sheet_table(Path(file), reading, parts.get("sheet"), parts.get("cells"))
    # The query is not URL-decoded: SQL uses % and & itself.
    if request and not request.startswith("query="):
        raise TableError(f"{text}: after the question mark, write query= and then the query")
    return DATABASES[kind](text, file, request.removeprefix("query=").strip())
