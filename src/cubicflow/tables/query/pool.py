"""A pool of rows drawn from a model of columns. Each cell keeps its law: the distribution it was drawn from.

The law of a cell is the network's output for its column, given the cells before it: log probabilities of outcomes, and
the params of a spline. The law gives the probability that a row's column lies in a set. This takes one spline
evaluation and no network pass. So all rows of the pool are weighted for a condition in a few milliseconds. Rows are
independent, and so are their weights.

Many weighted rows are thinned to fewer rows before further columns are drawn: no row is taken twice, and light rows get
one common weight (Fearnhead and Clifford 2003). The sum of weights keeps its expectation, and the effective size counts
no row twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.laws.law import Law
from cubicflow.tables.model.columns import ModelOfColumns
from cubicflow.tables.query.constraints import Constraint
from cubicflow.tables.query.question import Question
from cubicflow.tables.query.strategies import Begun
from cubicflow.tables.query.walk import Walk, effective_size

DRAWN_ON = 1 << 10  # rows over which the conditional distributions of later columns are averaged
WALKED = 1 << 11  # rows drawn through conditions after the pivot
MOST_WALKED = 1 << 13  # largest number of rows drawn through conditions after the pivot
FIRST_ROWS = 1 << 14  # rows of the pool with which a pivot is first tried
LOST = 0.02  # guess for the fraction of the effective size that remains after each later condition
CHUNK = 1 << 11  # rows drawn at once; an answer waits for at most one chunk
MOST_ROWS = 1 << 17  # largest number of rows of a pool
MOST_BYTES = 1 << 28  # largest memory of the cells' distributions, in bytes
FEWEST_ROWS = 1 << 13  # rows of a full pool, even if the distributions of their cells need more than MOST_BYTES


class Pivot(NamedTuple):
    """The condition whose probability weighs rows of a pool.

    Attributes:
        column: the index of the conditioned column.
        rows: the rows of the pool that meet the conditions on earlier columns, among the first ``seen`` rows.
        log_weight: the log probabilities that the column meets its condition in these rows.
    """

    column: int
    rows: NDArray[np.int64]
    log_weight: Floats
    seen: int


@dataclass
class Pool:
    """Rows drawn from a model of columns, with the distributions of their cells.

    :meth:`grow` adds a chunk, in one thread at a time. Readers see only whole chunks.

    Attributes:
        model: the model.
        context: the context of all rows, or None.
        constraints: the constraints of the fit. Columns that are sums are computed; rows may break other constraints.
        seed: the seed of the rows.
        size: the number of rows drawn so far.
    """

    model: ModelOfColumns
    context: Floats | None = None
    constraints: Sequence[Constraint] = ()
    seed: int = 0
    size: int = 0

    def __post_init__(self) -> None:
        self.walk = Walk(self.model, {}, self.context, constraints=self.constraints)
        self._generator = torch.Generator().manual_seed(self.seed)
        network = self.model.network
        numbers = sum(network.outcomes) + sum(2 * network.num_bins + 2 for shape in network.shapes if shape)
        self.most = max(min(MOST_ROWS, MOST_BYTES // (4 * numbers)) // CHUNK * CHUNK, FEWEST_ROWS)
        self._y = np.empty((self.most, len(self.walk.columns)))
        self._laws: list[Law] = []
        self._growing = Lock()

    @property
    def is_full(self) -> bool:
        return self.size >= self.most

    @torch.no_grad()
    def grow(self) -> None:
        """Draw a chunk of rows, if the pool is not full."""
        with self._growing:
            if self.is_full:
                return
            rows, particles = slice(self.size, self.size + CHUNK), self.walk.start(CHUNK)
            for i in range(len(self.walk.columns)):
                law = self.walk.law(i, particles)
                if i == len(self._laws):
                    self._laws.append(law.room(self.most))
                self._laws[i].put(rows, law)
                self.walk.draw(particles, i, law, self._generator)
            self._y[rows] = particles.y
            self.size += CHUNK  # from now on readers see these rows

    def grow_to(self, rows: int) -> None:
        """Draw rows until the pool has ``rows`` rows or is full."""
        while self.size < min(rows, self.most):
            self.grow()

    @property
    def y(self) -> Floats:
        """All rows, (N, D) in the model's order."""
        return self._y[: self.size]

    def law(self, i: int, rows: NDArray[np.int64] | slice) -> Law:
        """Return the distributions from which column i of some rows was drawn."""
        return self._laws[i].take(rows)

    # --- answers ---

    def begin(self, question: Question, size: float, generator: torch.Generator) -> Begun:
        """Return rows of the pool that meet the question.

        One condition is the pivot. Rows that meet the conditions before the pivot are kept. Each row's weight is the
        probability that its pivot column meets the pivot condition. Columns after the pivot are drawn, with weights for
        later conditions. The pivot is the last condition that leaves ``size`` effective rows, or else the condition
        that leaves the most.
        """
        walk = question.walk
        pivot = self._pivot(question, size)
        later = walk.last > pivot.column or pivot.column in walk.checks
        count = WALKED if later else DRAWN_ON
        while True:
            begun = self._walked(walk, pivot, count, generator)
            reached = effective_size(begun.particles.log_weight)
            is_last = count >= min(MOST_WALKED, len(pivot.rows))
            if not reached and is_last:
                raise question.none_drawn()
            if not later or reached >= size or is_last:
                return begun
            count = int(min(MOST_WALKED, 1.2 * count * size / max(reached, 1.0)))

    def _pivot(self, question: Question, enough: float) -> Pivot:
        walk, best, most = question.walk, None, 0.0
        conditioned = sorted(walk.sets)
        for i in reversed(conditioned):
            seen = min(FIRST_ROWS, self.size)
            rows, log_weight = self._weighed(walk, i, 0, seen)
            while effective_size(log_weight) < enough and seen < self.size:
                more = self._weighed(walk, i, seen, min(4 * seen, self.size))
                rows, log_weight = (np.concatenate(pair) for pair in zip((rows, log_weight), more, strict=True))
                seen = min(4 * seen, self.size)
            worth = min(effective_size(log_weight), MOST_WALKED) * LOST ** sum(j > i for j in conditioned)
            if worth > most:
                best, most = Pivot(i, rows, log_weight, seen), worth
            if most >= enough:
                break
        if best is None:
            raise question.none_drawn()
        return best

    def _weighed(self, walk: Walk, pivot: int, first: int, last: int) -> tuple[NDArray[np.int64], Floats]:
        y, rows = self.y, np.arange(first, last)
        for i in sorted(walk.sets):
            if i < pivot:
                rows = rows[walk.sets[i].contains(y[rows, i])]
        rows = rows[walk.keeps(y[rows], pivot)]
        if not len(rows):
            return rows, np.empty(0)
        return rows, self.law(pivot, rows).log_mass(walk.cells(pivot))

    @torch.no_grad()
    def _walked(self, walk: Walk, pivot: Pivot, count: int, generator: torch.Generator) -> Begun:
        """Thin the rows to ``count``, and draw their columns from the pivot to the last condition."""
        y, i = self.y, pivot.column
        kept, log_kept = thinned(pivot.log_weight, count, float(torch.rand(1, generator=generator)))
        chosen = pivot.rows[kept]
        particles = walk.begun(y[chosen], i)
        walk.draw(particles, i, self.law(i, chosen), generator)
        particles.log_weight = np.where(np.isfinite(particles.log_weight), log_kept, -math.inf)
        for later in range(i + 1, walk.last + 1):
            walk.step(particles, later, generator)
        if walk.last > i or i in walk.checks:
            return Begun(particles, walk.last + 1, pivot.seen)
        return Begun(particles, i + 1, pivot.seen, early=(y[pivot.rows], pivot.log_weight), before=i)


