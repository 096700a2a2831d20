"""CSV files, read as text: the type of a column is decided over all of its rows, not from the first block.

A file is read once. Callers that need several passes spool it into Arrow batches. The same pass finds the types of the
text and the fingerprint of the file.
"""

from __future__ import annotations

import gzip
import io
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from cubicflow.tables.read.file_checks import FingerprintedFile, Unpacked
from cubicflow.tables.read.table import MISSING, Found, Origin, Table, Text
from cubicflow.tables.read.text.lines import (
    CountedLines,
    ScannedLines,
    WithoutComments,
    is_comment,
    lines_of,
    open_quote,
    scan_lines,
)
from cubicflow.tables.read.text.reading import ROWS_BELOW, Reading, read_head
from cubicflow.tables.table_error import TableError

BLOCK_BYTES = 1 << 22
LONGEST_WAIT = 10.0  # seconds


def csv_table(path: Path, reading: Reading) -> Table:
    """Return the table in a CSV file. The delimiter is one of ``, ; tab |`` outside quotes, found in the first lines.

    Every line is a row, a part of the header, or counted in ``remarks`` after the first pass. Quoted text with line
    breaks is refused unless ``reading`` allows it: one quotation mark that is never closed would make a single value of
    all rows up to the next one.
    """
    origin, comment = Origin.of(path), (reading.comment or "").encode()
    above, rows = reading.header_rows
    lines = _first_lines(path, max(rows, 1) + ROWS_BELOW, comment)
    head = read_head(path, _decoded(path, lines, max(rows, 1)), reading)
    for number, line in enumerate(lines[above:rows], above):
        if open_quote(line, head.delimiter.encode(), is_open=False) is not None:
            raise TableError(
                f"{path}: row {number} holds the names, and its last quotation mark is not closed in that row; "
                "close it, or write every name in one line"
            )
    found = Found()
    file = _CsvFile(path, head.names, head.delimiter, comment, above, head.lines, reading.allow_multiline, found)
    types = dict.fromkeys(head.names, pa.string())
    return Table(str(path), types, file.read, origin, Text(head.delimiter, has_header=True), found=found)


