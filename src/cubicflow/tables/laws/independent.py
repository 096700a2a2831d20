"""Independent columns: the distribution of each column among the training rows, and the score of a row under them.

Independent columns are a baseline: a model scores higher only by learning how columns depend on one another. The
difference is the model's gain. The distributions have the same units as the model: a mass for a column with masses, a
density per unit for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.laws.cells import Cells, learn_cells
from cubicflow.tables.table_error import TableError
from cubicflow.tables.unit_scale import PRIOR

Shares = tuple[float, ...]  # of the outcomes of a column among the training rows, all above 0


@dataclass(frozen=True)
class IndependentColumns:
    """The cells of modelled columns, in their order, and the shares of their outcomes.

    >>> from cubicflow.tables import infer
    >>> from cubicflow.tables.read.table import in_memory
    >>> import pyarrow as pa
    >>> table = in_memory(pa.table({"word": ["a", "b", "b", "b"] * 25, "tame": [True, False] * 50}))
    >>> y = np.stack([[0.0, 1.0] * 50, [0.0, 0.0, 0.0, 1.0] * 25], axis=1)
    >>> independent = IndependentColumns.learn(infer(table).schema.model, y)
    >>> np.round(np.exp(independent.log_prob(y[:2])), 2).tolist()
    [0.37, 0.37]
    """

    cells: Mapping[str, Cells]
    shares: Mapping[str, Shares]

    def __post_init__(self) -> None:
        for name, cells in self.cells.items():
            shares = self.shares.get(name, ())
            if len(shares) != cells.outcomes or min(shares) <= 0 or not abs(sum(shares) - 1) < 1e-6:
                raise TableError(f"every outcome of column {name!r} needs a share above 0, and they should sum to 1")

    @classmethod
    def learn(
        cls, columns: Sequence[Column], y: Floats, weights: Floats | None = None, *, atoms: bool = False
    ) -> IndependentColumns:
        """Return the distributions of the columns of plain numbers ``y`` (N, D) of training rows.

        Without ``atoms``, a real number has a density, also if many rows have it, as in a flow.
        """
        cells = {column.name: learn_cells(column, y[:, i], weights, atoms=atoms) for i, column in enumerate(columns)}
        return cls(cells, {name: _shares(each, y[:, i], weights) for i, (name, each) in enumerate(cells.items())})

    def log_prob(self, y: Floats) -> Floats:
        """Return log p of every row (N, D) of plain numbers, in nats and in the data's own units."""
        return self.log_p(np.stack([each.encode(y[:, i]) for i, each in enumerate(self.cells.values())], axis=1))

    def log_p(self, cells: Floats) -> Floats:
        """Return log p of rows of cells (N, D, 4): the sum over columns."""
        total: Floats = cells[:, :, 3].sum(axis=1)
        for i, name in enumerate(self.cells):
            kind, log_shares = cells[:, i, 0].astype(np.int64), np.log(np.asarray(self.shares[name]))
            total += np.where(kind >= 0, log_shares[np.maximum(kind, 0)], 0)
        return total

    def to_json(self) -> dict[str, Any]:
        cells = {name: each.to_json() for name, each in self.cells.items()}
        return {"cells": cells, "shares": {name: list(shares) for name, shares in self.shares.items()}}

    @classmethod
    def from_json(cls, value: Any, columns: Sequence[Column]) -> IndependentColumns:
        """Return the distributions of these columns, which :meth:`to_json` wrote. Raises TableError for anything
        invalid."""
        try:
            cells = {column.name: Cells.from_json(value["cells"][column.name]) for column in columns}
            shares = {name: tuple(map(float, value["shares"][name])) for name in cells}
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, TableError):
                raise
            raise TableError("the columns should have the cells and the shares of every column") from None
        for column in columns:
            cells[column.name].check(column)
        return cls(cells, shares)


def _shares(cells: Cells, y: Floats, weights: Floats | None) -> Shares:
    """Return the shares of a column's outcomes among rows of plain numbers (N,), all above 0."""
    kinds = cells.encode(y)[:, 0].astype(np.int64)
    seen = kinds >= 0
    counts = np.bincount(kinds[seen], None if weights is None else weights[seen], cells.outcomes) + PRIOR
    return tuple((counts / counts.sum()).tolist())
