"""What is wrong with a table, in one message that carries its answer."""

from __future__ import annotations

from collections.abc import Sequence


class TableError(ValueError):
    """A table, or what was asked of it, cannot be used: what was found, where, and what to do.

    The message never names an option of the command line. ``option`` is the one that does what the message advises
    last; the command line adds it.

    >>> error = TableError("column 'id' is text; leave it out", "--drop id").about("people.csv")
    >>> str(error), error.option
    ("people.csv: column 'id' is text; leave it out", '--drop id')
    """

    def __init__(self, message: str, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option

    def about(self, table: object) -> TableError:
        """The same with the table's name in front, if it is not there yet."""
        where = f"{table}: "
        return self if str(self).startswith(where) else TableError(f"{where}{self}", self.option)


def some(values: Sequence[object], most: int = 5) -> str:
    """A few of the values, and how many more there are: ``'a', 'b' and 7 more``."""
    return listed([repr(value) for value in values], most)


def listed(texts: Sequence[str], most: int = 5) -> str:
    """The same of values that are written already."""
    first = ", ".join(texts[:most])
    return first if len(texts) <= most else f"{first} and {len(texts) - most} more"
