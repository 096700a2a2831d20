"""Functions of Arrow batches that any engine can call: ``ray.data``, Spark, Daft.

Both classes travel as their settings. A worker loads the model at the first batch, once for the whole process.
"""

from __future__ import annotations

import socket
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from cubicflow.clusters.blocks import BLOCK_ROWS, Block, blocks_of
from cubicflow.clusters.job_folder import JobFolder
from cubicflow.clusters.works import SampleWork
from cubicflow.tables.fitted import SCORE_COLUMN, FittedTable
from cubicflow.tables.table_error import TableError


@lru_cache(maxsize=4)
def _loaded(run: str, device: str) -> FittedTable:
    """Return the model of a run folder, once for each process."""
    if not Path(run).is_dir():
        raise TableError(
            f"{run}: there is no such run folder on {socket.gethostname()}; put it on a path that every worker sees, "
            "or pass the model itself: FittedTable.load(run)"
        )
    return FittedTable.load(run, device)


class _OnWorkers:
    """A model that is loaded where it is used."""

    def __init__(self, run: str | Path | FittedTable, device: str | None = None) -> None:
        self.run = run if isinstance(run, FittedTable) else str(run)
        self.device = device

    def model(self) -> FittedTable:
        """On the worker's device: a GPU where the worker has one, unless told."""
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        if isinstance(self.run, FittedTable):
            self.run.flow.to(device)
            return self.run
        return _loaded(self.run, device)


class TableScorer(_OnWorkers):
    """Adds the column ``log_likelihood`` to every batch.

    Args:
        run: a run folder that every worker sees, or the model itself, which then travels with the function.
        device: by default a GPU where the worker has one.
        settings: of :meth:`cubicflow.tables.FittedTable.score`: ``missing``, ``observed_only``.

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
        """Return the batch with its scores; NaN is written as a gap."""
        scores = pa.array(self.model().score(batch, **self.settings), from_pandas=True)
        return batch.append_column(SCORE_COLUMN, scores)


class TableSampler(_OnWorkers):
    """Draws the rows of the blocks in every batch of a :func:`block_table`, each from the block's own seed.

    Args:
        run, device: as in :class:`TableScorer`.
        seed: of all rows.
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
        """Return the rows of the blocks."""
        work = SampleWork(self.model(), JobFolder("."), self.seed, **self.settings)
        return pa.concat_tables([work.rows(Block(**row), []) for row in batch.to_pylist()])


def block_table(rows: int, size: int = BLOCK_ROWS) -> pa.Table:
    """Return the blocks of so many rows, as a table with a line for each.

    >>> block_table(100, 40).to_pylist()[-1]
    {'number': 2, 'first': 80, 'last': 100}
    """
    return pa.Table.from_pylist([block._asdict() for block in blocks_of(rows, size)])
