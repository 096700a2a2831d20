"""Blocks of rows, each with its own seed. Blocks do not depend on the engine.

A block is a range of ``size`` row numbers; the last block may be smaller. Row numbers count over all files of a table,
in order. So the block of a row, and the seed of a block, depend only on the size and the job's seed. A block gives the
same numbers in one process, with two workers, or on the worker that replaces a dead one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cubicflow.seeds import Stream, derive_seed
from cubicflow.tables.table_error import TableError

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
        raise TableError(f"a block must have 1 row or more, got {size}", "--block-rows")
    for number, first in enumerate(range(0, max(rows, 1), size)):
        yield Block(number, first, min(first + size, rows))


def block_seed(seed: int, number: int) -> int:
    """Return the seed of block ``number``, below 2^63.

    >>> block_seed(0, 1) == block_seed(0, 1), block_seed(0, 1) == block_seed(0, 2)
    (True, False)
    """
    return derive_seed(seed, Stream.BLOCK, number) >> 1
