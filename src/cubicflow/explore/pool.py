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
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.explore.shown_columns import ShownColumn
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.asking.allowed import AllowedNumbers
from cubicflow.tables.asking.column_law import ColumnLaw, NumberLaw
from cubicflow.tables.asking.constraints import Constraint
from cubicflow.tables.asking.particles import Particles, Walk
from cubicflow.tables.asking.sums import computed_columns
from cubicflow.tables.cell_encoder import CellEncoder
from cubicflow.tables.cells import Cells, NumberCells, WordCells
from cubicflow.tables.columns_model import ColumnsModel
from cubicflow.tables.kinds.column import Column

CHUNK = 1 << 11  # rows drawn at once; an answer waits for at most one chunk
MOST_ROWS = 1 << 17  # largest number of rows of a pool
MOST_BYTES = 1 << 28  # largest memory of the cells' distributions, in bytes
FEWEST_ROWS = 1 << 13  # rows of a full pool, even if the distributions of their cells need more than MOST_BYTES


@dataclass
class Law:
    """The conditional distributions of one column in N rows: log probabilities of outcomes (N, O), and spline params
    (N, P) or None."""

    log_outcomes: Tensor
    params: Tensor | None

    def take(self, rows: NDArray[np.int64] | slice) -> tuple[Tensor, Tensor | None]:
        """Return the distributions of some rows in float64, which the probabilities of sets need."""
        which = rows if isinstance(rows, slice) else torch.from_numpy(rows)
        return self.log_outcomes[which].double(), None if self.params is None else self.params[which].double()


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
                log_outcomes, params = self.model.column_law(i, particles.tokens, particles.kinds)
                laws.append(Law(log_outcomes.float(), None if params is None else params.float()))
                y, log_weight = walk.law(i).draw(log_outcomes, params, self._generator)
                walk.settle(particles, i, *walk.ruled(particles, i, y, log_weight))
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
            joined = []
            for i in range(y.shape[1]):
                params = [part[i].params for part in laws]
                splines = None if params[0] is None else torch.cat(params)  # type: ignore[arg-type] # all or none
                joined.append(Law(torch.cat([part[i].log_outcomes for part in laws]), splines))
            kept = self._joined = y, joined
        return kept


@torch.no_grad()
def log_chances(pool: Pool, i: int, law: ColumnLaw, walk: Walk, rows: NDArray[np.int64]) -> Floats:
    """Return, for some rows of a pool, the log probability that column i lies in the set of ``law``, (N,).

    The probability is conditional on the row's cells before column i.
    """
    y, laws = pool.all()
    found: Floats = torch.logsumexp(law.log_chances(*laws[i].take(rows)), 1).numpy()
    chosen = y[rows]
    nothing = torch.empty(0)
    return walk.ruled(Particles(chosen, found, nothing, nothing), i, chosen[:, i], found)[1]


@torch.no_grad()
def law_masses(shown: ShownColumn, column: Column, cells: Cells, log_outcomes: Tensor, params: Tensor | None) -> Floats:
    """Return the probability of every bin of a column in each row, (N, bins + 1). The last bin is for missing
    values."""
    if isinstance(cells, NumberCells):
        law = NumberLaw(column, cells, AllowedNumbers(shown.intervals, gap=cells.gaps))
        gap = np.full(int(cells.gaps), shown.bins)
        home = np.concatenate([law.spans.interval.astype(np.int64), shown.bin_of(law.atoms), gap])
        found = log_outcomes.new_zeros(len(log_outcomes), shown.bins + 1)
        return found.index_add_(1, torch.from_numpy(home), law.chances(log_outcomes, params)).double().numpy()
    shares = np.zeros((cells.outcomes, shown.bins + 1))  # of every outcome in every bin
    if isinstance(cells, WordCells):
        place = np.asarray(cells.kinds) * (shown.bins + 1) + shown.bin_of(np.arange(float(len(cells.kinds))))
        shares += np.bincount(place, cells.shares, shares.size).reshape(shares.shape)
    if cells.gaps:
        shares[cells.gap, -1] = 1
    return (log_outcomes.exp().double() @ torch.from_numpy(shares)).numpy()
