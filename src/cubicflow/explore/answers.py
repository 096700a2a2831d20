"""The distributions of all columns given conditions on some, for a model of columns, in a fraction of a second.

There are three methods; the first that applies is used. All keep the constraints of the fit, as
:mod:`cubicflow.tables.asking.question` describes:

1. Enumeration. If few paths lead through the columns up to the last condition, all paths are followed. Their
   probabilities are exact.
2. The pool. One condition is the pivot. Rows of the pool that meet the conditions before the pivot are kept. Each row's
   weight is the probability that its pivot column meets the pivot condition; this probability follows from the
   conditional distribution of the cell, which the pool stores. Columns after the pivot are drawn, with weights for
   later conditions. The pivot is the last condition that leaves enough effective rows, or else the condition that
   leaves the most.
3. ``refine``: weighted particles and tilts, as in :meth:`cubicflow.tables.FittedTable.conditional`. It takes seconds.

Columns after the last condition and the last constraint are weighted means of exact conditional distributions. Earlier
columns are weighted counts of rows, in bins as narrow as the effective size allows. Every mass has a standard error.
Many weighted rows are thinned to fewer rows before further columns are drawn: no row is taken twice, and light rows get
one common weight (Fearnhead and Clifford 2003). The sum of weights keeps its expectation, and the effective size counts
no row twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from cubicflow.explore.pool import Pool
from cubicflow.explore.shown_columns import LEVELS, ShownColumn
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.asking.conditions import Given
from cubicflow.tables.asking.particles import Particles, Walk, effective_size, resample
from cubicflow.tables.asking.question import Question, Weighed
from cubicflow.tables.fitted import FittedTable
from cubicflow.tables.table_error import TableError

ENOUGH = 500.0  # effective rows that an answer should have
MOST_PATHS = 1 << 11  # largest number of paths that are enumerated
DRAWN_ON = 1 << 10  # rows over which the conditional distributions of later columns are averaged
WALKED = 1 << 11  # rows drawn through conditions after the pivot
MOST_WALKED = 1 << 13  # largest number of rows drawn through conditions after the pivot
FIRST_ROWS = 1 << 14  # rows of the pool with which a pivot is first tried
LOST = 0.02  # guess for the fraction of the effective size that remains after each later condition
PER_BIN = 25.0  # effective rows that a bin should have


@dataclass(frozen=True)
class ColumnAnswer:
    """The masses of one column's bins, their standard errors, the effective size, and quantiles of the values.

    The last bin is for missing values.
    """

    masses: Floats
    errors: Floats
    effective_size: float
    quantiles: Floats = field(default_factory=lambda: np.full(len(LEVELS), np.nan))


@dataclass(frozen=True)
class Answer:
    """The distributions of all columns given conditions, in the table's order, and the conditions' probability."""

    columns: Sequence[ColumnAnswer]
    probability: float
    probability_error: float
    is_density: bool = False

    @property
    def effective_size(self) -> float:
        return min(column.effective_size for column in self.columns)


@dataclass(frozen=True)
class Begun:
    """Rows up to the last condition. For columns before the pivot, the pool has more rows than the particles."""

    particles: Particles
    log_probability: float
    exact: float | None = None  # relative error of enumerated paths; None for drawn rows
    pool_y: Floats | None = None  # rows of the pool whose weights are final
    pool_log_weight: Floats | None = None
    before: int = 0  # number of first columns for which the pool's rows are used

    def stop(self, walk: Walk) -> int:
        """Return the number of columns that the particles have."""
        return self.particles.tokens.shape[1] - len(walk.encoder.schema.context)


class Asker:
    """Conditional distributions of one model of columns.

    Args:
        fitted: the fitted table.
        columns: the columns as the page shows them, in the table's order.
        pool: rows drawn from the model, at least one chunk.
    """

    def __init__(self, fitted: FittedTable, columns: Sequence[ShownColumn], pool: Pool) -> None:
        self.fitted, self.pool = fitted, pool
        by_name = {column.name: column for column in columns}
        self.columns = [by_name[name] for name in pool.encoder.order]  # in the model's order
        self._places = pool.walk.places

    def answer(self, given: Given, *, refine: bool = False, seed: int = 0) -> Answer:
        """Return the distributions of all columns given conditions.

        Raises TableError for conditions that are impossible or too rare to refine.
        """
        question = Question(self.pool.model, self.pool.encoder, given, self.fitted.constraints)
        generator = torch.Generator().manual_seed(seed)
        if not question.walk.sets and self._paths(question, len(self.columns)) is None:
            return self._unconditional(question)
        begun = self._begun(question, generator, refine=refine)
        found = self._counted(question.walk, begun)
        found |= self._drawn_on(question.walk, begun, generator)
        weights = begun.particles.log_weight if begun.pool_log_weight is None else begun.pool_log_weight
        relative_error = 1 / math.sqrt(effective_size(weights)) if begun.exact is None else begun.exact
        log_kept, error_kept = self._log_kept(question)
        probability = math.exp(begun.log_probability - log_kept)
        if not question.has_density:
            probability = min(probability, 1.0)  # a ratio of two estimates can exceed 1
        error = probability * math.hypot(relative_error, error_kept)
        return self._in_order(found, probability, error, is_density=question.has_density)

    # --- rows up to the last condition or constraint ---

    @staticmethod
    def _paths(question: Question, stop: int) -> Weighed | None:
        """Return all paths through the first ``stop`` columns; None if they are many."""
        return question.enumerated(stop, MOST_PATHS)

    def _begun(self, question: Question, generator: torch.Generator, *, refine: bool) -> Begun:
        walk = question.walk
        for stop in (len(walk.columns), walk.last + 1):
            if (exact := self._paths(question, stop)) is None:
                continue
            if exact.log_probability == -math.inf:
                raise question.impossible()
            return Begun(exact.particles, exact.log_probability, exact.relative_error)
        if refine:
            weighed = question.weighed(walk.last + 1, ENOUGH, generator)
            return Begun(
                weighed.particles, weighed.log_probability, weighed.relative_error if weighed.is_exact else None
            )
        pivot, rows, log_weight, seen = self._pivot(walk)
        later = walk.last > pivot or pivot in walk.checks
        count = WALKED if later else DRAWN_ON
        while True:
            begun = self._walked(walk, pivot, rows, log_weight, seen, count, generator)
            size = effective_size(begun.particles.log_weight)
            if not size and count >= min(MOST_WALKED, len(rows)):
                raise self._none_kept()
            if not later or size >= ENOUGH or count >= min(MOST_WALKED, len(rows)):
                return begun
            count = int(min(MOST_WALKED, 1.2 * count * ENOUGH / max(size, 1.0)))

    def _pivot(self, walk: Walk) -> tuple[int, NDArray[np.int64], Floats, int]:
        """Return the pivot, the pool's rows that meet earlier conditions, their log weights, and the rows tried."""
        best: tuple[float, int, NDArray[np.int64], Floats, int] | None = None
        conditioned = sorted(walk.sets)
        for i in reversed(conditioned):
            seen = min(FIRST_ROWS, self.pool.size)
            rows, log_weight = self._weighed(walk, i, 0, seen)
            while effective_size(log_weight) < ENOUGH and seen < self.pool.size:
                more = self._weighed(walk, i, seen, min(4 * seen, self.pool.size))
                rows, log_weight = (np.concatenate(pair) for pair in zip((rows, log_weight), more, strict=True))
                seen = min(4 * seen, self.pool.size)
            size = effective_size(log_weight)
            worth = min(size, MOST_WALKED) * LOST ** sum(j > i for j in conditioned)
            if best is None or worth > best[0]:
                best = worth, i, rows, log_weight, seen
            if best[0] >= ENOUGH:
                break
        if best is None or not best[0]:
            raise self._none_kept()
        return best[1:]

    def _weighed(self, walk: Walk, pivot: int, first: int, last: int) -> tuple[NDArray[np.int64], Floats]:
        y, _ = self.pool.all()
        rows = np.arange(first, min(last, len(y)))
        for i in sorted(walk.sets):
            if i < pivot:
                rows = rows[walk.sets[i].contains(y[rows, i])]
        rows = rows[walk.keeps(y[rows], pivot)]
        if not len(rows):
            return rows, np.empty(0)
        return rows, self.pool.all()[1][pivot].take(rows).log_mass(walk.cells(pivot))

    @torch.no_grad()
    def _walked(
        self,
        walk: Walk,
        pivot: int,
        rows: NDArray[np.int64],
        log_weight: Floats,
        seen: int,
        count: int,
        generator: torch.Generator,
    ) -> Begun:
        """Thin the rows to ``count``, and draw their columns from the pivot to the last condition."""
        y, laws = self.pool.all()
        kept, log_kept = thinned(log_weight, count, float(torch.rand(1, generator=generator)))
        chosen = rows[kept]
        particles = walk.begun(y[chosen], pivot)
        walk.draw(particles, pivot, laws[pivot].take(chosen), generator)
        particles.log_weight = np.where(np.isfinite(particles.log_weight), log_kept, -math.inf)
        for i in range(pivot + 1, walk.last + 1):
            walk.step(particles, i, generator)
        total = float(np.logaddexp.reduce(particles.log_weight)) - math.log(seen)
        if walk.last > pivot or pivot in walk.checks:
            return Begun(particles, total)
        exact = float(np.logaddexp.reduce(log_weight)) - math.log(seen)
        return Begun(particles, exact, pool_y=y[rows], pool_log_weight=log_weight, before=pivot)

    # --- columns ---

    def _counted(self, walk: Walk, begun: Begun) -> dict[int, ColumnAnswer]:
        """Return the answers for the columns up to the last condition, counted from weighted rows."""
        found = {}
        for i in range(begun.stop(walk)):
            if begun.pool_y is not None and begun.pool_log_weight is not None and i < begun.before:
                found[i] = counted(self.columns[i], begun.pool_y[:, i], begun.pool_log_weight)
                continue
            y, log_weight = begun.particles.y[:, i], begun.particles.log_weight
            found[i] = counted(self.columns[i], y, log_weight, begun.exact)
        return found

    @torch.no_grad()
    def _drawn_on(self, walk: Walk, begun: Begun, generator: torch.Generator) -> dict[int, ColumnAnswer]:
        """Return the answers for the columns after the last condition: the means of their conditional distributions
        over rows."""
        particles, exact, found = begun.particles, begun.exact, {}
        if len(particles) > MOST_PATHS:
            kept, log_kept = thinned(particles.log_weight, DRAWN_ON, float(torch.rand(1, generator=generator)))
            particles = particles.take(kept)
            particles.log_weight = log_kept
        for i in range(begun.stop(walk), len(walk.columns)):
            law = walk.law(i, particles)
            if not walk.is_determined(i):
                found[i] = averaged(self.columns[i].law_masses(law), particles.log_weight, exact)
            if exact is not None:  # resample rows from the enumerated paths
                chooser = np.random.default_rng(generator.initial_seed())
                rows = resample(particles.log_weight, DRAWN_ON, chooser)
                particles, exact = particles.take(rows), None
                particles.log_weight = np.zeros(len(rows))
                law = law.take(rows)
            log_weight = particles.log_weight
            walk.draw(particles, i, law, generator)
            particles.log_weight = log_weight  # columns after the last set keep all weights
            drawn = counted(self.columns[i], particles.y[:, i], particles.log_weight)
            found[i] = drawn if walk.is_determined(i) else replace(found[i], quantiles=drawn.quantiles)
        return found

    def _log_kept(self, question: Question) -> tuple[float, float]:
        """Return the log probability that a row keeps the constraints, and its relative error."""
        kept = question.unconditioned()
        if (exact := self._paths(kept, kept.walk.last + 1)) is not None:
            return exact.log_probability, exact.relative_error
        y = self.pool.all()[0][:FIRST_ROWS]
        share = max(float(kept.walk.keeps(y).mean()), 1 / len(y))
        return math.log(share), math.sqrt((1 - share) / (share * len(y)))

    def _unconditional(self, question: Question) -> Answer:
        """Return the answers for all columns without conditions, from the pool's first rows.

        A column after all constraints is the mean of its conditional distributions; the others are counted.
        """
        y, laws = self.pool.all()
        walk, found = question.walk, {}
        rows = np.arange(min(len(y), MOST_WALKED if walk.checks else 2 * WALKED))
        rows = rows[walk.keeps(y[rows])]
        if not len(rows):
            raise self._none_kept()
        equal = np.zeros(len(rows))  # log weights
        for i, column in enumerate(self.columns):
            if i <= walk.last or walk.is_determined(i):
                found[i] = counted(column, y[rows, i], equal)
            else:
                mean = averaged(column.law_masses(laws[i].take(rows)), equal)
                found[i] = replace(mean, quantiles=column.quantiles(y[rows, i]))
        return self._in_order(found, 1.0, 0.0)

    def _none_kept(self) -> TableError:
        also = " and keeps the constraints of the fit" if self.fitted.constraints else ""
        return TableError(f"none of the drawn rows meets these conditions{also}; widen the conditions")

    def _in_order(
        self, found: dict[int, ColumnAnswer], probability: float, error: float, *, is_density: bool = False
    ) -> Answer:
        """Return the answer with columns in the table's order instead of the model's."""
        order = np.argsort(self._places)
        return Answer([found[int(i)] for i in order], probability, error, is_density)


