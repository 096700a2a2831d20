"""Scores as a table: one line for every row that was read, empty where a row lacks a value."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.tables.fitted import FittedTable
from cubicflow.tables.options import Missing
from cubicflow.tables.source import Table

COLUMN = "log_likelihood"


def score_batches(fitted: FittedTable, table: Table, missing: Missing | None = None) -> Iterator[pa.RecordBatch]:
    """Batches with the one column ``log_likelihood``, aligned with the rows of the table; one without rows of none."""
    start = 0
    yield _batch(np.empty(0))
    for scores in fitted.score(table, missing):
        values = np.full(scores.read, np.nan)
        values[scores.numbers - start] = scores.log_likelihood
        start += scores.read
        yield _batch(values)


def _batch(values: NDArray[np.float64]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, from_pandas=True)], names=[COLUMN])
