"""Where a table lies, if not in a file under its own name: standard input, a URL, a query, a part of a workbook."""

from __future__ import annotations

import re
from pathlib import Path

from cubicflow.tables.source import Table
from cubicflow.tables.table_error import TableError
from cubicflow.tables.text.reading import Reading

STANDARD_INPUT = "-"
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://.+", re.DOTALL)
EATEN = re.compile(r"(https?|s3|gs|gcs):/[^/].*")  # what a Path makes of a URL
INSIDE = re.compile(r"(duckdb|sqlite|xlsx):(.*)", re.DOTALL)
SHEET_KEYS = ("sheet", "cells")


def open_elsewhere(text: str, reading: Reading) -> Table | None:
    """The table, or None for what must be a path or the name of a built-in table."""
    from cubicflow.tables.files.fetched import at_url, standard_input

    if text == STANDARD_INPUT:
        return standard_input(reading)
    if Path(text).exists():
        return None
    if URL.fullmatch(text):
        return at_url(text, reading)
    if EATEN.fullmatch(text):
        raise TableError(f"{text}: a URL has two slashes after its scheme; give it as text, not as a Path")
    inside = INSIDE.fullmatch(text)
    return None if inside is None else _inside(text, inside[1], inside[2], reading)


def is_path(source: str) -> bool:
    """Whether a table's source is a file on this machine, which can be opened without running a query or asking a
    network: what stands in a stranger's run folder may be anything."""
    return source != STANDARD_INPUT and not (URL.fullmatch(source) or INSIDE.fullmatch(source))


def _inside(text: str, kind: str, rest: str, reading: Reading) -> Table:
    file, _, asked = rest.partition("?")
    if kind == "xlsx":
        from cubicflow.tables.files.spreadsheet import SpreadsheetTable

        parts = dict(part.partition("=")[::2] for part in asked.split("&") if part)
        if unknown := [key for key in parts if key not in SHEET_KEYS]:
            raise TableError(f"{text}: of a workbook, choose {' and '.join(SHEET_KEYS)}, not {unknown[0]!r}")
        return SpreadsheetTable(Path(file), reading, parts.get("sheet"), parts.get("cells"))
    from cubicflow.tables.files.queries import DATABASES

    # The query is taken as it stands: SQL has its own % and &.
    if asked and not asked.startswith("query="):
        raise TableError(f"{text}: after the question mark comes query=, and then the query")
    return DATABASES[kind](text, file, asked.removeprefix("query=").strip())
