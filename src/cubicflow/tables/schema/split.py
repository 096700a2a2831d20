"""The split of a table into training, validation and test rows, by row number or by time, and samples of rows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cubicflow.saved import Count, Range, from_json
from cubicflow.seeds import scramble
from cubicflow.tables.arrow_types import Floats, amounts, is_date, is_number, read_text
from cubicflow.tables.read.table import Table
from cubicflow.tables.table_error import TableError

# Of every ten consecutive rows, one is for validation and one for the test, chosen by a hash of the seed and of the
# block's number. So the shares are exact, every stretch of the table is in every part, and a stream needs no state.
PARTS: tuple[str, ...] = ("train", "validation", "test")
BLOCK = 10
BY_TIME = "time:"


@dataclass(frozen=True)
class Split:
    """The split of a table into training, validation and test rows, reproducible from the seed.

    >>> Split(seed=1).parts_of(np.arange(10)).tolist()
    [0, 0, 0, 0, 0, 0, 0, 2, 1, 0]
    """

    parts: ClassVar[tuple[str, ...]] = PARTS  # parts that must have rows
    seed: Annotated[int, Range(0, 2**63 - 1)] = 0

    def parts_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int8]:
        """Return 0, 1 or 2 (train, validation, test) for the rows with these numbers, counted from 0."""
        number = numbers.astype(np.uint64)
        block, place = number // np.uint64(BLOCK), number % np.uint64(BLOCK)
        drawn = scramble(block ^ scramble(np.array([self.seed], dtype=np.uint64)))
        validation = drawn % np.uint64(BLOCK)
        test = (validation + np.uint64(1) + (drawn >> np.uint64(32)) % np.uint64(BLOCK - 1)) % np.uint64(BLOCK)
        parts: NDArray[np.int8] = np.where(place == validation, 1, np.where(place == test, 2, 0)).astype(np.int8)
        return parts

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the split depends on."""
        return ()

    def resolved(self, table: Table) -> Split:  # noqa: ARG002 - used by splits that depend on the rows
        """Return the split of this table."""
        return self

    def to_json(self) -> dict[str, Any]:
        return {"rule": "one validation and one test row in every ten", "seed": self.seed}

    @classmethod
    def from_json(cls, value: Any) -> Split:
        """Return the split that :meth:`to_json` wrote. Raises TableError for anything invalid."""
        if not isinstance(value, dict):
            raise TableError(f"the split should have a seed, got {value!r}")
        kind = TimeSplit if "column" in value else cls
        try:  # every field is needed: None is no valid value of any
            return from_json(kind, {**dict.fromkeys(each.name for each in fields(kind)), **value})
        except ValueError as error:
            raise TableError(f"the section on the split {error}") from None


class Undivided(Split):
    """A split with all rows for training, for callers with a validation of their own."""

    parts: ClassVar[tuple[str, ...]] = PARTS[:1]

    def parts_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int8]:
        return np.zeros(len(numbers), dtype=np.int8)


@dataclass(frozen=True)
class TimeSplit(Split):
    """A split by time: the earliest four fifths of the rows train, the next tenth validates, the latest tenth tests.

    Rows of the same time are in the same part. ``starts`` are the numbers of the first rows of the second and third
    part, in the order of the table. ``newest_first`` says that the table begins with the latest rows. A split without
    ``starts`` is not resolved yet: :meth:`resolved` returns the split of a table.

    >>> TimeSplit(column="day", starts=(8, 9)).parts_of(np.arange(10)).tolist()
    [0, 0, 0, 0, 0, 0, 0, 0, 1, 2]
    """

    column: str = ""
    starts: tuple[Count, Count] = (0, 0)
    newest_first: bool = False

    def __post_init__(self) -> None:
        if self.starts[0] > self.starts[1]:
            raise ValueError(f"has starts that decrease, {self.starts}")

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
        found.append(amounts(read_text(values, type) if table.is_text else values))
        rows += len(values)
    return np.concatenate([np.empty(0), *found])


# --- samples by row number ---


class RowSample:
    """A uniform sample of ``size`` rows from a stream: the rows whose numbers have the smallest hashes.

    The sample does not depend on how the stream is cut into batches.
    """

    def __init__(self, size: int = 1 << 14) -> None:
        self.size = size
        self._kept: list[pa.RecordBatch] = []
        self._hashes: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)

    def update(self, batch: pa.RecordBatch, numbers: NDArray[np.int64]) -> None:
        """Add rows with these numbers."""
        hashes = np.concatenate([self._hashes, scramble(numbers.astype(np.uint64))])
        best = np.argsort(hashes)[: self.size]
        if self._kept and (best < len(self._hashes)).all():  # the sample does not change
            return
        rows = pa.Table.from_batches([*self._kept, batch]).take(pa.array(best))
        self._kept, self._hashes = rows.combine_chunks().to_batches(), hashes[best]

    def table(self) -> pa.Table:
        """Return the sample, in no particular order."""
        return pa.Table.from_batches(self._kept)