def counted(column: ShownColumn, y: Floats, log_weight: Floats, exact: float | None = None) -> ColumnAnswer:
    """Return the masses of a column's bins, counted from weighted rows.

    With few effective rows, neighbouring bins of numbers that have few rows share their mass. ``exact`` is the error of
    all masses if the rows are an enumeration; None for drawn rows.

    >>> from cubicflow.explore.shown_columns import plain_column
    >>> column = plain_column("x", np.linspace(0, 1, 4001))
    >>> found = counted(column, np.linspace(0, 1, 4001), np.zeros(4001))
    >>> round(float(found.masses.sum()), 6), round(found.effective_size)
    (1.0, 4001)
    """
    shares = np.exp(log_weight - log_weight.max())
    shares /= shares.sum()
    masses = column.masses(y, shares)
    quantiles = column.quantiles(y, shares)
    if exact is not None:
        return ColumnAnswer(masses, np.full_like(masses, exact), math.inf, quantiles)
    size = effective_size(log_weight)
    home = np.arange(column.bins + 1)  # the group of each bin; bins of one group share their mass evenly
    if not column.is_list:
        stride = max(1, math.ceil(column.bins / max(size / PER_BIN, 4.0)))
        is_sparse = np.append(masses[:-1] * size < 2 * PER_BIN, False)
        home = np.where(is_sparse, home // stride * stride + column.bins + 1, home)
    place = column.bin_of(y)
    there = place >= 0
    homes = 2 * (column.bins + 1)
    squares: Floats = np.bincount(home[place[there]], shares[there] ** 2, minlength=homes).astype(np.float64)
    sums: Floats = np.bincount(home[place[there]], shares[there], minlength=homes).astype(np.float64)
    total = float((shares**2).sum())
    errors = np.sqrt(np.maximum(squares * (1 - sums) ** 2 + (total - squares) * sums**2, 0) + size**-2)
    width = np.bincount(home, minlength=homes)[home]
    return ColumnAnswer(sums[home] / width, errors[home] / width, size, quantiles)


def averaged(masses: Floats, log_weight: Floats, exact: float | None = None) -> ColumnAnswer:
    """Return the weighted mean of the masses (N, bins + 1) over rows, with its standard error and without quantiles.

    >>> averaged(np.array([[0.0, 1.0], [1.0, 0.0]]), np.zeros(2)).masses.tolist()
    [0.5, 0.5]
    """
    shares = np.exp(log_weight - log_weight.max())
    shares /= shares.sum()
    mean: Floats = shares @ masses
    if exact is not None:
        return ColumnAnswer(mean, np.full_like(mean, exact), math.inf)
    errors = np.sqrt((shares**2) @ (masses - mean) ** 2)
    return ColumnAnswer(mean, errors, effective_size(log_weight))


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
