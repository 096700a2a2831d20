"""CSV files, read as text: the type of a column is decided over all of its rows, not from the first block.

A file is read once, in blocks of whole lines that Arrow parses one by one. The rows of every block are compared with
its lines. Callers that need several passes spool the rows into Arrow batches.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from cubicflow.tables.read.table import MISSING, Found, Origin, Table, Text
from cubicflow.tables.read.text import lines as lines_in
from cubicflow.tables.read.text.lines import (
    ScannedLines,
    is_comment,
    last_line,
    line_blocks,
    lines_of,
    number_of_lines,
    open_quote,
    scan_lines,
    too_long,
    without_comments,
)
from cubicflow.tables.read.text.reading import ROWS_BELOW, Reading, read_head
from cubicflow.tables.table_error import TableError


def csv_table(path: Path, reading: Reading) -> Table:
    """Return the table in a CSV file. The delimiter is one of ``, ; tab |`` outside quotes, found in the first lines.

    Every line is a row, a part of the header, or counted in ``remarks`` after the first pass. Quoted text with line
    breaks is refused unless ``reading`` allows it: one quotation mark that is never closed would make a single value of
    all rows up to the next one.
    """
    origin, comment = Origin.of(path), (reading.comment or "").encode()
    above, rows = reading.header_rows
    lines = _first_lines(path, max(rows, 1) + ROWS_BELOW, comment)
    delimiter, names = read_head(path, _decoded(path, lines, max(rows, 1)), reading)
    for number, line in enumerate(lines[above:rows], above):
        if open_quote(line, delimiter.encode(), is_open=False) is not None:
            raise TableError(
                f"{path}: row {number} holds the names, and its last quotation mark is not closed in that row; "
                "close it, or write every name in one line"
            )
    found = Found()
    read = _CsvFile(path, names, delimiter, comment, reading, found).read
    types = dict.fromkeys(names, pa.string())
    return Table(str(path), types, read, origin, Text(delimiter, has_header=True), found=found)


@dataclass(frozen=True)
class _CsvFile:
    """The rows of a CSV file. Remarks on lines without a row go to ``found``."""

    path: Path
    names: list[str]
    delimiter: str
    comment: bytes
    reading: Reading
    found: Found

    def read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        missing, lines = pa.array(MISSING), Counter[str]()
        begun, start = b"", 0  # the lines from an open quotation mark on; rows before the block
        for text in self._below_names(lines):
            text, comments = without_comments(begun + text, self.comment, self.delimiter.encode())
            lines["comments"] += comments
            block, begun = self._parsed(text, columns, lines)
            _refuse_nul(self.path, block, start)
            start += len(block)
            trimmed = [pc.utf8_trim_whitespace(column) for column in block.columns]
            known = [pc.if_else(pc.is_in(column, missing), None, column) for column in trimmed]
            yield from pa.Table.from_arrays(known, names=columns).to_batches(max_chunksize=rows)
        if begun:
            self._refuse_open_quotes(self._scanned())
        self.found.remarks = self._remarks(lines)

    def _below_names(self, lines: Counter[str]) -> Iterator[bytes]:
        """Yield the text below the names, in blocks of whole lines."""
        skipped = self.reading.header_rows[1]
        for text in line_blocks(self.path):
            end = 0
            for line in text.splitlines(keepends=True) if skipped else ():
                if self.comment and is_comment(line, self.comment):
                    lines["comments"] += 1
                elif skipped:
                    skipped -= 1
                else:
                    break
                end += len(line)
            yield text[end:]

    def _parsed(self, text: bytes, columns: list[str], lines: Counter[str]) -> tuple[pa.Table, bytes]:
        """Return the rows of a text, and the end of the text if it begins a value that goes on in the next block.

        Lines that are not rows are counted. Raises TableError if rows and counted lines are not all lines of the text.
        """
        rest, delimiter = b"", self.delimiter.encode()
        try:
            block = self._parse(text, columns)
        except pa.ArrowInvalid:  # also if the text ends inside of quotation marks
            block = None
        # Every line is one row, and no text is open: then nothing can be wrong with lines and quotation marks.
        if (
            block is not None
            and len(block) == number_of_lines(text)
            and open_quote(last_line(text), delimiter, is_open=False) is None
        ):
            return block, rest
        each = text.splitlines(keepends=True)
        found = scan_lines(each, delimiter)
        if found.first_open is not None and not self.reading.allow_multiline:
            self._refuse_open_quotes(self._scanned())
        if found.unfinished is not None:
            whole, after = each[: found.unfinished - 1], each[found.unfinished - 1 :]
            found.continued -= len(after) - 1
            text, rest, block = b"".join(whole), b"".join(after), None
            if len(rest) > lines_in.LONGEST_LINE:
                self._refuse_open_quotes(self._scanned())
                raise too_long(self.path)
        try:
            block = self._parse(text, columns) if block is None else block
        except pa.ArrowInvalid as error:
            scanned = self._scanned(len(self.names))
            self._refuse_open_quotes(scanned)
            raise TableError(_explain(self.path, str(error), len(self.names), scanned.uneven)) from None
        if number_of_lines(text) != len(block) + found.empty + found.continued:
            self._refuse_open_quotes(self._scanned())
            raise TableError(
                f"{self.path}: {number_of_lines(text):,} lines below the names hold {len(block):,} rows, and neither "
                "empty lines nor quoted text explain the difference; check the quotation marks"
            )
        lines.update(empty=found.empty, continued=found.continued)
        return block, rest

    def _parse(self, text: bytes, columns: list[str]) -> pa.Table:
        """Return the columns as strings."""
        if not text:
            return pa.schema(dict.fromkeys(columns, pa.string())).empty_table()
        memory = pa.BufferOutputStream()  # memory of Arrow: its threads may release it after Python has ended
        memory.write(text)
        return arrow_csv.read_csv(
            pa.BufferReader(memory.getvalue()),
            arrow_csv.ReadOptions(column_names=self.names, block_size=len(text) + 1),
            arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(self.names, pa.string()), include_columns=columns, strings_can_be_null=False
            ),
        )

    def _remarks(self, lines: Counter[str]) -> tuple[str, ...]:
        """Return remarks on the lines that are neither rows nor the row of names."""
        counts = {
            f"begin with {self.comment.decode()}": lines["comments"],
            "are above the names": self.reading.header_rows[0],
            "are empty": lines["empty"],
        }
        left_out = [f"{count:,} lines {what}" for what, count in counts.items() if count]
        return (
            *([f"{lines['continued']:,} lines continue a quoted text of a line above"] if lines["continued"] else []),
            *([f"{', '.join(left_out)}: left out"] if left_out else []),
        )

    def _scanned(self, columns: int | None = None) -> ScannedLines:
        """Return the reasons why lines of the whole file are not rows, for messages with line numbers."""
        skipped = self.reading.header_rows[1]
        return scan_lines(lines_of(self.path), self.delimiter.encode(), self.comment, skipped, columns)

    def _refuse_open_quotes(self, found: ScannedLines) -> None:
        """Raise TableError for a quoted text that goes on over several lines, unless that is allowed."""
        if found.never_closed is not None:
            raise TableError(
                f"{self.path}: the quotation mark that opens a text in line {found.never_closed:,} is never closed, so "
                "the rest of the file would be one value; close it"
            )
        if found.first_open is not None and not self.reading.allow_multiline:
            raise TableError(
                f"{self.path}: a quoted text goes on over several lines, first in line {found.first_open:,}; close its "
                "quotation mark in that line, or, if text has line breaks in this table, allow them",
                allow_multiline=True,
            )


def _first_lines(path: Path, count: int, comment: bytes) -> list[bytes]:
    """Return the first ``count`` lines that are not comments."""
    lines = (line for line in lines_of(path) if not comment or not is_comment(line, comment))
    first = [line.rstrip(b"\r\n") for line in islice(lines, count)]
    if first and first[0].startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TableError(f"{path}: the file is in UTF-16; save it as UTF-8 (iconv -f UTF-16 -t UTF-8)")
    return first


def _decoded(path: Path, lines: list[bytes], num_strict: int) -> list[str]:
    """Return lines as text. The first ``num_strict`` lines must be valid UTF-8; others are decoded leniently."""
    try:
        names = [line.decode("utf-8") for line in lines[:num_strict]]
    except UnicodeDecodeError:
        names = None
    # A NUL byte in a row below is refused with its row and column, but not in a picture or another binary file.
    if any(b"\0" in line for line in (lines if names is None else lines[:num_strict])):
        raise TableError(
            f"{path}: the first lines hold NUL bytes, so this is not a text file; save it as text in UTF-8"
        )
    if names is None:
        raise TableError(_not_utf8(path))
    return names + [line.decode("utf-8", "replace") for line in lines[num_strict:]]


def _refuse_nul(path: Path, block: pa.RecordBatch, start: int) -> None:
    """Raise TableError if a block of rows holds a NUL byte. ``start`` rows precede the block."""
    for name, column in zip(block.schema.names, block.columns, strict=True):
        first = pc.index(pc.match_substring(column, "\0"), True).as_py()
        if first >= 0:
            raise TableError(
                f"{path}: row {start + first + 1}, column {name!r}, holds a NUL byte, so the file is damaged or is not "
                "text; write the file again, or remove the NUL bytes, for example with: tr -d '\\000'"
            )


def _explain(path: Path, error: str, columns: int, line: int | None) -> str:
    """Return a message for an error of Arrow's CSV parser. ``line`` is the first line with other than ``columns``
    values, if one is known."""
    error = error.splitlines()[0]
    if "invalid UTF8" in error or "invalid UTF-8" in error:
        return _not_utf8(path)
    if "Expected" in error and "columns" in error:
        # Arrow counts rows only in one thread, and without the comments.
        detail = re.sub("^CSV parse error: (Row #[0-9]+: )?", f"line {line:,}: " if line else "", error)
        return (
            f"{path}: not every line has the header's {columns} columns ({detail}); repair those lines, or quote "
            "values that contain the delimiter"
        )
    return f"{path}: not a readable CSV file: {error}"


def _not_utf8(path: Path) -> str:
    """Return the message for a file that is not in UTF-8, with its first invalid byte."""
    where = ""
    for number, line in enumerate(lines_of(path), 1):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            where = f" (line {number} holds the byte 0x{line[error.start]:02x})"
            break
    return f"{path}: the file is not in UTF-8{where}; convert it, for example with: iconv -f LATIN1 -t UTF-8"
