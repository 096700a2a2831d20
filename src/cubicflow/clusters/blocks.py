"""Work in blocks of rows: the same blocks whoever does them, each with a seed of its own.

A block is a range of row numbers, ``size`` of them except for the last one. Row numbers count over all files of a
table, in order. So the block of a row, and the seed of a block, follow from the size and the job's seed alone. Whoever
does a block computes the same numbers: one process, two workers, or the worker that takes over from a dead one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cubicflow.data.rows import derive_seed
from cubicflow.tables.table_error import TableError

BLOCK_ROWS = 1 << 17
BLOCK = 12  # a key that keeps the seeds of blocks apart from other random numbers of the same seed


class Block(NamedTuple):
    """The rows from ``first`` to ``last``, counted from 0, without ``last``.

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
    """Yield the blocks of a table, in order; one empty block for a table without rows.

    >>> list(blocks_of(250, 100))
    [Block(number=0, first=0, last=100), Block(number=1, first=100, last=200), Block(number=2, first=200, last=250)]
    """
    if size < 1:
        raise TableError(f"a block should have 1 row or more, got {size}", "--block-rows")
    for number, first in enumerate(range(0, max(rows, 1), size)):
        yield Block(number, first, min(first + size, rows))


def block_seed(seed: int, number: int) -> int:
    """Return the seed of a block, below 2^63.

    >>> block_seed(0, 1) == block_seed(0, 1), block_seed(0, 1) == block_seed(0, 2)
    (True, False)
    """
    return derive_seed(seed, BLOCK, number) >> 1
