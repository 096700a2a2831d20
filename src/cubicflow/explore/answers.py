"""The distributions of all columns given conditions on some, for a model of columns, in a fraction of a second.

Rows that meet the conditions and the constraints of the fit come from :mod:`cubicflow.tables.query.strategies`: all
paths if there are few, else a pool of rows; with ``refine``, weighted particles, which take seconds.

Columns after the last condition and the last constraint are weighted means of exact conditional distributions. Earlier
columns are weighted counts of rows, in bins as narrow as the effective size allows. Every mass has a standard error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.axes import QUANTILES, Axis
from cubicflow.tables.fitted import FittedTable
from cubicflow.tables.query.conditions import Given
from cubicflow.tables.query.pool import DRAWN_ON, FIRST_ROWS, Pool, thinned
from cubicflow.tables.query.question import Question
from cubicflow.tables.query.strategies import Begun, DrawParticles, Enumerate, ask, probability_of, rejected
from cubicflow.tables.query.walk import Walk, effective_size, resample

ENOUGH = 500.0  # effective rows that an answer should have
MOST_PATHS = 1 << 11  # largest number of paths that are enumerated
COUNTED = 1 << 12  # rows for the answer without conditions; twice as many with constraints
PER_BIN = 25.0  # effective rows that a bin should have


@dataclass(frozen=True)
class ColumnAnswer:
    """The masses of one column's bins, their standard errors, the effective size, and quantiles of the values.

    The last bin is for missing values.
    """

    masses: Floats
    errors: Floats
    effective_size: float
    quantiles: Floats = field(default_factory=lambda: np.full(len(QUANTILES), np.nan))


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


class Asker:
    """Conditional distributions of one model of columns.

    Args:
        fitted: the fitted table.
        columns: the axes of the columns, in the table's order.
        pool: rows drawn from the model, at least one chunk.
    """

    def __init__(self, fitted: FittedTable, columns: Sequence[Axis], pool: Pool) -> None:
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
        paths = Enumerate(MOST_PATHS)
        begun = paths.begin(question, len(self.columns), ENOUGH, generator)
        if begun is None:
            if not question.walk.sets:
                return self._unconditional(question)
            begun = ask(question, [paths, DrawParticles() if refine else self.pool], 0, ENOUGH, generator)
        return self.answer_by(question, begun, generator)

    def answer_by(self, question: Question, begun: Begun, generator: torch.Generator) -> Answer:
        """Return the distributions of all columns given rows that meet a question."""
        if begun.log_probability == -math.inf:
            raise question.impossible()
        found = self._counted(begun) | self._drawn_on(question.walk, begun, generator)
        return self._in_order(found, *probability_of(question, begun, self._kept(question)), question.has_density)

    def _kept(self, question: Question) -> Begun | None:
        """Return rows that keep the constraints; None without constraints."""
        if not question.walk.checks:
            return None
        kept = question.unconditioned()
        if (exact := Enumerate(MOST_PATHS).paths(kept, kept.walk.last + 1)) is not None:
            return exact
        y = self.pool.all()[0][:FIRST_ROWS]
        return rejected(y, {}, kept.walk.keeps(y))

    # --- columns ---

    def _counted(self, begun: Begun) -> dict[int, ColumnAnswer]:
        """Return the answers for the columns up to the last condition, counted from weighted rows."""
        found = {}
        for i in range(begun.stop):
            y, log_weight = begun.particles.y, begun.particles.log_weight
            if begun.early is not None and i < begun.before:
                y, log_weight = begun.early
            found[i] = counted(self.columns[i], y[:, i], log_weight, begun.exact_error)
        return found

    @torch.no_grad()
    def _drawn_on(self, walk: Walk, begun: Begun, generator: torch.Generator) -> dict[int, ColumnAnswer]:
        """Return the answers for the columns after the last condition: the means of their conditional distributions
        over rows."""
        particles, exact, found = begun.particles, begun.exact_error, dict[int, ColumnAnswer]()
        if begun.stop == len(walk.columns):
            return found
        if len(particles) > MOST_PATHS:
            kept, log_kept = thinned(particles.log_weight, DRAWN_ON, float(torch.rand(1, generator=generator)))
            particles = particles.take(kept)
            particles.log_weight = log_kept
        for i in range(begun.stop, len(walk.columns)):
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

    def _unconditional(self, question: Question) -> Answer:
        """Return the answers for all columns without conditions, from the pool's first rows.

        A column after all constraints is the mean of its conditional distributions; the others are counted.
        """
        y, laws = self.pool.all()
        walk, found = question.walk, {}
        rows = np.arange(min(len(y), 2 * COUNTED if walk.checks else COUNTED))
        rows = rows[walk.keeps(y[rows])]
        if not len(rows):
            raise question.none_drawn()
        equal = np.zeros(len(rows))  # log weights
        for i, column in enumerate(self.columns):
            if i <= walk.last or walk.is_determined(i):
                found[i] = counted(column, y[rows, i], equal)
            else:
                mean = averaged(column.law_masses(laws[i].take(rows)), equal)
                found[i] = replace(mean, quantiles=column.quantiles(y[rows, i]))
        return self._in_order(found, 1.0, 0.0)

    def _in_order(
        self, found: dict[int, ColumnAnswer], probability: float, error: float, is_density: bool = False
    ) -> Answer:
        """Return the answer with columns in the table's order instead of the model's."""
        order = np.argsort(self._places)
        return Answer([found[int(i)] for i in order], probability, error, is_density)


def counted(column: Axis, y: Floats, log_weight: Floats, exact: float | None = None) -> ColumnAnswer:
    """Return the masses of a column's bins, counted from weighted rows.

    With few effective rows, neighbouring bins of numbers that have few rows share their mass. ``exact`` is the error of
    all masses if the rows are an enumeration; None for drawn rows.

    >>> from cubicflow.tables.axes import array_axis
    >>> column = array_axis("x", np.linspace(0, 1, 4001))
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
