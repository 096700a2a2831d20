"""The error of tables, and lists of names and errors of other libraries for its messages."""

from __future__ import annotations

from collections.abc import Sequence

from cubicflow.advice import Advice, AdvisedError


class TableError(AdvisedError, ValueError):
    """An error about a table or a request to it. The message says what was found, where, and what to do.

    If the last advice is an argument of the called function, the message ends with it.

    >>> print(TableError("column 'id' is text; leave it out", drop=["id"]).about("people.csv"))
    people.csv: column 'id' is text; leave it out with drop=['id']
    """

    def about(self, table: object) -> TableError:
        """Return the error with the table's name in front of the message, unless it is there already."""
        where = f"{table}: "
        return self if str(self).startswith(where) else TableError(Advice.after(where, self.advice))


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