@dataclass(frozen=True)
class _CsvFile:
    """The rows of a CSV file. ``above`` lines are above the names, and ``skipped`` lines above the first row. The
    fingerprint and the remarks on lines without a row go to ``found``."""

    path: Path
    names: list[str]
    delimiter: str
    comment: bytes
    above: int
    skipped: int
    allow_multiline: bool
    found: Found

    def read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        missing = pa.array(MISSING)
        try:
            with FingerprintedFile(self.path) as file:
                text: io.RawIOBase = Unpacked(self.path, file) if self.path.suffix == ".gz" else file
                comments = WithoutComments(text, self.comment, self.delimiter.encode()) if self.comment else None
                lines = CountedLines(text if comments is None else comments)
                start = 0
                for block in self._blocks(lines, columns):
                    _refuse_nul(self.path, block, start)
                    start += len(block)
                    trimmed = [pc.utf8_trim_whitespace(column) for column in block.columns]
                    known = [pc.if_else(pc.is_in(column, missing), None, column) for column in trimmed]
                    yield from pa.Table.from_arrays(known, names=columns).to_batches(max_chunksize=rows)
                while lines.read(BLOCK_BYTES):  # lines that the parser did not need
                    pass
                self.found.fingerprint = file.fingerprint()
            if open_quote(lines.last_line, self.delimiter.encode(), is_open=False) is not None:
                self._refuse_open_quotes(self._scanned())  # no row is lost, but the file may have been cut off
            self.found.remarks = self._account(lines.count, start, 0 if comments is None else comments.count)
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):  # the file holds only a header
                return
            scanned = self._scanned(len(self.names))
            self._refuse_open_quotes(scanned)
            raise TableError(_explain(self.path, str(error), len(self.names), scanned.uneven)) from None
        except (OSError, EOFError) as error:
            raise TableError(_unreadable(self.path, error)) from None

    def _blocks(self, lines: CountedLines, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the columns as strings, block by block. Ends, also with an error, when Arrow has released the file.

        A thread of Arrow releases it, and aborts the process if Python ends in this moment.
        """
        released = threading.Event()
        reader = None
        try:
            reader = arrow_csv.open_csv(
                pa.input_stream(_Lent(lines, released)),
                read_options=arrow_csv.ReadOptions(
                    column_names=self.names, skip_rows=self.skipped, block_size=BLOCK_BYTES
                ),
                parse_options=arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(self.names, pa.string()),
                    include_columns=columns,
                    strings_can_be_null=False,
                ),
            )
            yield from reader
        finally:
            del reader
            released.wait(LONGEST_WAIT)

    def _account(self, lines: int, rows: int, comments: int) -> tuple[str, ...]:
        """Return remarks on the lines that are neither rows nor the row of names.

        Raises TableError if the rows and these lines are not all lines of the file.
        """
        counts = {f"begin with {self.comment.decode()}": comments, "are above the names": self.above}
        remarks = []
        if lines - self.skipped != rows:
            scanned = self._scanned()
            self._refuse_open_quotes(scanned)
            counts["are empty"] = scanned.empty
            if scanned.continued:
                remarks.append(f"{scanned.continued:,} lines continue a quoted text of a line above")
            if lines - self.skipped != rows + scanned.empty + scanned.continued:
                raise TableError(
                    f"{self.path}: {lines - self.skipped:,} lines below the names hold {rows:,} rows, and neither "
                    "empty lines nor quoted text explain the difference; check the quotation marks"
                )
        if found := [f"{count:,} lines {what}" for what, count in counts.items() if count]:
            remarks.append(f"{', '.join(found)}: left out")
        return tuple(remarks)

    def _scanned(self, columns: int | None = None) -> ScannedLines:
        try:
            with _open(self.path) as file:
                return scan_lines(file, self.delimiter.encode(), self.comment, self.skipped, columns)
        except (OSError, EOFError) as error:
            raise TableError(_unreadable(self.path, error)) from None

    def _refuse_open_quotes(self, found: ScannedLines) -> None:
        """Raise TableError for a quoted text that goes on over several lines, unless that is allowed."""
        if found.never_closed is not None:
            raise TableError(
                f"{self.path}: the quotation mark that opens a text in line {found.never_closed:,} is never closed, so "
                "the rest of the file would be one value; close it"
            )
        if found.first_open is not None and not self.allow_multiline:
            raise TableError(
                f"{self.path}: a quoted text goes on over several lines, first in line {found.first_open:,}; close its "
                "quotation mark in that line, or, if text has line breaks in this table, allow them",
                allow_multiline=True,
            )


class _Lent(io.RawIOBase):
    """A file for a reader in another thread. Sets ``released`` when nothing refers to it any more."""

    def __init__(self, file: CountedLines, released: threading.Event) -> None:
        super().__init__()
        self._file, self._released = file, released

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)

    def __del__(self) -> None:
        self._released.set()


def _first_lines(path: Path, count: int, comment: bytes) -> list[bytes]:
    """Return the first ``count`` lines that are not comments."""
    try:
        with _open(path) as file:
            if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):
                raise TableError(f"{path}: the file is in UTF-16; save it as UTF-8 (iconv -f UTF-16 -t UTF-8)")
            file.seek(0)
            lines = (line for line in lines_of(file) if not comment or not is_comment(line, comment))
            return [line.rstrip(b"\r\n") for line in islice(lines, count)]
    except (OSError, EOFError) as error:
        raise TableError(_unreadable(path, error)) from None


def _decoded(path: Path, lines: list[bytes], num_strict: int) -> list[str]:
    """Return lines as text. The first ``num_strict`` lines must be valid UTF-8; others are decoded leniently."""
    if any(b"\0" in line for line in lines[:num_strict]):
        raise TableError(
            f"{path}: the first line holds NUL bytes, so this is not a text file; save it as text in UTF-8"
        )
    try:
        names = [line.decode("utf-8") for line in lines[:num_strict]]
    except UnicodeDecodeError:
        raise TableError(_not_utf8(path)) from None
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


def _open(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


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
    if "straddling" in error:
        return (
            f"{path}: a value is longer than {BLOCK_BYTES >> 20} MiB, most likely because a quotation mark is never "
            "closed; close the quotation mark"
        )
    return f"{path}: not a readable CSV file: {error}"


def _unreadable(path: Path, error: OSError | EOFError) -> str:
    what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"{path}: cannot be read: {what}; check its permissions and its disk, or write the file again"


def _not_utf8(path: Path) -> str:
    """Return the message for a file that is not in UTF-8, with its first invalid byte."""
    where = ""
    with suppress(OSError, EOFError), _open(path) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                where = f" (line {number} holds the byte 0x{line[error.start]:02x})"
                break
    return f"{path}: the file is not in UTF-8{where}; convert it, for example with: iconv -f LATIN1 -t UTF-8"
