"""Exact copies of training rows among the validation and test rows: their scores partly measure memorisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cubicflow.seeds import scramble
from cubicflow.tables.table_rows import TableRows

ROWS_AT_ONCE = 1 << 16


class CopiedRows(NamedTuple):
    """The number of ``held_out`` rows, of ``copies`` of training rows among them, and of ``distinct`` held-out rows.

    >>> CopiedRows(20, 3, 20).message().split(",")[0]
    '3 of 20 validation and test rows are exact copies of training rows'
    """

    held_out: int
    copies: int
    distinct: int

    def message(self) -> str | None:
        """Return a sentence for the user; None without copies."""
        if not self.copies:
            return None
        counted = f"{self.copies:,} of {self.held_out:,} validation and test rows are exact copies of training rows"
        # If the table is a list of rows written twice, both copies of a row are rarely in the held-out fifth, so most
        # held-out rows are distinct.
        if self.distinct <= self.held_out / 2:
            return f"{counted}: rows repeat in this table, only {self.distinct:,} held-out rows are distinct"
        memorised = "so their scores partly show what was memorised"
        return f"{counted}, {memorised}; if rows were written twice, remove the duplicates"


def copied_rows(train: TableRows, others: Sequence[TableRows]) -> CopiedRows:
    """Count the copies of training rows among other rows, by 64-bit hashes of all values but the weight.

    In a million rows, the probability that any two different rows have the same hash is below 1e-7. Only the hashes of
    held-out rows are kept in memory.
    """
    held_out = np.concatenate([hashes for rows in others for hashes in _hashes(rows)])
    distinct, rows = np.unique(held_out, return_counts=True)
    copied = np.zeros(len(distinct), dtype=np.bool_)
    for hashes in _hashes(train):
        places = np.minimum(np.searchsorted(distinct, hashes), len(distinct) - 1)
        copied[places[distinct[places] == hashes]] = True
    return CopiedRows(len(held_out), int(rows[copied].sum()), len(distinct))


def _hashes(rows: TableRows) -> Iterator[NDArray[np.uint64]]:
    for first in range(0, rows.num_rows, ROWS_AT_ONCE):
        numbers = rows.plain(first, min(first + ROWS_AT_ONCE, rows.num_rows))
        values = numbers.y if numbers.context is None else np.concatenate([numbers.y, numbers.context], axis=1)
        bits = np.ascontiguousarray(values + 0.0).view(np.uint64)  # 0.0 and -0.0 are one value
        hashes = np.zeros(len(bits), dtype=np.uint64)
        for column in bits.T:
            hashes = scramble(hashes ^ column)
        yield hashes
