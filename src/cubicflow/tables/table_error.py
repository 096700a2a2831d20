"""The error of tables, and lists of names and errors of other libraries for its messages."""

from __future__ import annotations

from collections.abc import Sequence


class TableError(ValueError):
    """An error about a table or a request to it. The message says what was found, where, and what to do.

    The message itself names no command-line option. ``option`` is the option for the last advice of the message.
    The command line appends the option to the message.

    >>> error = TableError("column 'id' is text; leave it out", "--drop id").about("people.csv")
    >>> str(error), error.option
    ("people.csv: column 'id' is text; leave it out", '--drop id')
    """

    def __init__(self, message: str, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option

    def about(self, table: object) -> TableError:
        """Return the error with the table's name in front of the message, unless it is there already."""
        where = f"{table}: "
        return self if str(self).startswith(where) else TableError(f"{where}{self}", self.option)


def one_line(error: BaseException) -> str:
    """Return the first line of another library's error; the name of its class if it has no text.

    >>> one_line(ValueError("bad magic\\nat byte 3")), one_line(EOFError())
    ('bad magic', 'EOFError')
    """
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def some(values: Sequence[object], most: int = 5) -> str:
    """Return the first few values and the number of the others, as in ``'a', 'b' and 7 more``."""
    return listed([repr(value) for value in values], most)


def listed(texts: Sequence[str], most: int = 5) -> str:
    """Return the first few texts, without quotes, and the number of the others."""
    first = ", ".join(texts[:most])
    return first if len(texts) <= most else f"{first} and {len(texts) - most} more"
