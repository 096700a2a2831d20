"""Settings for reading a table: the rows of the names, the mark of comment lines, the notations of columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cubicflow.tables.read.text.notations import Notation, notation_from_json
from cubicflow.tables.table_error import TableError

if TYPE_CHECKING:
    from cubicflow.tables.read.table import Table

NO_HEADER = "none"
MOST_HEADER = 100  # rows above the first row of values
MOST_COMMENT = 8  # characters


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
    notations: Mapping[str, Notation] = field(default_factory=dict)
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
        found: dict[str, Any] = {"header": self.header, "comment": self.comment, "formats": notations or None}
        found["allow_multiline"] = self.allow_multiline or None
        return {key: value for key, value in found.items() if value is not None}

    @classmethod
    def from_json(cls, value: Any) -> Reading:
        """Return the settings that :meth:`to_json` wrote. Every field is checked; TableError if one is invalid."""
        if not isinstance(value, dict) or value.keys() - {"header", "comment", "formats", "allow_multiline"}:
            raise TableError(
                f"reading should be an object of header, comment, formats and allow_multiline, got {str(value)[:80]}"
            )
        header, comment, notations = value.get("header"), value.get("comment"), value.get("formats", {})
        multiline = value.get("allow_multiline", False)
        if not isinstance(header, str | None) or not isinstance(comment, str | None) or not isinstance(notations, dict):
            raise TableError("header and comment should be text, and formats an object with the names of columns")
        if not isinstance(multiline, bool):
            raise TableError(f"allow_multiline should be true or false, got {str(multiline)[:80]}")
        return cls(header, comment, {name: notation_from_json(found) for name, found in notations.items()}, multiline)


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
