"""The distributions of all columns given a question, from one set of weighted rows, in a fraction of a second.

Rows that meet the question are all paths if there are few, else rows of a pool; with ``refine``, weighted particles,
which take seconds. Columns after the last condition and the last constraint are weighted means of exact conditional
distributions. Earlier columns are weighted counts of rows, in bins as narrow as the effective size allows. Every mass
has a standard error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.axes import Axis
from cubicflow.tables.laws.law import Law
from cubicflow.tables.query.answer import Means
from cubicflow.tables.query.pool import DRAWN_ON, FIRST_ROWS, Pool, thinned
from cubicflow.tables.query.question import Question
from cubicflow.tables.query.strategies import Begun, draw_particles, paths, probability_of, rejected
from cubicflow.tables.query.walk import Walk, resample
from cubicflow.tables.table_error import TableError

ENOUGH = 500.0  # effective rows that an answer should have
MOST_PATHS = 1 << 11  # largest number of paths that are enumerated
COUNTED = 1 << 12  # rows for the answer without conditions; twice as many with constraints
PER_BIN = 25.0  # effective rows that a bin should have


@dataclass(frozen=True)
class Marginal:
    """The masses of one column's bins, their standard errors, the effective size, and quantiles of the values.

    The last bin is for missing values.
    """

    masses: Floats
    errors: Floats
    effective_size: float
    quantiles: Floats


@dataclass(frozen=True)
class Marginals:
    """The distributions of all columns given a question, in the table's order, and the question's probability."""

    columns: Sequence[Marginal]
    probability: float
    probability_error: float
    is_density: bool = False

    @property
    def effective_size(self) -> float:
        return min(column.effective_size for column in self.columns)


def marginals(
    question: Question,
    axes: Sequence[Axis],
    pool: Pool,
    *,
    refine: bool = False,
    between: Callable[[], None] = lambda: None,
) -> Marginals:
    """Return the distributions of all columns given a question, in the bins of their axes.

    Args:
        question: conditions on the model of the pool.
        axes: the axes of all columns, in the table's order.
        pool: rows drawn from the model, at least one chunk.
        refine: whether weighted particles answer instead of the pool.
        between: a function that ``refine`` calls again and again. An error that it raises ends the answer.

    Raises:
        TableError: the conditions are impossible, or too rare to refine.
    """
    generator, walk = torch.Generator().manual_seed(0), question.walk
    axes = [axes[place] for place in walk.places]  # in the model's order
    begun = paths(question, len(axes), MOST_PATHS)
    probability = 1.0, 0.0
    if begun is None and not walk.sets:
        found = _of_pool(question, axes, pool)
    else:
        begun = begun or paths(question, walk.last + 1, MOST_PATHS)
        if begun is None and refine:
            begun = draw_particles(question, walk.last + 1, ENOUGH, generator, between)
        begun = begun or pool.begin(question, ENOUGH, generator)
        if begun.log_probability == -math.inf:
            raise question.impossible()
        found = [counted(axes[i], *begun.column(i), begun.exact_error) for i in range(begun.stop)]
        found += _drawn_on(walk, axes, begun, generator)
        probability = probability_of(question, begun, lambda each: _kept(each, pool))
    return Marginals([found[i] for i in np.argsort(walk.places)], *probability, question.has_density)


def marginals_of_rows(y: Floats, meets: NDArray[np.bool_], axes: Sequence[Axis]) -> Marginals:
    """Return the distributions of all columns among the rows (N, D) of a sample that meet conditions. Raises TableError
    if there are none."""
    if not meets.any():
        raise TableError(f"none of {len(y):,} drawn rows meets these conditions; widen the conditions")
    rows = rejected(y, meets)
    found = [counted(axis, *rows.column(i)) for i, axis in enumerate(axes)]
    share = math.exp(rows.log_probability)
    return Marginals(found, share, share * rows.relative_error)


def counted(axis: Axis, y: Floats, log_weight: Floats, exact: float | None = None) -> Marginal:
    """Return the masses of a column's bins, counted from weighted rows.

    With few effective rows, neighbouring bins of numbers that have few rows share their mass. ``exact`` is the error of
    all masses if the rows are an enumeration; None for drawn rows.

    >>> from cubicflow.tables.axes import axis_of
    >>> from cubicflow.tables.kinds.real import Real
    >>> y = np.linspace(0, 1, 4001)
    >>> found = counted(axis_of(Real("x", "double"), y), y, np.zeros(4001))
    >>> round(float(found.masses.sum()), 6), round(found.effective_size)
    (1.0, 4001)
    """
    means, bins, place = Means(log_weight, exact), np.arange(axis.bins + 1), axis.bin_of(y)
    there, shares = place >= 0, means.shares
    sums, squares = (np.bincount(place[there], w[there], minlength=len(bins)) for w in (shares, shares**2))
    home = bins  # the group of each bin; bins of one group share their mass evenly
    if not axis.is_list and exact is None:
        stride = max(1, math.ceil(axis.bins / max(means.size / PER_BIN, 4.0)))
        is_sparse = np.append(sums[:-1] * means.size < 2 * PER_BIN, False)
        home = np.where(is_sparse, bins // stride + len(bins), bins)
    together = home[:, None] == home  # which bins share their mass
    found, width = means.of_flags(together @ sums, together @ squares), together.sum(axis=1)
    quantiles = axis.quantiles(y, shares)
    return Marginal(found.values / width, found.errors / width, means.size, quantiles)


def averaged(axis: Axis, law: Law, means: Means, quantiles: Floats) -> Marginal:
    """Return the weighted means of the masses of a column's bins under its law in each row."""
    return Marginal(*means.of(law.masses(law.coder.of(axis.sets))), means.size, quantiles)


