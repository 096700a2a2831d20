"""Strategies that answer a question: weighted beginnings of rows that meet its conditions and constraints.

All paths are exact and fast if few columns with lists of values come before the last condition. Conditions on the first
columns need few paths. An equality leaves one value of its column. The last conditioned column adds no paths, because
only the probability of its set is needed. Particles always serve. The page has a pool of rows that were drawn before
(:mod:`cubicflow.tables.query.pool`), and a flow a sample, whose rows are kept or rejected. All strategies agree
within their errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.laws.coder import SetCells
from cubicflow.tables.query.condition_sets import sets_of
from cubicflow.tables.query.conditions import Given, read_conditions
from cubicflow.tables.query.question import Question
from cubicflow.tables.query.sums import out_of_reach
from cubicflow.tables.query.tilts import ENOUGH, improved_tilts
from cubicflow.tables.query.walk import Particles, Walk, effective_size
from cubicflow.tables.schema import Schema
from cubicflow.tables.schema.sets import Flags
from cubicflow.tables.table_error import TableError

MOST_PATHS = 1 << 15  # most paths of an enumeration
PILOT = 1 << 12  # particles of the first round, without tilts
TRIED = 1 << 11  # particles after each tilt
AT_ONCE = 1 << 14  # particles of one further round
MOST_PARTICLES = 1 << 16
MOST_TILTS = 8
FEWEST = 100.0  # effective size; questions with fewer effective particles are refused
CONFIDENCE = 0.05  # probability that an upper bound is wrong


@dataclass(frozen=True)
class Begun:
    """Weighted beginnings of rows that meet a question.

    Attributes:
        particles: the rows, with columns 0 .. ``stop`` - 1.
        stop: the number of columns.
        drawn: the number of independent draws whose mean weight is the probability; None for all paths.
        unresolved: the probability of paths that an enumeration represents by another path.
        early: plain numbers (M, D) and log weights (M,) of more rows, whose columns 0 .. ``before`` - 1 are final.
        before: the number of first columns of ``early``.
    """

    particles: Particles
    stop: int
    drawn: int | None = None
    unresolved: float = 0.0
    early: tuple[Floats, Floats] | None = None
    before: int = 0

    @property
    def is_exact(self) -> bool:
        return self.drawn is None

    @property
    def log_weight(self) -> Floats:
        """The log weights whose mean is the probability."""
        return self.particles.log_weight if self.early is None else self.early[1]

    @cached_property
    def effective_size(self) -> float:
        return math.inf if self.is_exact else effective_size(self.log_weight)

    @property
    def log_probability(self) -> float:
        found = float(np.logaddexp.reduce(self.log_weight)) if len(self.log_weight) else -math.inf
        return found if self.drawn is None else found - math.log(self.drawn)

    @property
    def relative_error(self) -> float:
        """The standard error of the probability divided by the probability."""
        if self.drawn is None:
            return self.unresolved / max(math.exp(self.log_probability), 1e-300)
        if not self.effective_size:
            return math.inf
        return math.sqrt(max(self.drawn / self.effective_size - 1, 0.0) / (self.drawn - 1))

    def column(self, i: int) -> tuple[Floats, Floats]:
        """Return the plain numbers of column i in the rows that tell most about it, and their log weights."""
        if self.early is not None and i < self.before:
            return self.early[0][:, i], self.early[1]
        return self.particles.y[:, i], self.particles.log_weight

    @property
    def exact_error(self) -> float | None:
        """The relative error of all paths; None for drawn rows."""
        return self.relative_error if self.is_exact else None


def weighted_rows(question: Question, stop: int, size: float, generator: torch.Generator) -> Begun:
    """Return rows with at least the columns 0 .. ``stop`` - 1 and the columns of the question's sets and checks.

    They are all paths if there are few, else particles with the effective size ``size``.

    Raises:
        TableError: no row meets the question, or too few rows do.
    """
    stop = max(stop, question.walk.last + 1)
    found = paths(question, stop)
    if found is None:
        return draw_particles(question, stop, size, generator)
    if found.log_probability == -math.inf:
        raise question.impossible()
    return found


# --- enumeration ---


@torch.no_grad()
def paths(question: Question, stop: int, most: int | None = None) -> Begun | None:
    """Return every path through columns 0 .. ``stop`` - 1, with its probability: one combination of values each.

    If all values would be too many, values that no training row had are left to one value, and their probability is the
    error of the answer. Return None if a column has no list, or for more than ``most`` paths, by default MOST_PATHS.
    """
    walk, most = question.walk, MOST_PATHS if most is None else most
    if out_of_reach(walk):
        return Begun(walk.start(0), stop)
    lists = _lists(walk, stop, most)
    if lists is None:
        return None
    particles, unresolved = walk.start(), 0.0
    for i, cells in enumerate(lists):
        value = walk.determined(particles.y, i)
        is_free = np.isposinf(value)
        free, fixed = np.flatnonzero(is_free), np.flatnonzero(~is_free & walk.set_of(i).contains(value))
        if len(free) and (cells is None or len(fixed) + len(free) * cells.fields.shape[1] > most):
            return None
        parent, y, log_weight = fixed, value[fixed], np.zeros(len(fixed))
        if len(free) and cells is not None:
            log_p = walk.law(i, particles).take(free).log_p(cells).cpu().numpy()  # (free, V)
            path, child = np.nonzero(log_p > -math.inf)
            first, last = cells.fields[0, child, 5:].T
            unresolved += float(np.exp(particles.log_weight[free[path]] + log_p[path, child])[first < last].sum())
            parent, y = np.concatenate([parent, free[path]]), np.concatenate([y, first])
            log_weight = np.concatenate([log_weight, log_p[path, child]])
        particles = particles.take(parent)
        walk.settle(particles, i, y, log_weight)
        walk.check(particles, i)
        particles = particles.take(np.flatnonzero(np.isfinite(particles.log_weight)))
    return Begun(particles, stop, unresolved=unresolved)


@torch.no_grad()
def paths_to_last(question: Question) -> Begun | None:
    """Return the paths before the last column with a set; their weights include the probability of that set.

    Return None if the paths cannot be enumerated. Paths include the last column if earlier columns determine it, or if
    a constraint is checked there.
    """
    walk, last = question.walk, question.walk.last
    if last < 0 or walk.is_determined(last) or last in walk.checks:
        return paths(question, last + 1)
    found = paths(question, last)
    if found is not None and len(found.particles):
        particles = found.particles
        particles.log_weight = particles.log_weight + walk.law(last, particles).log_mass(walk.cells(last))
    return found


def _lists(walk: Walk, stop: int, most: int) -> list[SetCells | None] | None:
    """Return the values of each of the columns 0 .. ``stop`` - 1; None for more than ``most`` combinations.

    A column that earlier columns determine adds no combinations. If all combinations are too many, values that no
    training row had are left to a representative.
    """
    for finest in (True, False):
        found: list[SetCells | None] = []
        count = 1
        for i in range(stop):
            cells = walk.coders[i].listed(walk.set_of(i), max(most, 1), finest=finest)
            found.append(cells)
            if not walk.is_determined(i):
                count *= most + 1 if cells is None else cells.fields.shape[1]
            if count > most:
                break
        else:
            return found
    return None


# --- particles ---


def draw_particles(
    question: Question, stop: int, size: float, generator: torch.Generator, between: Callable[[], None] = lambda: None
) -> Begun:
    """Return rows that are drawn column by column inside the sets, with columns 0 .. ``stop`` - 1.

    Their effective size is ``size``, or less if MOST_PARTICLES do not reach it. If few of the first particles are
    effective, the proposals are tilted. ``between`` is called before each part of the rows. An error that it raises
    ends the drawing.
    """
    walk = question.walk
    first = best = Begun(walk.run(PILOT, stop, generator), stop, PILOT)
    if 0 < first.effective_size < ENOUGH * PILOT and size * PILOT > first.effective_size * AT_ONCE:
        best = _tilted(walk, first, generator, between)
    particles, reached = best.particles, best.effective_size
    while reached < size and len(particles) < MOST_PARTICLES:
        more = math.ceil(1.2 * (size - reached) / max(reached / len(particles), 1e-6))
        chunk = min(max(more, PILOT), AT_ONCE, MOST_PARTICLES - len(particles))
        between()
        particles = particles.with_more(walk.run(chunk, stop, generator))
        reached = effective_size(particles.log_weight)
    found = Begun(particles, stop, len(particles))
    if reached < min(size, FEWEST):
        raise too_rare(question, first, found)
    return found


def _tilted(walk: Walk, first: Begun, generator: torch.Generator, between: Callable[[], None]) -> Begun:
    """Improve the tilts of the walk's proposals in several rounds, and return the particles of the best round.

    The walk keeps the tilts of the best round. ``first`` has the particles drawn before the first round.
    """
    best, tilts = first, walk.tilts
    current = first
    for _ in range(MOST_TILTS):
        improved = improved_tilts(walk, current.particles)
        if improved is walk.tilts:  # no column would gain
            break
        walk.tilts = improved
        between()
        current = Begun(walk.run(TRIED, first.stop, generator), first.stop, TRIED)
        if not current.effective_size:
            break
        # A larger probability means that earlier rounds missed rows with much of the probability.
        missed = current.log_probability > best.log_probability + math.log1p(3 * best.relative_error)
        share = current.effective_size / TRIED
        if missed or share > best.effective_size / len(best.particles):
            best, tilts = current, walk.tilts
        if best.effective_size >= ENOUGH * len(best.particles):
            break
    walk.tilts = tilts
    return best


def too_rare(question: Question, plain: Begun, found: Begun) -> TableError:
    """Return the error for a question that too few particles meet."""
    about = f"{question.asked}: too rare to answer; "
    size = f"the effective size of {len(found.particles):,} sampled rows is {found.effective_size:.0f}"
    if question.has_density:
        return TableError(f"{about}{size}. Use a range instead of a single number")
    bound = upper_bound(math.exp(plain.log_probability), len(plain.particles))
    guess = math.exp(found.log_probability)
    return TableError(
        f"{about}the probability is about {guess:.1g}, at most {bound:.1g} with {1 - CONFIDENCE:.0%} confidence; "
        f"{size}. Widen the conditions"
    )


def upper_bound(mean: float, n: int) -> float:
    """Return a 95 % upper confidence bound of the expectation of numbers in [0, 1], given the mean of n of them.

    The bound is the p above the mean at which n KL(mean, p) reaches log 20 (Hoeffding 1963).

    >>> round(upper_bound(0.0, 1000), 4)
    0.003
    """
    low, high = mean, 1.0
    enough = -math.log(CONFIDENCE) / n
    for _ in range(60):
        p = (low + high) / 2
        kl_of_ones = mean * math.log(mean / p) if mean > 0 else 0.0
        kl_of_zeros = (1 - mean) * math.log((1 - mean) / (1 - p)) if mean < 1 and p < 1 else 0.0
        low, high = (p, high) if kl_of_ones + kl_of_zeros < enough else (low, p)
    return high


# --- rejection ---


def rejected(y: Floats, meets: Flags) -> Begun:
    """Return the rows of a sample (N, D) that meet a question, with equal weights."""
    return Begun(Particles(y[meets], np.zeros(int(meets.sum()))), y.shape[1], len(y))


def meeting(y: Floats, given: Given, schema: Schema) -> Flags:
    """Return which rows (N, D) of a sample from a flow meet conditions on modelled columns."""
    within = sets_of(read_conditions(given, schema), schema, (), complete=True)  # a flow has no missing values
    meets = np.ones(len(y), np.bool_)
    for i, column in enumerate(schema.model):
        if column.name not in within:
            continue
        if within[column.name].only is not None and not column.counts_mass:
            raise TableError(f"a single value has probability 0 under a flow; give column {column.name!r} a range")
        meets &= within[column.name].contains(y[:, i])
    return meets


# --- the probability of a question ---


def weighed(question: Question, size: float, generator: torch.Generator) -> Begun:
    """Return rows with the weights of a question's conditions and constraints together, exact if possible."""
    found = paths_to_last(question)
    return draw_particles(question, question.walk.last + 1, size, generator) if found is None else found


def probability_of(question: Question, found: Begun, weigh: Callable[[Question], Begun]) -> tuple[float, float]:
    """Return the probability that a row which keeps the constraints meets the conditions, and its standard error.

    ``found`` has the weights of conditions and constraints together. ``weigh`` returns those of the constraints alone.
    Both are estimated separately, so their relative errors are independent.
    """
    log_kept, error = 0.0, found.relative_error
    if not question.walk.sets:
        return 1.0, 0.0
    if question.walk.checks:
        kept = weigh(question.with_sets({}))
        log_kept, error = kept.log_probability, math.hypot(error, kept.relative_error)
        if log_kept == -math.inf:
            raise question.impossible()
    value = math.exp(found.log_probability - log_kept)
    if not question.has_density:
        value = min(value, 1.0)  # a ratio of two estimates can exceed 1
    return value, value * error
