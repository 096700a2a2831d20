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

    @classmethod
    def learn(cls, columns: Sequence[Column], y: Floats, weights: Floats | None = None) -> IndependentColumns:
        """Return the distributions of the columns of plain numbers ``y`` (N, D) of training rows.

        A real number has a density, also if many rows have it: a flow has no atoms.
        """
        cells = {column.name: learn_cells(column, y[:, i], weights, atoms=False) for i, column in enumerate(columns)}
        return cls(cells, {name: shares_of(cells[name], y[:, i], weights) for i, name in enumerate(cells)})

    def log_prob(self, y: Floats) -> Floats:
        """Return log p of every row (N, D) of plain numbers, in nats and in the data's own units."""
        found = [
            log_alone(each.encode(y[:, i]), self.shares[name]) for i, (name, each) in enumerate(self.cells.items())
        ]
        total: Floats = np.sum(found, axis=0)
        return total

    def to_json(self) -> dict[str, Any]:
        cells = {name: each.to_json() for name, each in self.cells.items()}
        return {"cells": cells, "shares": {name: list(shares) for name, shares in self.shares.items()}}

    @classmethod
    def from_json(cls, value: Any, columns: Sequence[Column]) -> IndependentColumns:
        """Return the columns that :meth:`to_json` wrote. Raises TableError for anything invalid."""
        names = [column.name for column in columns]
        if not isinstance(value, dict) or not isinstance(value.get("cells"), dict) or [*value["cells"]] != names:
            raise TableError(
                "the independent columns should be an object with the cells and the shares of every column"
            )
        cells = {name: Cells.from_json(item) for name, item in value["cells"].items()}
        shares = read_shares(value.get("shares"))
        for column in columns:
            cells[column.name].check(column)
            if len(shares.get(column.name, ())) != cells[column.name].outcomes:
                raise TableError("every outcome of a column needs its share")
        return cls(cells, shares)


def log_alone(cells: Floats, shares: Shares) -> Floats:
    """Return log p of the cells (N, 4) of one column, distributed as in the training rows."""
    kind, log_shares = cells[:, 0].astype(np.int64), np.log(np.asarray(shares))
    found: Floats = cells[:, 3] + np.where(kind >= 0, log_shares[np.maximum(kind, 0)], 0)
    return found


def shares_of(cells: Cells, y: Floats, weights: Floats | None) -> Shares:
    """Return the shares of a column's outcomes among rows of plain numbers (N,), all above 0."""
    kinds = cells.encode(y)[:, 0].astype(np.int64)
    seen = kinds >= 0
    counts = np.bincount(kinds[seen], None if weights is None else weights[seen], cells.outcomes) + PRIOR
    return tuple((counts / counts.sum()).tolist())


def read_shares(value: Any) -> dict[str, Shares]:
    """Return shares read from JSON. Raises TableError for anything invalid."""
    if not isinstance(value, dict):
        raise TableError("shares should be numbers for every column")
    try:
        found = {name: tuple(map(float, shares)) for name, shares in value.items()}
    except (TypeError, ValueError, OverflowError):
        raise TableError("shares should be numbers for every column") from None
    for name, shares in found.items():
        if not shares or min(shares) <= 0 or not abs(sum(shares) - 1) < 1e-6:
            raise TableError(f"the shares of column {name!r} should be above 0 and sum to 1")
    return found