@torch.no_grad()
def _drawn_on(walk: Walk, axes: Sequence[Axis], begun: Begun, generator: torch.Generator) -> list[Marginal]:
    """Return the answers for the columns after the last condition: the means of their conditional distributions."""
    particles, exact, found = begun.particles, begun.exact_error, list[Marginal]()
    if begun.stop < len(axes) and len(particles) > MOST_PATHS:
        kept, log_kept = thinned(particles.log_weight, DRAWN_ON, float(torch.rand(1, generator=generator)))
        particles = particles.take(kept)
        particles.log_weight = log_kept
    for i in range(begun.stop, len(axes)):
        law, means = walk.law(i, particles), Means(particles.log_weight, exact)
        drawn, drawn_from = particles, law
        if exact is not None:  # resample rows from the enumerated paths
            chooser = np.random.default_rng(generator.initial_seed())
            rows = resample(particles.log_weight, DRAWN_ON, chooser)
            drawn, drawn_from, exact = particles.take(rows), law.take(rows), None
            drawn.log_weight = np.zeros(len(rows))
        log_weight = drawn.log_weight
        walk.draw(drawn, i, drawn_from, generator)
        drawn.log_weight = log_weight  # columns after the last set keep all weights
        if walk.is_determined(i):
            found.append(counted(axes[i], drawn.y[:, i], log_weight))
        else:
            quantiles = axes[i].quantiles(drawn.y[:, i], Means(log_weight, None).shares)
            found.append(averaged(axes[i], law, means, quantiles))
        particles = drawn
    return found


def _of_pool(question: Question, axes: Sequence[Axis], pool: Pool) -> list[Marginal]:
    """Return the answers without conditions, from the pool's first rows and the distributions of their cells."""
    y, walk, found = pool.y, question.walk, []
    rows = np.arange(min(len(y), 2 * COUNTED if walk.checks else COUNTED))
    rows = rows[walk.keeps(y[rows])]
    if not len(rows):
        raise question.none_drawn()
    equal = np.zeros(len(rows))
    for i, axis in enumerate(axes):
        if i <= walk.last or walk.is_determined(i):
            found.append(counted(axis, y[rows, i], equal))
        else:
            found.append(averaged(axis, pool.law(i, rows), Means(equal, None), axis.quantiles(y[rows, i])))
    return found


def _kept(question: Question, pool: Pool) -> Begun:
    """Return rows that keep the constraints of a question without conditions."""
    y = pool.y[:FIRST_ROWS]
    return paths(question, question.walk.last + 1, MOST_PATHS) or rejected(y, question.walk.keeps(y))
