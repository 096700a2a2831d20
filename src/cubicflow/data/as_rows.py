"""Conversion of tensors, arrays and files to rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from cubicflow.data.parquet_rows import ParquetRows
from cubicflow.data.rows import NpyRows, Rows, TensorRows


def as_rows(source: Any) -> Rows:
    """Return the rows of a source.

    Args:
        source: a tensor or array (N, D), a tuple (x, context, weights) of them, the path of a .npy file, of a Parquet
            file or of a folder of Parquet files, or Rows.

    >>> as_rows(np.zeros((3, 2))).num_rows
    3
    """
    if isinstance(source, Rows):
        return source
    if isinstance(source, Tensor | np.ndarray):
        return TensorRows(source)
    if isinstance(source, tuple) and 1 <= len(source) <= 3:
        return TensorRows(*source)
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.exists():
            raise FileNotFoundError(f"no such file or folder: {path}; check the path")
        if path.suffix == ".npy":
            return NpyRows(path)
        if path.suffix in (".parquet", ".pq") or path.is_dir():
            return ParquetRows(path)
        raise ValueError(
            f"cannot read rows from {path}; give a .npy file, a .parquet file, or a folder of .parquet files"
        )
    raise TypeError(
        f"cannot read rows from {type(source).__name__}; give a tensor, an array, a tuple (x, context, weights), the "
        "path of a .npy or Parquet file, or Rows"
    )
