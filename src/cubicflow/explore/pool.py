"""A pool of rows drawn from a model of columns. Each cell keeps its law: the distribution it was drawn from.

The law of a cell is the network's output for its column, given the cells before it: log probabilities of outcomes, and
the params of a spline. The law gives the probability that a row's column lies in a set. This takes one spline
evaluation and no network pass. So all rows of the pool are weighted for a condition in a few milliseconds. Rows are
independent, and so are their weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
import torch

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.asking.constraints import Constraint
from cubicflow.tables.asking.particles import Walk
from cubicflow.tables.asking.sums import computed_columns
from cubicflow.tables.cell_encoder import CellEncoder
from cubicflow.tables.columns_model import ColumnsModel
from cubicflow.tables.model.law import Law

CHUNK = 1 << 11  # rows drawn at once; an answer waits for at most one chunk
MOST_ROWS = 1 << 17  # largest number of rows of a pool
MOST_BYTES = 1 << 28  # largest memory of the cells' distributions, in bytes
FEWEST_ROWS = 1 << 13  # rows of a full pool, even if the distributions of their cells need more than MOST_BYTES


@dataclass
class Pool:
    """Rows drawn from a model of columns, with the distributions of their cells.

    :meth:`grow` adds a chunk, in one thread at a time. Readers see only whole chunks.

    Attributes:
        model: the model.
        encoder: the encoder of its cells.
        context: the context of all rows, or None.
        constraints: the constraints of the fit. Columns that are sums are computed; rows may break other constraints.
        seed: the seed of the rows.
        size: the number of rows drawn so far.
    """

    model: ColumnsModel
    encoder: CellEncoder
    context: Floats | None = None
    constraints: Sequence[Constraint] = ()
    seed: int = 0
    size: int = 0
    _rows: list[Floats] = field(default_factory=list)
    _laws: list[list[Law]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.walk = Walk(self.model, self.encoder, {}, self.context)
        self.walk.computed = computed_columns(self.walk, self.constraints)
        self._generator = torch.Generator().manual_seed(self.seed)
        numbers = sum(self.model.outcomes) + sum(2 * self.model.num_bins + 2 for s in self.model.shapes if s)
        self.most = max(min(MOST_ROWS, MOST_BYTES // (4 * numbers)) // CHUNK * CHUNK, FEWEST_ROWS)
        self._growing = Lock()
        self._joined: tuple[Floats, list[Law]] | None = None

    @property
    def is_full(self) -> bool:
        return self.size >= self.most

    @torch.no_grad()
    def grow(self) -> None:
        """Draw a chunk of rows."""
        with self._growing:
            walk, particles, laws = self.walk, self.walk.start(CHUNK), []
            for i in range(len(walk.columns)):
                law = walk.law(i, particles)
                laws.append(law.in_float32())
                walk.draw(particles, i, law, self._generator)
            self._rows.append(particles.y)
            self._laws.append(laws)
            self.size += CHUNK

    def grow_to(self, rows: int) -> None:
        """Draw rows until the pool has ``rows`` rows or is full."""
        while self.size < min(rows, self.most):
            self.grow()

    def all(self) -> tuple[Floats, list[Law]]:
        """Return all rows, (N, D) in the model's order, and for each column the distributions of its cells."""
        kept = self._joined
        count = self.size // CHUNK
        if kept is None or len(kept[0]) < count * CHUNK:
            rows, laws = self._rows[:count], self._laws[:count]
            y = np.concatenate(rows)
            joined = [Law.joined([part[i] for part in laws]) for i in range(y.shape[1])]
            kept = self._joined = y, joined
        return kept
