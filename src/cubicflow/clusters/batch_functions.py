"""Functions of Arrow batches for any engine, such as ``ray.data``, Spark or Daft.

Both classes pickle as a path and settings if they are given a path. A worker process then loads the model once, at its
first batch.
"""

from __future__ import annotations

import socket
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from cubicflow.clusters.blocks import BLOCK_ROWS, Block, blocks_of
from cubicflow.clusters.tasks import block_rows
from cubicflow.tables import SCORE_COLUMN, FittedTable, TableError


@lru_cache(maxsize=4)
def _loaded(run: str, device: str) -> FittedTable:
    """Load the model of a run folder. Cached: each process loads a run once per device."""
    if not Path(run).is_dir():
        raise TableError(
            f"{run}: there is no such run folder on {socket.gethostname()}; put it on a path that every worker sees, "
            "or pass the model: FittedTable.load(run)"
        )
    return FittedTable.load(run, device)


class _OnWorkers:
    """A function whose model is loaded by the worker that calls it."""

    def __init__(self, run: str | Path | FittedTable, device: str | None = None) -> None:
        self.run = run if isinstance(run, FittedTable) else str(run)
        self.device = device

    def model(self) -> FittedTable:
        """Return the model on ``device``; by default on the GPU if the worker has one."""
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        if isinstance(self.run, FittedTable):
            self.run.flow.to(device)
            return self.run
        return _loaded(self.run, device)


class TableScorer(_OnWorkers):
    """A function that adds the column ``log_likelihood`` to a batch.

    Args:
        run: a run folder that every worker sees, or the model, which is then pickled with the function.
        device: the device of the model; by default a GPU if the worker has one.
        settings: ``missing`` and ``observed_only`` of :meth:`cubicflow.tables.FittedTable.score`.

    With Ray Data: ``dataset.map_batches(TableScorer, fn_constructor_args=["run"], batch_format="pyarrow")``.

    >>> import pickle, tempfile
    >>> from cubicflow.tables import fit_table
    >>> rows = pa.table({"day": [1, 2, 3, 4] * 25, "hours": [0.5, 2.5] * 50})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pa.parquet.write_table(rows, f"{folder}/t.parquet")
    ...     _ = fit_table(f"{folder}/t.parquet", f"{folder}/run", steps=5, progress=False)
    ...     scorer = pickle.loads(pickle.dumps(TableScorer(f"{folder}/run")))
    ...     scorer(rows).column_names
    ['day', 'hours', 'log_likelihood']
    """

    def __init__(self, run: str | Path | FittedTable, device: str | None = None, **settings: Any) -> None:
        super().__init__(run, device)
        self.settings = settings

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Return the batch with a column of scores; NaN becomes null."""
        scores = pa.array(self.model().score(batch, **self.settings), from_pandas=True)
        return batch.append_column(SCORE_COLUMN, scores)


class TableSampler(_OnWorkers):
    """A function that draws rows. Its input is a batch of :func:`block_table`: each row of the batch describes one
    block. The rows of a block are drawn with the block's own seed.

    Args:
        run, device: as in :class:`TableScorer`.
        seed: the seed from which the seeds of all blocks are derived.
        settings: ``given``, ``temperature``, ``complete`` and ``constraints`` of
            :meth:`cubicflow.tables.FittedTable.sample`.

    >>> import tempfile
    >>> from cubicflow.tables import fit_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = pa.table({"day": [1, 2, 3, 4] * 25, "hours": [0.5, 2.5] * 50})
    ...     pa.parquet.write_table(rows, f"{folder}/t.parquet")
    ...     _ = fit_table(f"{folder}/t.parquet", f"{folder}/run", steps=5, progress=False)
    ...     sampler, blocks = TableSampler(f"{folder}/run", seed=1), block_table(100, 40)
    ...     sampler(blocks[1:]).equals(sampler(blocks)[40:])
    True
    """

    def __init__(
        self, run: str | Path | FittedTable, device: str | None = None, *, seed: int = 0, **settings: Any
    ) -> None:
        super().__init__(run, device)
        self.seed, self.settings = seed, settings

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Draw the rows of the blocks in the batch."""
        model = self.model()
        return pa.concat_tables(
            [block_rows(model, Block(**row), self.seed, **self.settings) for row in batch.to_pylist()]
        )


def block_table(rows: int, size: int = BLOCK_ROWS) -> pa.Table:
    """Return a table with one row for each block of a job of ``rows`` rows.

    >>> block_table(100, 40).to_pylist()[-1]
    {'number': 2, 'first': 80, 'last': 100}
    """
    return pa.Table.from_pylist([block._asdict() for block in blocks_of(rows, size)])
