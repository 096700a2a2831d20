"""Which rows are for training, which for validation, which for the test: decided from the row's number alone.

In every ten consecutive rows one is for validation and one for the test, drawn from a hash of the seed and the ten's
number. So the shares are exact, every stretch of the table is in every part, and a stream of rows needs no memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.tables.table_error import TableError

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
BLOCK = 10


@dataclass(frozen=True)
class Split:
    """The parts of a table, reproducible from the seed.

    >>> Split(seed=1).parts_of(np.arange(10)).tolist()
    [0, 0, 0, 0, 0, 0, 0, 2, 1, 0]
    """

    seed: int = 0

    @property
    def parts(self) -> tuple[Part, ...]:
        """Those that must have rows."""
        return PARTS

    def parts_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int8]:
        """0, 1, 2 for train, validation, test of the rows with these numbers, counted from 0."""
        number = numbers.astype(np.uint64)
        block, place = number // np.uint64(BLOCK), number % np.uint64(BLOCK)
        drawn = scramble(block ^ scramble(np.array([self.seed], dtype=np.uint64)))
        validation = drawn % np.uint64(BLOCK)
        test = (validation + np.uint64(1) + (drawn >> np.uint64(32)) % np.uint64(BLOCK - 1)) % np.uint64(BLOCK)
        parts: NDArray[np.int8] = np.where(place == validation, 1, np.where(place == test, 2, 0)).astype(np.int8)
        return parts

    def to_json(self) -> dict[str, Any]:
        return {"rule": "one validation and one test row in every ten", "seed": self.seed}

    @classmethod
    def from_json(cls, value: Any) -> Split:
        if not isinstance(value, dict) or not isinstance(value.get("seed"), int) or not 0 <= value["seed"] < 2**63:
            raise TableError(f"the split should be a seed, got {value!r}")
        return cls(value["seed"])


class Undivided(Split):
    """Every row is for training: whoever fits sees to validation in another way."""

    @property
    def parts(self) -> tuple[Part, ...]:
        return PARTS[:1]

    def parts_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int8]:
        return np.zeros(len(numbers), dtype=np.int8)


def scramble(number: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64 (Steele, Lea and Flood 2014): a bijection of 64 bits whose outputs pass for random."""
    with np.errstate(over="ignore"):
        z = number + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


class RowSample:
    """A fair sample of a stream of rows, the same however it is cut: ``size`` rows, whose numbers have the smallest
    hashes."""

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
