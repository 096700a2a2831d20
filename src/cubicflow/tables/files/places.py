"""Opening tables that are not plain file names: standard input, a URL, a query, a part of a workbook."""

from __future__ import annotations

import re
from pathlib import Path

from cubicflow.tables.source import Table
from cubicflow.tables.table_error import TableError
from cubicflow.tables.text.reading import Reading

STANDARD_INPUT = "-"
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://.+", re.DOTALL)
URL_AS_PATH = re.compile(r"(https?|s3|gs|gcs):/[^/].*")  # pathlib.Path merges the two slashes of a URL
INSIDE = re.compile(r"(duckdb|sqlite|xlsx):(.*)", re.DOTALL)
SHEET_KEYS = ("sheet", "cells")


def open_elsewhere(text: str, reading: Reading) -> Table | None:
    """Return the table that the text names; None if the text is a path or the name of a built-in table."""
    from cubicflow.tables.files.fetched import at_url, standard_input

    if text == STANDARD_INPUT:
        return standard_input(reading)
    if Path(text).exists():
        return None
    if URL.fullmatch(text):
        return at_url(text, reading)
    if URL_AS_PATH.fullmatch(text):
        raise TableError(f"{text}: a URL has two slashes after its scheme; give it as text, not as a Path")
    inside = INSIDE.fullmatch(text)
    return None if inside is None else _inside(text, inside[1], inside[2], reading)


def is_path(source: str) -> bool:
    """Return whether a table's source is a local path, which is safe to open.

    A run folder from someone else may name a query or a URL. Opening those would run SQL or contact a network.
    """
    return source != STANDARD_INPUT and not (URL.fullmatch(source) or INSIDE.fullmatch(source))


def _inside(text: str, kind: str, rest: str, reading: Reading) -> Table:
    file, _, request = rest.partition("?")
    if kind == "xlsx":
        from cubicflow.tables.files.spreadsheet import SpreadsheetTable

        parts = dict(part.partition("=")[::2] for part in request.split("&") if part)
        if unknown := [key for key in parts if key not in SHEET_KEYS]:
            raise TableError(f"{text}: a workbook has no setting {unknown[0]!r}; use {' and '.join(SHEET_KEYS)}")
        return SpreadsheetTable(Path(file), reading, parts.get("sheet"), parts.get("cells"))
    from cubicflow.tables.files.queries import DATABASES

    # The query is not URL-decoded: SQL uses % and & itself.
    if request and not request.startswith("query="):
        raise TableError(f"{text}: after the question mark, write query= and then the query")
    return DATABASES[kind](text, file, request.removeprefix("query=").strip())
