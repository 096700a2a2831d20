"""JSON lines: one object per row."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
from pyarrow import json as arrow_json

from cubicflow.tables.read.fingerprints import FingerprintedFile
from cubicflow.tables.read.table import Found, Kept, Origin, Table, types_of
from cubicflow.tables.read.text.lines import CountedLines
from cubicflow.tables.read.unpacking import Unpacked
from cubicflow.tables.table_error import TableError

BLOCK_BYTES = 1 << 24  # bytes; a row must fit into one block


def json_lines_table(path: Path) -> Table:
    """Return the table in a .jsonl or .ndjson file, read into memory in one pass.

    A row without a key has a missing value in that column. A column of nested values cannot be modelled and must be
    dropped.
    """
    try:
        with FingerprintedFile(path) as file:
            lines = CountedLines(Unpacked(path, file) if path.suffix == ".gz" else file)
            rows = arrow_json.read_json(pa.input_stream(lines), arrow_json.ReadOptions(block_size=BLOCK_BYTES))
            found = Found(fingerprint=file.fingerprint())
    except (pa.ArrowException, OSError, EOFError) as error:
        raise TableError(f"{path}: {_explained(str(error))}") from None
    if lines.count != len(rows):  # empty lines; also objects over several lines, or several in a line
        found.remarks = (f"{lines.count:,} lines hold {len(rows):,} objects; each object is a row",)
    return Table(str(path), types_of(path, rows.schema), Kept(rows), Origin(str(path.resolve()), (path,)), found=found)


def _explained(error: str) -> str:
    """Return arrow's error in one line, with a remedy."""
    error = next(iter(error.splitlines()), "it cannot be read")
    if found := re.search(r"Column\(/(.*?)\) changed from (\w+) to (\w+)", error):
        name, before, after = found.groups()
        return (
            f"column {name!r} holds a {before} in some rows and a {after} in others; write one kind of value, and null "
            "for missing values"
        )
    if "straddling" in error:
        return f"a line is longer than {BLOCK_BYTES >> 20} MiB; write one object per line"
    return f"not lines of JSON: {error.removeprefix('JSON parse error: ')}; write one object per line"
