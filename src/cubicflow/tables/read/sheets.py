"""Sheets of .xlsx workbooks, read by openpyxl once and as text: the cells of a column may have different types."""

from __future__ import annotations

import io
import re
import warnings
import zipfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from cubicflow.extras import need
from cubicflow.tables.read.file_checks import check_unpacked
from cubicflow.tables.read.table import Kept, Origin, Table, Text, as_text, as_text_rows, types_of
from cubicflow.tables.read.text.reading import ROWS_BELOW, Reading, names_of
from cubicflow.tables.table_error import TableError, one_line, some

OLD_EXCEL = b"\xd0\xcf\x11\xe0"
ERRORS = frozenset({"#DIV/0!", "#REF!", "#VALUE!", "#NAME?", "#NUM!", "#NULL!", "#N/A"})  # cells without a value
CELLS = re.compile(r"\$?([A-Za-z]{1,3})\$?([0-9]{1,7}):\$?([A-Za-z]{1,3})\$?([0-9]{1,7})")
Row = tuple[object, ...]


def sheet_table(path: Path, reading: Reading, sheet: str | None = None, cells: str | None = None) -> Table:
    """Return the one table on one sheet of a workbook.

    ``sheet`` is the title of the sheet; None for the first sheet. ``cells`` is a range such as ``A3:F200``; None for
    all cells.
    """
    if not path.is_file():
        raise TableError(f"{path}: there is no such file; check the path")
    origin, content = Origin.of(path), path.read_bytes()
    title, others, rows = _rows(path, content, sheet, cells)
    names, values, empty = _one_table(path, title, rows, reading, is_chosen=cells is not None)
    chosen = [f"{key}={value}" for key, value in (("sheet", sheet), ("cells", cells)) if value]
    source = f"xlsx:{path.resolve()}?{'&'.join(chosen)}" if chosen else str(path.resolve())
    above = reading.header_rows[0]
    counts = {f"{above:,} rows are above the names": above, f"{empty:,} rows are empty": empty}
    left_out = ", ".join(what for what, count in counts.items() if count)
    notes = (
        *([f"the workbook has {len(others) + 1} sheets; {title!r} is read, not {some(others)}"] if others else []),
        *([f"{left_out}: left out"] if left_out else []),
    )
    kept = as_text_rows(path, names, values)
    text = Text(has_header=True)
    origin = replace(origin, source=source)
    return Table(str(path), types_of(path, kept.schema), Kept(kept), origin, text, notes).settled()


def _rows(path: Path, content: bytes, sheet: str | None, cells: str | None) -> tuple[str, list[str], list[Row]]:
    """Return the title of the sheet that is read, the titles of the other sheets if ``sheet`` is None, and the rows."""
    try:
        openpyxl = need("openpyxl", "a spreadsheet")
    except ImportError as error:
        raise TableError(f"{path}: {error}") from None
    if content.startswith(OLD_EXCEL):
        raise TableError(f"{path}: this workbook is older than .xlsx, or has a password; save it as plain .xlsx")
    bounds = {} if cells is None else _bounds(path, cells, openpyxl.utils.column_index_from_string)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            check_unpacked(path, len(content), sum(part.file_size for part in archive.infolist()))
        with (
            warnings.catch_warnings(action="ignore"),  # openpyxl warns of styles and validations, which are not read
            closing(openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)) as book,
        ):
            titles = [found.title for found in book.worksheets]
            title = sheet or next(iter(titles), "")
            rows: list[Row] = []
            if title in titles:
                book[title].reset_dimensions()  # some programs write wrong dimensions
                rows = [tuple(map(_value, row)) for row in book[title].iter_rows(values_only=True, **bounds)]
    except TableError:
        raise
    except Exception as error:  # openpyxl passes on errors of any type
        raise TableError(f"{path}: not a readable workbook: {one_line(error)}") from None
    if not titles:
        raise TableError(f"{path}: the workbook has no sheet with cells; save the table in a sheet")
    if title not in titles:
        raise TableError(f"{path}: there is no sheet {sheet!r}; the sheets are {some(titles, 10)}")
    while rows and all(cell is None for cell in rows[-1]):  # Excel keeps the format of rows below the table
        rows.pop()
    return title, [other for other in titles if other != title] if sheet is None else [], rows


def _bounds(path: Path, cells: str, number_of: Callable[[str], int]) -> dict[str, int]:
    found = CELLS.fullmatch(cells)
    if found is None:
        raise TableError(f"{path}: cells should be two corners, such as A1:F200, got {cells!r}")
    left, top, right, bottom = number_of(found[1]), int(found[2]), number_of(found[3]), int(found[4])
    if not 0 < top <= bottom or left > right:
        raise TableError(
            f"{path}: cells go from the upper left to the lower right corner, such as A1:F200, got {cells!r}"
        )
    return {"min_row": top, "max_row": bottom, "min_col": left, "max_col": right}


def _value(cell: Any) -> object:
    return None if isinstance(cell, str) and not cell.strip() else cell


def _one_table(
    path: Path, sheet: str, rows: list[Row], reading: Reading, *, is_chosen: bool
) -> tuple[list[str], list[Row], int]:
    """Return the names and rows of the one table on a sheet, and the number of empty rows among them.

    Raises:
        TableError: the sheet holds no table or, unless ``is_chosen``, several tables.
    """
    width = max((len(row) for row in rows), default=0)
    rows = [row + (None,) * (width - len(row)) for row in rows]
    first, end = reading.header_rows
    top, below = rows[first:end], rows[end:]
    used = [i for i in range(width) if any(row[i] is not None for row in (*top, *below))]
    if not used or not any(any(cell is not None for cell in row) for row in below):
        raise TableError(f"{path}: the sheet {sheet!r} holds no rows below the names; choose a sheet with rows")
    if not is_chosen:
        _refuse_several(path, sheet, used, below, end)
    filled = [row for row in below if any(cell is not None for cell in row)]
    empty = len(below) - len(filled)
    below = [tuple(None if row[i] in ERRORS else row[i] for i in used) for row in filled]
    titles = [[as_text(row[i]) or "" for i in used] for row in top] or [[""] * len(used)]
    shown = [[as_text(cell) or "" for cell in row] for row in below[:ROWS_BELOW]]
    return names_of(path, titles, shown, reading, f"row {end - 1} of the sheet {sheet!r}"), below, empty


def _refuse_several(path: Path, sheet: str, used: Sequence[int], below: Sequence[Row], end: int) -> None:
    """Raise TableError if an empty column or an empty row separates two tables."""
    letters = [need("openpyxl", "a spreadsheet").utils.get_column_letter(i + 1) for i in range(used[-1] + 1)]
    filled = [any(cell is not None for cell in row) for row in below]
    last = max(i for i, is_filled in enumerate(filled) if is_filled)
    first_break = next(((left, right) for left, right in pairwise(used) if right > left + 1), None)
    if first_break is not None:
        left, right = first_break
        what = f"column {letters[left + 1]} is empty, and column {letters[right]} is not"
        corner = f"{letters[left]}{end + last + 1}"
    elif not all(filled[: last + 1]):
        row = filled.index(False)
        what = f"row {end + row + 1} is empty, and there are cells below it"
        corner = f"{letters[-1]}{end + row}"
    else:
        return
    raise TableError(
        f"{path}: the sheet {sheet!r} holds more than one table: {what}; choose the cells of one table: "
        f"xlsx:{path}?sheet={sheet}&cells={letters[used[0]]}1:{corner}"
    )
