"""What one pass over a table shows, before anything is decided about its columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import epsilon_of, floats, is_date, is_text, plain_text, whole_numbers
from cubicflow.tables.kinds.grid import GridFinder
from cubicflow.tables.source import Piece
from cubicflow.tables.splits import PARTS, Split, scramble
from cubicflow.tables.table_error import TableError

FEWEST_ROWS = 10  # one in ten is for validation, one for the test
MOST_WORDS = 4096
MOST_LEVELS = 256
LARGEST_MAGNITUDE = 1e100  # its square is still a number


class Facts:
    """Distinct values (up to a limit), the grid of numbers, and what is wrong with them."""

    def __init__(self, name: str, type: pa.DataType) -> None:
        self.name = name
        self.type = type
        self.rows = 0
        self.infinite = 0
        self.smallest = np.inf
        self.largest = -np.inf
        self.most = MOST_WORDS if is_text(type) else MOST_LEVELS
        self.distinct: set[Any] = set()
        self.finder = GridFinder(epsilon_of(type))

    @property
    def few(self) -> bool:
        """Whether all distinct values are known."""
        return len(self.distinct) <= self.most

    def listed(self) -> list[Any]:
        """The distinct values, sorted, as plain Python values."""
        return sorted(value.item() if hasattr(value, "item") else value for value in self.distinct)

    def see(self, array: pa.Array) -> None:
        """A batch of the column, without gaps."""
        self.rows += len(array)
        if is_text(self.type):
            self._note(plain_text(array))
        elif pa.types.is_boolean(self.type):
            self._note(array)
        elif pa.types.is_integer(self.type) or is_date(self.type):
            self._see_whole(array)
        else:
            self._see_floats(array)

    def _see_whole(self, array: pa.Array) -> None:
        try:
            values = whole_numbers(array)
        except pa.ArrowInvalid:
            raise TableError(
                f"column {self.name!r} holds whole numbers beyond 2^63; if they are identifiers, leave the column out",
                f"--drop {self.name}",
            ) from None
        self.finder.see_whole(values)
        if values.size:
            self.smallest = min(self.smallest, float(values.min()))
            self.largest = max(self.largest, float(values.max()))
        self._note(pa.array(values))

    def _see_floats(self, array: pa.Array) -> None:
        values = floats(array)
        finite = np.isfinite(values)
        self.infinite += int((~finite).sum())
        values = values[finite]
        if values.size:
            self.smallest = min(self.smallest, float(values.min()))
            self.largest = max(self.largest, float(values.max()))
            if max(abs(self.smallest), abs(self.largest)) < LARGEST_MAGNITUDE:
                self.finder.see(values)
        self._note(pa.array(values))

    def _note(self, array: pa.Array) -> None:
        if self.few:
            self.distinct.update(pc.unique(array)[: self.most + 1].to_pylist())

    def check(self) -> None:
        """Refuse infinite and absurdly large numbers."""
        if self.infinite:
            raise TableError(
                f"column {self.name!r} holds {self.infinite} infinite value{'s' if self.infinite > 1 else ''}; replace "
                "them, remove those rows, or leave the column out",
                f"--drop {self.name}",
            )
        largest = max(-self.smallest, self.largest)  # -inf for words, which have no size
        if largest >= LARGEST_MAGNITUDE:
            raise TableError(
                f"column {self.name!r} holds values as large as {largest:.3g}, most likely a mark of a missing value; "
                "remove those rows, or leave the column out",
                f"--drop {self.name}",
            )


class RowSample:
    """A fair sample of a stream of rows, the same however the stream is cut: it keeps the ``size`` rows whose numbers have the smallest hashes."""

    def __init__(self, size: int = 1 << 14) -> None:
        self.size = size
        self._kept: list[pa.RecordBatch] = []
        self._hashes: list[NDArray[np.uint64]] = []
        self._limit = np.uint64(2**64 - 1)

    def see(self, batch: pa.RecordBatch, numbers: NDArray[np.int64]) -> None:
        hashes = scramble(numbers.astype(np.uint64))
        chosen = hashes <= self._limit
        if not chosen.any():
            return
        self._kept.append(batch.filter(pa.array(chosen)))
        self._hashes.append(hashes[chosen])
        if sum(map(len, self._hashes)) > 2 * self.size:
            self._shrink()

    def table(self) -> pa.Table:
        """The sample, in no particular order."""
        self._shrink()
        return pa.Table.from_batches(self._kept)

    def _shrink(self) -> None:
        hashes = np.concatenate(self._hashes)
        best = np.argsort(hashes)[: self.size]
        kept = pa.Table.from_batches(self._kept).take(pa.array(best)).combine_chunks()
        self._kept = kept.to_batches()
        self._hashes = [hashes[best]]
        if len(best) == self.size:
            self._limit = self._hashes[0][-1]


class Survey:
    """One pass over the complete rows of a table: facts of every column, rows of each part, a sample for training."""

    def __init__(self, types: dict[str, pa.DataType], pieces: Iterable[Piece], split: Split) -> None:
        self.facts = {name: Facts(name, type) for name, type in types.items()}
        self.parts = dict.fromkeys(PARTS, 0)
        self.rows = 0
        self.dropped = 0
        chosen = RowSample()
        for piece in pieces:
            for name, facts in self.facts.items():
                facts.see(piece.batch.column(name))
            self.rows += len(piece.batch)
            self.dropped += piece.read - len(piece.batch)
            part = split.parts_of(piece.numbers)
            for i, name in enumerate(PARTS):
                self.parts[name] += int((part == i).sum())
            chosen.see(piece.batch.filter(pa.array(part == 0)), piece.numbers[part == 0])
        self._check(split)
        self.sample = chosen.table()

    def _check(self, split: Split) -> None:
        if self.rows < FEWEST_ROWS or not all(self.parts[name] for name in split.parts):
            left = f" ({self.dropped} more lack a value)" if self.dropped else ""
            raise TableError(
                f"{self.rows} complete row{'' if self.rows == 1 else 's'}{left} cannot be parted into training, "
                f"validation and test rows; a fit needs at least {FEWEST_ROWS}, and hundreds to be of any use"
            )
