"""The head of a CSV file: the delimiter, and whether the first line holds the column names."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from cubicflow.tables.read.table import check_names
from cubicflow.tables.read.text.reading import NO_HEADER, Reading
from cubicflow.tables.table_error import TableError, some

DELIMITERS = ",;\t|"
INDEX = "__index_level_0__"  # the name that pandas gives to an unnamed index in Parquet files
ROWS_BELOW = 20  # rows to compare with the names
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?")
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T].*)?|[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{2,4}")


class Head(NamedTuple):
    """The head of a file: the delimiter, the column names, and the number of lines before the first row."""

    delimiter: str
    names: list[str]
    lines: int


def read_head(path: Path, lines: Sequence[str], reading: Reading) -> Head:
    """Return the head of a file, parsed from the first lines.

    Raises:
        TableError: the header is missing or invalid, or the row of names looks like a row of values and
            ``reading.header`` is None.

    >>> read_head(Path("t.csv"), ["a;b", "1;2"], Reading())
    Head(delimiter=';', names=['a', 'b'], lines=1)
    >>> read_head(Path("t.csv"), ["1;2", "3;4"], Reading(header="none"))
    Head(delimiter=';', names=['x0', 'x1'], lines=0)
    """
    first, end = reading.header_rows
    top = [*lines[first:end]] if reading.header != NO_HEADER else [*lines[:1]]
    if len(top) < max(end - first, 1):
        raise TableError(
            f"{path}: there is no row {end - 1} to hold the names: the file has {len(lines)} lines; choose another row",
            "--header",
        )
    delimiter = _delimiter(top if reading.header != NO_HEADER else lines)
    try:
        rows = [next(csv.reader([line], delimiter=delimiter), []) for line in top]
    except csv.Error as error:
        raise TableError(f"{path}: the first line is not a row of column names: {error}") from None
    if reading.header == NO_HEADER:
        return Head(delimiter, plain_names(len(rows[0])), 0)
    names = header_cells(rows)
    if not any(names):
        which = "the first line" if end == 1 else f"row {end - 1}"
        raise TableError(f"{path}: {which} is empty; put the column names there")
    if len(names) > 1 and not names[0] and all(names[1:]):
        names[0] = INDEX
    if reading.header is None:
        ask_whether_names(path, names, _rows(lines[end : end + ROWS_BELOW], delimiter))
    check_names(path, names)
    return Head(delimiter, names, end)


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


def ask_whether_names(path: object, names: Sequence[str], below: Sequence[Sequence[str]]) -> None:
    """Raise TableError if the row of names looks like the rows below, because the row may hold values."""
    if not looks_like_values(names, below):
        return
    shown = some([name for name in names if name != INDEX], 3)
    raise TableError(
        f"{path}: the first row ({shown}) looks like values: is it a row of the table, or does it hold the names? "
        "State that there are no names, or that row 0 holds the names,",
        "--header none or --header 0",
    )


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


def _rows(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    try:
        return [*csv.reader(lines, delimiter=delimiter)]
    except csv.Error:
        return []


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


def plain_names(count: int) -> list[str]:
    """Return the names x0, x1, ... for columns without names."""
    return [f"x{i}" for i in range(count)]
