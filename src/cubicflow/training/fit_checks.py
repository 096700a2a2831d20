"""What :func:`fit` does before its loop: rows of any source, checks of rows and settings, a validation split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cubicflow.data.parquet_rows import ParquetRows
from cubicflow.data.row_summary import Summary
from cubicflow.data.rows import NoColumns, NpyRows, Rows, TensorRows
from cubicflow.training.config import TrainingConfig
from cubicflow.training.distributed import Processes
from cubicflow.training.losses import Loss


def as_rows(source: Any) -> Rows:
    """Return the rows of a source.

    Args:
        source: a tensor or array (N, D), a tuple (x, context, weights) of them, the path of a .npy file, of a Parquet
            file or of a folder of Parquet files, or Rows.

    >>> as_rows(torch.zeros(3, 2)).num_rows
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


def check_rows(flow: Any, rows: Rows, name: str, loss: Loss | None) -> Summary:
    """Return the summary of the rows.

    Raises ValueError if the rows are not finite, or if their shape or context does not fit the flow.
    """
    try:
        summary = rows.summary
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if isinstance(rows, NoColumns):
        if loss is None:
            raise ValueError("train=None needs a loss that draws its own samples, such as reverse_kl(...)")
        return summary
    if loss is None and not hasattr(flow, "log_prob"):
        raise TypeError(
            f"{type(flow).__name__} has no method log_prob(x); add one, or pass a loss of your own as loss="
        )
    shape = getattr(flow, "shape", None)
    if shape is not None and tuple(shape) != summary.shape:
        raise ValueError(
            f"{name}: rows have shape {summary.shape}, but this flow expects shape {tuple(shape)}; give rows of that "
            "shape, or another flow"
        )
    context_features = getattr(flow, "context_features", summary.context_features)
    if context_features != summary.context_features:
        raise ValueError(
            f"{name}: rows have {summary.context_features} context columns, but this flow has context_features="
            f"{context_features}; give that many context columns, or another flow"
        )
    return summary


def split_off(rows: Rows, config: TrainingConfig) -> tuple[Rows, Rows | None]:
    """Split rows into training and validation rows. Validation is None if ``validation_fraction`` is 0.

    Raises ValueError if a part has no rows, or if all of its weights are 0.
    """
    num_validation = config.validation_rows(rows.num_rows)
    if config.validation_fraction == 0:
        return rows, None
    training, validation = rows.split(num_validation, config.seed)
    if training.num_rows == 0 or validation.num_rows == 0:
        raise ValueError(
            f"{rows.num_rows} rows leave {training.num_rows} for training and {validation.num_rows} for validation; "
            "give more rows or another validation_fraction, or 0 to train without validation"
        )
    for part, use in ((training, "training"), (validation, "validation")):
        if not part.has_weight():
            raise ValueError(
                f"after the split, all {part.num_rows} {use} rows have weight 0; give validation= rows, another seed, "
                "or validation_fraction=0 to train on all rows"
            )
    return training, validation


def check_settings(config: TrainingConfig, processes: Processes, flow: Any) -> None:
    """Raise ValueError if the settings contradict the number of processes or the flow's dtype."""
    if (config.batch_size or 1) < processes.size:
        raise ValueError(
            f"batch_size={config.batch_size} is smaller than the number of processes, {processes.size}; use a larger "
            "batch_size"
        )
    if config.precision == "bf16" and any(param.dtype == torch.float64 for param in flow.parameters()):
        raise ValueError("precision='bf16' contradicts a flow in float64; use precision='float32', or flow.float()")
