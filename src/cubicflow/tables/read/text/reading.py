"""Settings for reading a table of text, and its head: the delimiter, and the rows that hold the column names."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from cubicflow.saved import SavedValueError, from_json
from cubicflow.tables.read.table import Table, check_names
from cubicflow.tables.read.text.notations import AnyNotation
from cubicflow.tables.table_error import TableError, some

NO_HEADER = "none"
MOST_HEADER = 100  # rows above the first row of values
MOST_COMMENT = 8  # characters
DELIMITERS = ",;\t|"
INDEX = "__index_level_0__"  # the name that pandas gives to an unnamed index in Parquet files
ROWS_BELOW = 20  # rows to compare with the names
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?")
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T].*)?|[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{2,4}")


@dataclass(frozen=True)
class Reading:
    """Settings for reading a file: the user's options, and the notations found in the columns.

    Attributes:
        header: the row of the column names, counted from 0; ``"0-1"`` for names in several rows; ``"none"`` for a table
            without names. None means row 0, which is refused if it looks like values.
        comment: the start of comment lines, which are skipped.
        notations: the notations of columns that are not written plainly. Empty until a table is fitted.
        allow_multiline: whether a quoted text of a CSV file may have line breaks. Otherwise it is refused, because a
            quotation mark that is never closed would swallow rows.

    >>> Reading(header="1-2").header_rows
    (1, 3)
    >>> Reading(header="none").header_rows
    (0, 0)
    """

    header: str | None = None
    comment: str | None = None
    notations: dict[str, AnyNotation] = field(default_factory=dict, metadata={"key": "formats"})
    allow_multiline: bool = False

    def __post_init__(self) -> None:
        if self.header is not None:
            found = re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", self.header)
            first, last = (0, 0) if found is None else (int(found[1]), int(found[2] or found[1]))
            if self.header != NO_HEADER and (found is None or not first <= last < MOST_HEADER):
                raise TableError(
                    f"header should be the row of the names counted from 0, such as 0 or 2, or rows such as 0-1, or "
                    f"{NO_HEADER}, got {self.header!r}"
                )
        comment = self.comment
        if comment is not None and (not 0 < len(comment) <= MOST_COMMENT or re.search(r'[\s"]', comment)):
            raise TableError(
                "comment should be the start of comment lines, such as #, at most "
                f"{MOST_COMMENT} characters without blanks and quotes, got {comment!r}"
            )

    @property
    def header_rows(self) -> tuple[int, int]:
        """The first row of the names, and the first row after the names."""
        if self.header == NO_HEADER:
            return 0, 0
        first, _, last = (self.header or "0").partition("-")
        return int(first), int(last or first) + 1

    def with_options(
        self, header: str | None = None, comment: str | None = None, allow_multiline: bool = False
    ) -> Reading:
        """Return the settings with the given options. An option that is None or false keeps its value."""
        return replace(
            self,
            header=self.header if header is None else header,
            comment=comment or self.comment,
            allow_multiline=allow_multiline or self.allow_multiline,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults."""
        notations = {name: notation.to_json() for name, notation in self.notations.items()}
        found: dict[str, Any] = {"header": self.header, "comment": self.comment, "formats": notations}
        found["allow_multiline"] = self.allow_multiline
        return {key: value for key, value in found.items() if value}

    @classmethod
    def from_json(cls, value: Any) -> Reading:
        """Return the settings that :meth:`to_json` wrote. Every field is checked; TableError if one is invalid."""
        try:
            return from_json(cls, value, exact=True)
        except SavedValueError as error:
            raise TableError(f"the section on how to read the table {error}") from None


DEFAULT_READING = Reading()


def check_reading(table: Table, reading: Reading) -> None:
    """Raise TableError if an option is given that does not apply to this kind of table."""
    has_lines = table.text is not None and table.text.delimiter is not None
    for option, value, applies in (
        ("header", reading.header, table.text is not None and table.text.has_header),
        ("comment", reading.comment, has_lines),
        ("allow_multiline", reading.allow_multiline or None, has_lines),
    ):
        if value is not None and not applies:
            raise TableError(f"{table.name}: this kind of table has no {option} to choose; leave {option!r} out")


# --- the head of a file ---


def read_head(path: Path, lines: Sequence[str], reading: Reading) -> tuple[str, list[str]]:
    """Return the delimiter of a file and its column names, parsed from the first lines. Raises TableError as
    :func:`names_of` does.

    >>> read_head(Path("t.csv"), ["a;b", "1;2"], Reading())
    (';', ['a', 'b'])
    >>> read_head(Path("t.csv"), ["1;2", "3;4"], Reading(header="none"))
    (';', ['x0', 'x1'])
    """
    first, end = reading.header_rows
    has_names = reading.header != NO_HEADER
    top, below = lines[first:end] if has_names else lines[:1], lines[end : end + ROWS_BELOW]
    if len(top) < max(end - first, 1):
        raise TableError(
            f"{path}: there is no row {end - 1} to hold the names: the file has {len(lines)} lines; choose another row",
            header=...,
        )
    delimiter = _delimiter(top if has_names else lines)
    try:
        rows = [next(csv.reader([line], delimiter=delimiter), []) for line in top]
    except csv.Error as error:
        raise TableError(f"{path}: the first line is not a row of column names: {error}") from None
    cells: list[list[str]] = []
    with suppress(csv.Error):
        cells = [*csv.reader(below, delimiter=delimiter)]
    return delimiter, names_of(path, rows, cells, reading, "the first line" if end < 2 else f"row {end - 1}")


