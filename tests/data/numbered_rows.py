"""Rows whose first value is their number, so that a shuffle can be checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

N, D = 1000, 3


def numbered() -> np.ndarray[Any, Any]:
    values = np.random.default_rng(0).normal(size=(N, D))
    values[:, 0] = np.arange(N)
    return values


def write_parquet(path: Path, values: np.ndarray[Any, Any], row_group_size: int, **extra: Any) -> Path:
    columns = {f"c{i}": values[:, i] for i in range(values.shape[1])}
    pq.write_table(pa.table({**columns, **extra}), path, row_group_size=row_group_size)
    return path
