"""How a table is to be read: which rows hold the names, which lines are remarks, how columns write their values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cubicflow.tables.table_error import TableError
from cubicflow.tables.text.formats import Format, format_from_json

if TYPE_CHECKING:
    from cubicflow.tables.source import Table

NO_HEADER = "none"
MOST_HEADER = 100  # rows above the first row of values
MOST_COMMENT = 8  # characters


@dataclass(frozen=True)
class Reading:
    """What the user says about a file, and what was found out about its columns.

    Attributes:
        header: the row of the column names, counted from 0; ``"0-1"`` for names in several rows; ``"none"`` for a table
            without names. None for row 0, if that looks like names.
        comment: lines that begin with it are left out.
        formats: how columns write their values, where that is not the plain way. Empty until a table is fitted.

    >>> Reading(header="1-2").header_rows
    (1, 3)
    >>> Reading(header="none").header_rows
    (0, 0)
    """

    header: str | None = None
    comment: str | None = None
    formats: Mapping[str, Format] = field(default_factory=dict)

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
                "comment should be what lines of remarks begin with, such as #, without blanks and quotes, got "
                f"{comment!r}"
            )

    @property
    def header_rows(self) -> tuple[int, int]:
        """The first row of names, and the first row after them."""
        if self.header == NO_HEADER:
            return 0, 0
        first, _, last = (self.header or "0").partition("-")
        return int(first), int(last or first) + 1

    def told(self, header: str | None = None, comment: str | None = None) -> Reading:
        """The same with what the user says now."""
        return replace(self, header=self.header if header is None else header, comment=comment or self.comment)

    def to_json(self) -> dict[str, Any]:
        """Without what is as usual; nothing at all where everything is."""
        formats = {name: format.to_json() for name, format in self.formats.items()}
        found = {"header": self.header, "comment": self.comment, "formats": formats or None}
        return {key: value for key, value in found.items() if value is not None}

    @classmethod
    def from_json(cls, value: Any) -> Reading:
        """Trusts nothing."""
        if not isinstance(value, dict) or value.keys() - {"header", "comment", "formats"}:
            raise TableError(f"how a table is read should be header, comment and formats, got {str(value)[:80]}")
        header, comment, formats = value.get("header"), value.get("comment"), value.get("formats", {})
        if not isinstance(header, str | None) or not isinstance(comment, str | None) or not isinstance(formats, dict):
            raise TableError("a header and a comment are text, and formats have the names of columns")
        return cls(header, comment, {name: format_from_json(found) for name, found in formats.items()})


AS_USUAL = Reading()


def check_reading(table: Table, reading: Reading) -> None:
    """Refuse what was said of a table that has no use for it."""
    for word, said, useful in (
        ("header", reading.header, table.has_header),
        ("comment", reading.comment, table.delimiter is not None),
    ):
        if said is not None and not useful:
            raise TableError(f"{table.path}: this kind of table has no {word} to choose; leave out", f"--{word}")


def header_cells(rows: list[list[str]]) -> list[str]:
    """The names that one row or several spell: a name in an upper row stands for the cells to its right as well.

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
    """Names of columns that have none, as those of a NumPy array."""
    return [f"x{i}" for i in range(count)]
