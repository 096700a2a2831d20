"""Tables sorted by time: a note that rows are taken as exchangeable, and a split by time.

A model of rows ignores their order. If the rows are sorted by a date, random test rows lie between training rows, and
slow changes make them easier to predict. A split by time trains on the earliest rows, chooses weights on later rows and
tests on the latest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats, floats, is_date, is_number, read_text, whole_numbers
from cubicflow.tables.read.table import Table
from cubicflow.tables.split import BLOCK, PARTS, Split
from cubicflow.tables.table_error import TableError

BY_TIME = "time:"
FEWEST = 10  # rows; fewer are often sorted by chance


class OrderOfRows:
    """An accumulator of a column's values that tells whether they are sorted."""

    def __init__(self) -> None:
        self.rises = self.falls = False
        self.rows = 0
        self._last: Floats = np.empty(0)

    def update(self, values: pa.Array) -> None:
        """Add values of one type, some of which may be missing."""
        found = as_numbers(values.drop_null())
        steps = np.diff(np.concatenate([self._last, found]))
        self.rises |= bool((steps > 0).any())
        self.falls |= bool((steps < 0).any())
        self.rows += len(found)
        self._last = found[-1:] if len(found) else self._last

    @property
    def in_order(self) -> bool:
        """Whether the values are sorted, up or down, and not all equal."""
        return self.rows >= FEWEST and self.rises != self.falls


def remark_on_order(orders: dict[str, OrderOfRows]) -> list[str]:
    """Return a note if the rows are sorted by a column of dates.

    >>> order = OrderOfRows()
    >>> order.update(pa.array(np.arange(20)).cast(pa.int32()).cast(pa.date32()))
    >>> remark_on_order({"day": order})[0].split(";")[0]
    "rows are sorted by 'day'"
    """
    found = [name for name, order in orders.items() if order.in_order]
    if not found:
        return []
    exchangeable = "the model ignores their order, so test rows lie between training rows in time"
    honest = f"for a test on the latest rows, split by {BY_TIME}{found[0]}"
    return [f"rows are sorted by {found[0]!r}; {exchangeable}; {honest}"]


@dataclass(frozen=True)
class TimeSplit(Split):
    """A split by time: the earliest four fifths of the rows train, the next tenth validates, the latest tenth tests.

    Rows of the same time are in the same part. ``starts`` are the numbers of the first rows of the second and third
    part, in the order of the table. ``newest_first`` says that the table begins with the latest rows. A split without
    ``starts`` is not resolved yet: :meth:`resolved` returns the split of a table.

    >>> TimeSplit(column="day", starts=(8, 9)).parts_of(np.arange(10)).tolist()
    [0, 0, 0, 0, 0, 0, 0, 0, 1, 2]
    """

    parts: ClassVar[tuple[str, ...]] = PARTS

    column: str = ""
    starts: tuple[int, int] = field(default=(0, 0))
    newest_first: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def resolved(self, table: Table) -> TimeSplit:
        """Return the split of this table. Raises TableError unless the rows are sorted by the column."""
        times = _times(table, self.column)
        steps = np.diff(times)
        newest_first = bool((steps < 0).any())
        if newest_first and (steps > 0).any():
            row = int(np.flatnonzero(steps < 0)[0]) + 2
            raise TableError(
                f"rows are not sorted by column {self.column!r}: row {row} is earlier than the row before it; sort the "
                "table by that column"
            )
        ordered = times[::-1] if newest_first else times
        bounds = [int(np.searchsorted(ordered, ordered[len(times) * i // BLOCK])) for i in (BLOCK - 2, BLOCK - 1)]
        if not 0 < bounds[0] < bounds[1]:
            raise TableError(
                f"column {self.column!r} holds too few different times to split by; a split by time needs at least "
                "ten, evenly spread over the rows"
            )
        validation, test = bounds
        starts = (len(times) - test, len(times) - validation) if newest_first else (validation, test)
        return TimeSplit(self.seed, self.column, starts, newest_first)

    def parts_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int8]:
        place = np.searchsorted(np.asarray(self.starts), numbers, side="right")
        return (len(PARTS) - 1 - place if self.newest_first else place).astype(np.int8)

    def to_json(self) -> dict[str, Any]:
        rule = "the latest tenth of the rows tests, the tenth before it validates"
        own = {"column": self.column, "starts": list(self.starts), "newest_first": self.newest_first}
        return {"rule": rule, "seed": self.seed, **own}

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> TimeSplit:
        """Return the split that :meth:`to_json` wrote. The caller has checked the seed. Raises TableError for anything
        invalid.
        """
        column, starts, newest_first = (value.get(key) for key in ("column", "starts", "newest_first"))
        if (
            not isinstance(column, str)
            or not isinstance(newest_first, bool)
            or not isinstance(starts, list)
            or len(starts) != 2
            or not all(type(start) is int and 0 <= start < 2**63 for start in starts)
            or starts[0] > starts[1]
        ):
            raise TableError(f"a split by time should have a column and two row numbers, got {str(value)[:80]}")
        return cls(value["seed"], column, (starts[0], starts[1]), newest_first)


def split_from(text: str | None, seed: int) -> Split:
    """Return the split that the user requests: None for a random split, ``"time:column"`` for a split by time.

    >>> split_from("time:day", 0).column
    'day'
    """
    if text is None:
        return Split(seed)
    column = text.removeprefix(BY_TIME)
    if not text.startswith(BY_TIME) or not column:
        raise TableError(f"split should be {BY_TIME} and the name of a column, such as {BY_TIME}day, got {text!r}")
    return TimeSplit(seed, column)


def as_numbers(values: pa.Array) -> Floats:
    """Return dates or numbers as float64."""
    return whole_numbers(values).astype(np.float64) if is_date(values.type) else floats(values)


def _times(table: Table, column: str) -> Floats:
    """Return the values of a column of dates or numbers as float64. Raises TableError if a row has no value."""
    type = table.types[column]
    if not is_date(type) and not is_number(type):
        raise TableError(f"column {column!r} holds {type}; a split by time needs dates or numbers")
    found: list[Floats] = []
    rows = 0
    for batch in table.batches([column]):
        values = batch.column(0)
        gaps = pc.is_null(values, nan_is_null=True).to_numpy(zero_copy_only=False)
        if gaps.any():
            raise TableError(
                f"row {rows + int(gaps.argmax()) + 1} has no time in column {column!r}; a split by time needs one in "
                "every row"
            )
        found.append(as_numbers(read_text(values, type) if table.is_text else values))
        rows += len(values)
    return np.concatenate([np.empty(0), *found])


def columns_of(split: Split) -> Sequence[str]:
    """Return the columns that a split depends on."""
    return split.columns if isinstance(split, TimeSplit) else ()