def names_of(
    table: object, rows: list[list[str]], below: Sequence[Sequence[str]], reading: Reading, where: str
) -> list[str]:
    """Return the column names in the cells of the header rows; x0, x1, ... for a table without names.

    Args:
        table: a name of the table for messages.
        rows: the rows that hold the names; the first row of a table without names.
        below: rows below the names.
        where: the name of the last header row in messages.

    Raises:
        TableError: the header is empty, a column has no name, two columns have one name, or the row of names looks like
            a row of values and ``reading.header`` is None.
    """
    if reading.header == NO_HEADER:
        if not rows[0]:
            raise TableError(
                f"{table}: {where} is empty, and a table without names begins with a row; remove that line"
            )
        return [f"x{i}" for i in range(len(rows[0]))]
    names = header_cells(rows)
    if not any(names):
        raise TableError(f"{table}: {where} is empty; choose the row that holds the names", header=...)
    if len(names) > 1 and not names[0] and all(names[1:]):
        names[0] = INDEX
    if reading.header is None and looks_like_values(names, below):
        shown = some([name for name in names if name != INDEX], 3)
        raise TableError(
            f"{table}: the first row ({shown}) looks like values: is it a row of the table, or does it hold the names? "
            "State that there are no names, or that row 0 holds the names,",
            header=("none", 0),
        )
    check_names(table, names)
    return names


def _delimiter(lines: Sequence[str]) -> str:
    """Return the delimiter of some lines.

    A mark other than the comma wins if all lines hold it equally often: values may hold decimal commas. Otherwise the
    most frequent mark of the last line wins.

    >>> _delimiter(["1,5;2,5;0", "3;4,5;1"])
    ';'
    """
    unquoted = [re.sub(r'"[^"]*"?', "", line) for line in lines if line]
    counts = {mark: {line.count(mark) for line in unquoted} for mark in DELIMITERS}
    even = [mark for mark in DELIMITERS[1:] if len(unquoted) > 1 and len(counts[mark]) == 1 and counts[mark] != {0}]
    last = unquoted[-1] if unquoted else ""
    return even[0] if even else max(DELIMITERS, key=last.count)  # the comma wins ties, as in a file with one column


def looks_like_values(names: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Return whether a row of names looks like the rows below it.

    The row looks like values if every name is a number, if some names are numbers above numbers and no name is a word
    above a number, or if every name appears again in its own column.

    >>> looks_like_values(["5.1", "setosa"], [["4.9", "setosa"]])
    True
    >>> looks_like_values(["town", "1990", "1991"], [["Ulm", "7", "8"]])
    False
    """
    named = [name for name in names if name != INDEX]
    if all(NUMBER.fullmatch(name) for name in named):
        return True
    rows = [row for row in below if len(row) == len(names)]
    numbers = [name for name in named if NUMBER.fullmatch(name) or DATE.fullmatch(name)]
    word_above_number = any(
        not _is_value(name) and any(_is_value(row[i]) for row in rows) for i, name in enumerate(names) if name != INDEX
    )
    if word_above_number:
        return False
    if numbers:
        return not _equally_spaced(numbers) and any(
            _is_value(name) and all(_is_value(row[i]) for row in rows if row[i]) for i, name in enumerate(names)
        )
    return bool(rows) and all(any(row[i] == name for row in rows) for i, name in enumerate(names) if name != INDEX)


def _is_value(cell: str) -> bool:
    return bool(NUMBER.fullmatch(cell.strip()) or DATE.fullmatch(cell.strip()))


def _equally_spaced(numbers: Sequence[str]) -> bool:
    """Return whether whole numbers increase in equal steps. Such numbers may be column names, such as years."""
    if len(numbers) < 2 or not all(re.fullmatch("[0-9]{1,9}", number) for number in numbers):
        return False
    steps = {int(after) - int(before) for before, after in pairwise(numbers)}
    return len(steps) == 1 and steps.pop() > 0


def header_cells(rows: list[list[str]]) -> list[str]:
    """Return the column names from one or several header rows.

    Names in several rows are joined by spaces. A name in an upper row also covers the empty cells to its right.

    >>> header_cells([["size", "", "kind"], ["width", "height", ""]])
    ['size width', 'size height', 'kind']
    """
    if len(rows) == 1:
        return [cell.strip() for cell in rows[0]]
    width = max(map(len, rows))
    parts: list[list[str]] = [[] for _ in range(width)]
    for i, row in enumerate(rows):
        above = ""
        for j in range(width):
            cell = row[j].strip() if j < len(row) else ""
            above = cell or (above if i < len(rows) - 1 else "")
            parts[j] += [above] if above else []
    return [" ".join(part) for part in parts]