def thinned(log_weight: Floats, n: int, uniform: float) -> tuple[NDArray[np.int64], Floats]:
    """Return at most ``n`` distinct rows and their log weights.

    Heavy rows keep their weights. Light rows are kept at random and get one common weight. Sums of weights keep their
    expectation.

    >>> kept, log_weight = thinned(np.log(np.array([8.0, 1.0, 1.0, 1.0, 1.0])), 3, 0.5)
    >>> kept.tolist(), np.exp(log_weight).round(6).tolist()
    ([0, 2, 4], [8.0, 2.0, 2.0])
    """
    there = np.flatnonzero(np.isfinite(log_weight))
    if len(there) <= n:
        return there, log_weight[there]
    top = float(log_weight.max())
    w = np.exp(log_weight[there] - top)
    falling = np.sort(w)[::-1]
    rest = np.cumsum(falling[::-1])[::-1]  # sum of each weight and all smaller weights
    heavy = np.arange(n)
    common = rest[:n] / (n - heavy)  # common weight of light rows, for each number of heavy rows
    enough = falling[:n] <= common
    threshold = float(common[int(np.argmax(enough))]) if enough.any() else float(falling[n - 1])
    ends = np.cumsum(np.minimum(w / threshold, 1.0))
    before = np.concatenate([[0.0], ends[:-1]])
    taken = np.floor(ends + uniform - 1e-9) > np.floor(before + uniform - 1e-9)
    taken |= w >= threshold
    return there[taken], np.maximum(log_weight[there][taken], math.log(threshold) + top)
