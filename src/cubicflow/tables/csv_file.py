"""CSV files, read as text: what a column means is decided over all of its rows, not from the first block."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BufferedReader
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from cubicflow.tables.errors import TableError, some
from cubicflow.tables.source import BATCH_ROWS, Table, check_names

# What stands for a missing value, as pandas and arrow read it.
MISSING = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
LONGEST_HEADER = 1 << 22
BLOCK_BYTES = 1 << 22


class CsvTable(Table):
    """A CSV file with a line of names; the delimiter is the most frequent of ``, ; tab |`` outside of that line's
    quotes."""

    is_text = True

    def __init__(self, path: Path) -> None:
        header = _first_line(path)
        unquoted = re.sub(r'"[^"]*"?', "", header)
        self.delimiter = max(",;\t|", key=unquoted.count)  # ties, as in a file of one column, go to the comma
        try:
            names = [name.strip() for name in next(csv.reader([header], delimiter=self.delimiter), [])]
        except csv.Error as error:
            raise TableError(f"{path}: the first line is no line of column names: {error}") from None
        if not any(names):
            raise TableError(f"{path}: the first line is empty; put the column names there")
        check_names(path, names)
        if all(_is_number(name) for name in names):
            raise TableError(
                f"{path}: the first line holds numbers ({some(names, 3)}) where column names belong; put a line of "
                "names above it"
            )
        super().__init__(path, dict.fromkeys(names, pa.string()))

    def batches(self, columns: Sequence[str] | None = None, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        names = self.names
        wanted = names if columns is None else list(columns)
        missing = pa.array(MISSING)
        try:
            reader = arrow_csv.open_csv(
                self.path,
                read_options=arrow_csv.ReadOptions(column_names=names, skip_rows=1, block_size=BLOCK_BYTES),
                parse_options=arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()), include_columns=wanted, strings_can_be_null=False
                ),
            )
            for block in reader:
                trimmed = [pc.utf8_trim_whitespace(column) for column in block.columns]
                known = [pc.if_else(pc.is_in(column, missing), None, column) for column in trimmed]
                whole = pa.RecordBatch.from_arrays(known, names=wanted)
                for start in range(0, len(whole), rows):
                    yield whole.slice(start, rows)
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):  # a header and nothing else
                return
            raise TableError(_explain(self.path, str(error), len(names))) from None
        except (OSError, EOFError) as error:
            raise TableError(f"{self.path}: cannot be read: {error}") from None


def _first_line(path: Path) -> str:
    try:
        with _open(path) as file:
            start = file.read(4)
            if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
                raise TableError(f"{path}: the file is in UTF-16; save it as UTF-8 (iconv -f UTF-16 -t UTF-8)")
            line = start + file.readline(LONGEST_HEADER)
    except (OSError, EOFError) as error:
        raise TableError(f"{path}: cannot be read: {error}") from None
    if b"\0" in line:
        raise TableError(f"{path}: the first line holds NUL bytes, so this is not a file of text")
    # a first line shorter than four bytes was read past its end, and some programs end lines by a return alone
    line = re.split(rb"[\r\n]", line, maxsplit=1)[0]
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise TableError(_not_utf8(path)) from None


def _open(path: Path) -> gzip.GzipFile | BufferedReader:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def _explain(path: Path, error: str, columns: int) -> str:
    error = error.splitlines()[0]
    if "invalid UTF8" in error or "invalid UTF-8" in error:
        return _not_utf8(path)
    if "Expected" in error and "columns" in error:
        detail = error.removeprefix("CSV parse error: ")
        return (
            f"{path}: not every line has the header's {columns} columns ({detail}); mend those lines, or put values "
            "that hold the delimiter in quotes"
        )
    if "straddling" in error:
        return (
            f"{path}: a value is longer than {BLOCK_BYTES >> 20} MiB, most likely because a quotation mark is never "
            "closed; find and close it"
        )
    return f"{path}: not a readable CSV file: {error}"


def _not_utf8(path: Path) -> str:
    where = ""
    with suppress(OSError, EOFError), _open(path) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                where = f" (line {number} holds the byte 0x{line[error.start]:02x})"
                break
    return f"{path}: the file is not in UTF-8{where}; convert it, for example with: iconv -f LATIN1 -t UTF-8"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
