"""A fair sample of a stream of rows, the same however the stream is cut."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.tables.splits import scramble


class RowSample:
    """Keeps the ``size`` rows whose numbers have the smallest hashes."""

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
