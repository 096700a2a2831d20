"""The split of a table into training, validation and test rows, and samples of rows, by the numbers of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.tables.read.table import Table
from cubicflow.tables.table_error import TableError

# Of every ten consecutive rows, one is for validation and one for the test, chosen by a hash of the seed and of the
# block's number. So the shares are exact, every stretch of the table is in every part, and a stream needs no state.
PARTS: tuple[str, ...] = ("train", "validation", "test")
BLOCK = 10


@dataclass(frozen=True)
class Split:
    """The split of a table into training, validation and test rows, reproducible from the seed.

    >>> Split(seed=1).parts_of(np.arange(10)).tolist()
    [0, 0, 0, 0, 0, 0, 0, 2, 1, 0]
    """

    parts: ClassVar[tuple[str, ...]] = PARTS  # parts that must have rows
    seed: int = 0

    def parts_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int8]:
        """Return 0, 1 or 2 (train, validation, test) for the rows with these numbers, counted from 0."""
        number = numbers.astype(np.uint64)
        block, place = number // np.uint64(BLOCK), number % np.uint64(BLOCK)
        drawn = scramble(block ^ scramble(np.array([self.seed], dtype=np.uint64)))
        validation = drawn % np.uint64(BLOCK)
        test = (validation + np.uint64(1) + (drawn >> np.uint64(32)) % np.uint64(BLOCK - 1)) % np.uint64(BLOCK)
        parts: NDArray[np.int8] = np.where(place == validation, 1, np.where(place == test, 2, 0)).astype(np.int8)
        return parts

    def resolved(self, table: Table) -> Split:  # noqa: ARG002 - used by splits that depend on the rows
        """Return the split of this table."""
        return self

    def to_json(self) -> dict[str, Any]:
        return {"rule": "one validation and one test row in every ten", "seed": self.seed}

    @classmethod
    def from_json(cls, value: Any) -> Split:
        """Return the split that :meth:`to_json` wrote. Raises TableError for anything invalid."""
        if not isinstance(value, dict) or not isinstance(value.get("seed"), int) or not 0 <= value["seed"] < 2**63:
            raise TableError(f"the split should have a seed, got {value!r}")
        if "column" in value:
            from cubicflow.tables.time_order import TimeSplit

            return TimeSplit.read(value)
        return cls(value["seed"])


class Undivided(Split):
    """A split with all rows for training, for callers with a validation of their own."""

    parts: ClassVar[tuple[str, ...]] = PARTS[:1]

    def parts_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int8]:
        return np.zeros(len(numbers), dtype=np.int8)


def scramble(number: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash 64-bit numbers by splitmix64 (Steele, Lea and Flood 2014), a bijection with nearly random outputs."""
    with np.errstate(over="ignore"):
        z = number + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


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
