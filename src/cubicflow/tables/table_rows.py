"""The rows of a table for training: plain numbers, encoded with noise on access."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.data.row_summary import ContentDigest
from cubicflow.data.rows import SCAN_ROWS, Batch, IndexedRows, Order
from cubicflow.seeds import Stream, derive_seed, scramble
from cubicflow.tables.model.table_model import Encoder
from cubicflow.tables.schema.plain_rows import Numbers

GROUP_ROWS = 1 << 14  # rows encoded at once, which saves calls of the maps


class TableRows(IndexedRows):
    """Plain numbers (N, D + C + weight) of a table, encoded on access.

    In an epoch every row gets fresh noise, a function of the order's seed, the epoch and the row's place in the epoch.
    A row that is taken by number always has the same noise, so a validation score does not fluctuate.
    """

    def __init__(self, encoder: Encoder, numbers: NDArray[np.float64]) -> None:
        self.encoder = encoder
        self.numbers = numbers
        self.num_rows = len(numbers)
        self.names = [column.name for column in encoder.columns]

    def take(self, rows: Tensor) -> Batch:
        places = rows.numpy()
        if not self.encoder.noise_features:
            return self._encode(self.numbers[places])
        columns = np.arange(self.encoder.noise_features, dtype=np.uint64)
        keys = places.astype(np.uint64)[:, None] * np.uint64(len(columns) + 1) + columns
        noise = ((scramble(keys) >> np.uint64(12)).astype(np.float64) + 0.5) / 2.0**52
        return self._encode(self.numbers[places], noise)

    def epoch(self, order: Order, epoch: int, first: int = 0) -> Iterator[Batch]:
        rows = self.row_numbers[order.permutation(self.num_rows, epoch)].numpy()
        group_batches = max(GROUP_ROWS // order.batch_size, 1)
        last = self.num_rows // order.batch_size
        # Groups start at the same batches for every ``first``, so a resumed epoch gets the same noise.
        for group in range(first - first % group_batches, last, group_batches):
            stop = min(group + group_batches, last)
            part = rows[group * order.batch_size : stop * order.batch_size]
            generator = np.random.default_rng(derive_seed(order.seed, Stream.NOISE, epoch, group))
            encoded = self._encode(self.numbers[part], self.encoder.noise(len(part), generator))
            for i in range(max(first, group), stop):
                place = slice((i - group) * order.batch_size, (i - group + 1) * order.batch_size)
                yield Batch(*(None if piece is None else piece[place][order.share] for piece in encoded))  # type: ignore[arg-type] # x is never None

    def _encode(self, numbers: NDArray[np.float64], noise: NDArray[np.float64] | None = None) -> Batch:
        y, context, weights = self.encoder.split(numbers)
        x, context = self.encoder.inputs(y, noise), self.encoder.context_inputs(context)
        parts = (None if part is None else torch.from_numpy(part.astype(np.float32)) for part in (x, context, weights))
        return Batch(*parts)  # type: ignore[arg-type] # x is never None

    def fingerprint(self) -> str:
        """Return a digest of the plain numbers. Encoded numbers may differ in the last bit between processors."""
        digest = ContentDigest()
        for rows in self.row_numbers.split(SCAN_ROWS):
            digest.see([torch.from_numpy(np.asarray(self.numbers[rows.numpy()]))])
        return digest.result()

    def plain(self, first: int, last: int) -> Numbers:
        """Return the rows ``first`` to ``last`` of this part as plain numbers, for scoring."""
        return self.encoder.split(np.asarray(self.numbers[self.row_numbers[first:last].numpy()]))
