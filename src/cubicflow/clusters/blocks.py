"""Blocks of rows, each with its own seed, and the outcome of a block. Blocks do not depend on the engine.

A block is a range of ``size`` row numbers; the last block may be smaller. Row numbers count over all files of a table,
in order. So the block of a row, and the seed of a block, depend only on the size and the job's seed. A block gives the
same numbers in one process, with two workers, or on the worker that replaces a dead one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from cubicflow.saved import Count, from_json
from cubicflow.seeds import Stream, derive_seed
from cubicflow.tables import TableError

BLOCK_ROWS = 1 << 17  # default number of rows in a block


class Block(NamedTuple):
    """The row numbers from ``first`` to ``last - 1``, counted from 0.

    >>> Block(1, 100, 200).rows
    100
    """

    number: int
    first: int
    last: int

    @property
    def rows(self) -> int:
        return self.last - self.first


def blocks_of(rows: int, size: int = BLOCK_ROWS) -> Iterator[Block]:
    """Yield the blocks of a table, in order. A table without rows has one empty block.

    >>> list(blocks_of(250, 100))
    [Block(number=0, first=0, last=100), Block(number=1, first=100, last=200), Block(number=2, first=200, last=250)]
    """
    if size < 1:
        raise TableError(f"a block must have 1 row or more, got {size}")
    for number, first in enumerate(range(0, max(rows, 1), size)):
        yield Block(number, first, min(first + size, rows))


def block_seed(seed: int, number: int) -> int:
    """Return the seed of block ``number``, below 2^63.

    >>> block_seed(0, 1) == block_seed(0, 1), block_seed(0, 1) == block_seed(0, 2)
    (True, False)
    """
    return derive_seed(seed, Stream.BLOCK, number) >> 1


@dataclass(frozen=True)
class Skipped:
    """Skipped rows of a file, from ``first`` to ``last`` inclusive, counted from 1, and the reason.

    For a skipped file, ``first`` and ``last`` are None.

    >>> str(Skipped("a.parquet", 7, 7, "column 'x' holds 'red'"))
    "a.parquet, row 7: column 'x' holds 'red'"
    """

    file: str
    first: Count | None
    last: Count | None
    reason: str

    def __str__(self) -> str:
        if self.first is None:
            return self.reason if self.reason.startswith(self.file) else f"{self.file}: {self.reason}"
        rows = f"row {self.first:,}" if self.first == self.last else f"rows {self.first:,} to {self.last:,}"
        return f"{self.file}, {rows}: {self.reason}"


@dataclass
class Outcome:
    """The outcome of one block.

    Attributes:
        block: the block's number.
        rows: the number of rows written or scored.
        unseen: for each column, the number of cells with a value that no training row had.
        skipped: the skipped rows.
        notes: messages for the user; each is shown once per job.
        sums: the sums of the scores, if the task writes no file.
    """

    block: Count
    rows: Count = 0
    unseen: dict[str, Count] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sums: Any = None

    def to_json(self) -> str:
        """Return the JSON text for the footer of the block's part, without ``sums``."""
        return json.dumps({name: value for name, value in asdict(self).items() if name != "sums"}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Outcome:
        """Read an outcome that :meth:`to_json` wrote. Raises ValueError for other text.

        >>> Outcome.from_json(Outcome(3, 10, skipped=[Skipped("a", 1, 1, "no")]).to_json()).skipped
        [Skipped(file='a', first=1, last=1, reason='no')]
        """
        try:
            values = json.loads(text)
        except RecursionError:
            raise ValueError("the outcome is nested too deeply") from None
        return from_json(Outcome, values)
