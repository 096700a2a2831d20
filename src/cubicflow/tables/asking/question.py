"""All conditions and constraints of a query: their sets of values, their probability, and weighted beginnings of rows.

There are two methods:

1. Enumeration. If every column up to the last condition has a list of values, and the number of paths through these
   columns is small, every path is followed with its probability. The answer equals the model's up to rounding. A short
   list of whole numbers leaves a small probability for other numbers. One value represents these numbers, and their
   probability is the error of the answer.
2. Particles (see :mod:`cubicflow.tables.asking.particles`). Particles are added until they have the requested effective
   size. If few particles are effective, the proposals are tilted.

Both methods treat constraints alike. The last column of a sum is computed and has weight 1, or 0 if the value is not in
its set. A row that breaks another constraint, or whose sum the last column cannot hold, has weight 0.

Conditions on the first columns need few paths. An equality leaves one value of its column. The last conditioned column
adds no paths, because only the probability of its set is needed. Queries do not change the training of the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from cubicflow.tables.arrow_types import Floats, shown
from cubicflow.tables.asking.condition_sets import set_of
from cubicflow.tables.asking.conditions import Condition, Given, column_of, read_conditions, texts_of
from cubicflow.tables.asking.constant_column import meets
from cubicflow.tables.asking.constraints import Constraint
from cubicflow.tables.asking.particles import Particles, Walk, effective_size
from cubicflow.tables.asking.sums import checks_of, computed_columns
from cubicflow.tables.asking.tilting import ENOUGH, improved_tilts
from cubicflow.tables.cell_encoder import CellEncoder
from cubicflow.tables.cells import WordCells
from cubicflow.tables.columns_model import ColumnsModel
from cubicflow.tables.model.coder import SetCells
from cubicflow.tables.schema import Schema
from cubicflow.tables.schema.sets import Set
from cubicflow.tables.table_error import TableError, some

MOST_PATHS = 1 << 15  # most paths of an enumeration
PILOT = 1 << 12  # particles of the first round, without tilts
TRIED = 1 << 11  # particles after each tilt
AT_ONCE = 1 << 14  # particles of one further round
MOST_PARTICLES = 1 << 16
MOST_TILTS = 8
FEWEST = 100.0  # effective size; queries with fewer effective particles are refused
CONFIDENCE = 0.05  # probability that an upper bound is wrong


@dataclass(frozen=True)
class Weighed:
    """Weighted beginnings of rows that meet conditions.

    ``unresolved`` is the probability of paths that an enumeration represents by another path; None for particles.
    """

    particles: Particles
    unresolved: float | None = None

    @property
    def is_exact(self) -> bool:
        return self.unresolved is not None

    @cached_property
    def effective_size(self) -> float:
        return math.inf if self.is_exact else effective_size(self.particles.log_weight)

    @property
    def relative_size(self) -> float:
        """The effective size divided by the number of particles."""
        return self.effective_size / len(self.particles)

    @property
    def log_probability(self) -> float:
        found = float(np.logaddexp.reduce(self.particles.log_weight)) if len(self.particles) else -math.inf
        return found if self.is_exact else found - math.log(len(self.particles))

    @property
    def relative_error(self) -> float:
        """The standard error of the probability divided by the probability."""
        if self.unresolved is not None:
            return self.unresolved / max(math.exp(self.log_probability), 1e-300)
        n = len(self.particles)
        if not self.effective_size:
            return math.inf
        return math.sqrt(max(n / self.effective_size - 1, 0.0) / (n - 1))

    @property
    def shares(self) -> Floats:
        """Weights that sum to 1."""
        log_weight = self.particles.log_weight
        w = np.exp(log_weight - log_weight.max())
        found: Floats = w / w.sum()
        return found


class Question:
    """Conditions and constraints on the columns of a fitted model.

    Args:
        model, encoder: the model and the cell encoder of a :class:`~cubicflow.tables.fitted.FittedTable`.
        given: texts, or a mapping from columns to values (see :mod:`cubicflow.tables.asking.conditions`). Every context
            column needs an equality.
        constraints: constraints that rows keep. Sums are computed.
        complete: whether every column must be present.
        drops: whether the caller drops rows that break a constraint. Such rows then keep their weight here.
    """

    def __init__(
        self,
        model: ColumnsModel,
        encoder: CellEncoder,
        given: Given,
        constraints: Sequence[Constraint] = (),
        *,
        complete: bool = False,
        drops: bool = False,
    ) -> None:
        self.constraints = constraints
        self.conditions = read_conditions(given, encoder.schema)
        self.context_values = _context(encoder.schema, self.conditions)
        context, self.context_columns = encoder.context_from(self.context_values, 1)
        sets = _with_determinants(encoder, _sets(encoder, self.conditions, complete=complete), self.conditions)
        self.walk = Walk(model, encoder, sets, None if context is None else context[0])
        self.walk.computed = computed_columns(self.walk, constraints)
        self.walk.checks = {} if drops else checks_of(self.walk, constraints, self.context_columns)
        for i in self.walk.sets:
            if self.walk.cells(i).is_impossible:
                raise TableError(
                    f"{texts_of(self._about(i))} is impossible: the probability is 0 or below 1e-300, since column "
                    f"{self.walk.columns[i].name!r} does not reach that far; choose values that the column holds"
                )

    def with_set(self, i: int, only: Set) -> Question:
        """Return the same question with another set for the model's column i."""
        return self._with_sets({**self.walk.sets, i: only})

    def unconditioned(self) -> Question:
        """Return the question with the same constraints and without sets."""
        return self._with_sets({})

    def _with_sets(self, sets: dict[int, Set]) -> Question:
        other, walk = copy(self), self.walk
        other.walk = Walk(walk.model, walk.encoder, sets, walk.context, {}, walk.computed, walk.checks)
        return other

    def _about(self, i: int) -> list[Condition]:
        name = self.walk.columns[i].name
        return [condition for condition in self.conditions if condition.column == name] or self.conditions

    @property
    def texts(self) -> list[str]:
        return [condition.text for condition in self.conditions]

    @property
    def has_density(self) -> bool:
        """Whether the probability is a density, because a condition is a single real number."""
        return any(self.walk.cells(i).is_density for i in self.walk.sets)

    # --- enumeration ---

    @torch.no_grad()
    def enumerated(self, stop: int, most: int | None = None) -> Weighed | None:
        """Return every path through columns 0 .. ``stop`` - 1 with its probability.

        Return None if a column has no list of values, or if there are more than ``most`` paths (by default
        ``MOST_PATHS``).
        """
        most = MOST_PATHS if most is None else most
        lists = self._lists(stop, most)
        if lists is None:
            return None
        walk, particles, unresolved = self.walk, self.walk.start(), 0.0
        for i, cells in enumerate(lists):
            value = walk.determined(particles.y, i)
            is_free = np.isposinf(value)
            free, fixed = np.flatnonzero(is_free), np.flatnonzero(~is_free & walk.set_of(i).contains(value))
            if len(free) and (cells is None or len(fixed) + len(free) * cells.fields.shape[1] > most):
                return None
            parent, y, log_weight = fixed, value[fixed], np.zeros(len(fixed))
            if len(free) and cells is not None:
                begun = particles.take(free)
                log_p = walk.law(i, begun).log_p(cells).cpu().numpy()  # (free, V)
                path, child = np.nonzero(log_p > -math.inf)
                first, last = cells.fields[0, child, 5:].T
                unresolved += float(np.exp(begun.log_weight[path] + log_p[path, child])[first < last].sum())
                parent, y = np.concatenate([parent, free[path]]), np.concatenate([y, first])
                log_weight = np.concatenate([log_weight, log_p[path, child]])
            particles = particles.take(parent)
            walk.settle(particles, i, y, log_weight)
            walk.check(particles, i)
            particles = particles.take(np.flatnonzero(np.isfinite(particles.log_weight)))
        return Weighed(particles, unresolved)

    def _lists(self, stop: int, most: int) -> list[SetCells | None] | None:
        """Return the values of each of the columns 0 .. ``stop`` - 1; None for more than ``most`` combinations.

        A column that earlier columns determine adds no combinations. If all combinations are too many, values that no
        training row had are left to a representative.
        """
        for finest in (True, False):
            found: list[SetCells | None] = []
            count = 1
            for i in range(stop):
                cells = self.walk.coders[i].listed(self.walk.set_of(i), max(most, 1), finest=finest)
                found.append(cells)
                if not self.walk.is_determined(i):
                    count *= most + 1 if cells is None else cells.fields.shape[1]
                if count > most:
                    break
            else:
                return found
        return None

    @torch.no_grad()
    def exact_probability(self) -> Weighed | None:
        """Return the paths before the last column with a set; their weights include the probability of that set.

        Return None if the paths cannot be enumerated. Paths include the last column if earlier columns determine it, or
        if a constraint is checked there.
        """
        last = self.walk.last
        if last < 0 or self.walk.is_determined(last) or last in self.walk.checks:
            return self.enumerated(last + 1)
        found = self.enumerated(last)
        if found is None:
            return None
        particles = found.particles
        particles.log_weight = particles.log_weight + self.walk.law(last, particles).log_mass(self.walk.cells(last))
        return found

    # --- particles ---

    def weighed(self, stop: int, size: float, generator: torch.Generator) -> Weighed:
        """Return all paths through columns 0 .. ``stop`` - 1, or else particles with an effective size of ``size``.

        If ``MOST_PARTICLES`` particles do not reach ``size``, they are returned with a smaller effective size.

        Raises:
            TableError: the conditions are impossible, or too few particles meet them.
        """
        if (found := self.enumerated(stop)) is not None:
            if found.log_probability == -math.inf:
                raise self.impossible()
            return found
        pilot = self.walk.run(PILOT, stop, generator)
        first = Weighed(pilot)
        best = first
        if 0 < first.effective_size < ENOUGH * PILOT and size * PILOT > first.effective_size * AT_ONCE:
            best = self._tilt(first, stop, generator)
        parts = [best.particles]
        drawn, reached = len(best.particles), best.effective_size
        while reached < size and drawn < MOST_PARTICLES:
            more = math.ceil(1.2 * (size - reached) / max(reached / drawn, 1e-6))
            chunk = min(max(more, PILOT), AT_ONCE, MOST_PARTICLES - drawn)
            parts.append(self.walk.run(chunk, stop, generator))
            drawn += chunk
            reached = effective_size(np.concatenate([part.log_weight for part in parts]))
        found = Weighed(_joined(parts))
        if reached < min(size, FEWEST):
            raise self.too_rare(first, found)
        return found

    def _tilt(self, first: Weighed, stop: int, generator: torch.Generator) -> Weighed:
        """Improve the tilts of the walk's proposals in several rounds, and return the particles of the best round.

        The walk keeps the tilts of the best round.

        Args:
            first: the particles drawn before the first round.
        """
        best, tilts = first, self.walk.tilts
        current = first
        for _ in range(MOST_TILTS):
            improved = improved_tilts(self.walk, current.particles)
            if improved is self.walk.tilts:  # no column would gain
                break
            self.walk.tilts = improved
            current = Weighed(self.walk.run(TRIED, stop, generator))
            if not current.effective_size:
                break
            # A larger probability means that earlier rounds missed rows with much of the probability.
            missed = current.log_probability > best.log_probability + math.log1p(3 * best.relative_error)
            if missed or current.relative_size > best.relative_size:
                best, tilts = current, self.walk.tilts
            if best.relative_size >= ENOUGH:
                break
        self.walk.tilts = tilts
        return best

    def probability(self, found: Weighed, size: float, generator: torch.Generator) -> tuple[float, float]:
        """Return the probability that a row which keeps the constraints meets the conditions, and its standard error.

        ``found`` has the weights of the conditions and constraints together. The probability that a row keeps the
        constraints is computed separately, so the relative errors are independent.
        """
        if not self.walk.sets:
            return 1.0, 0.0
        log_kept, error_kept = 0.0, 0.0
        if self.walk.checks:
            kept = self.unconditioned()
            rows = kept.exact_probability() or kept.weighed(kept.walk.last + 1, size, generator)
            if rows.log_probability == -math.inf:
                raise kept.impossible()
            log_kept, error_kept = rows.log_probability, rows.relative_error
        value = math.exp(found.log_probability - log_kept)
        if not self.has_density:
            value = min(value, 1.0)  # a ratio of two estimates can exceed 1
        return value, value * math.hypot(found.relative_error, error_kept)

    # --- errors ---

    @property
    def _asked(self) -> str:
        """The conditions and constraints as text for messages."""
        limits = f"constraints {some([each.text for each in self.constraints])}" if self.walk.checks else ""
        return " with ".join(part for part in (texts_of(self.conditions), limits) if part)

    def impossible(self) -> TableError:
        return TableError(f"{self._asked}: no row meets all of them; their probability is 0")

    def too_rare(self, plain: Weighed, found: Weighed) -> TableError:
        """Return the error for conditions that too few particles meet."""
        about = f"{self._asked}: too rare to answer; "
        size = f"the effective size of {len(found.particles):,} sampled rows is {found.effective_size:.0f}"
        if self.has_density:
            return TableError(f"{about}{size}. Use a range instead of a single number")
        mean = math.exp(plain.log_probability)
        bound = upper_bound(mean, len(plain.particles))
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


def _joined(parts: Sequence[Particles]) -> Particles:
    y, log_weight = (np.concatenate([getattr(part, name) for part in parts]) for name in ("y", "log_weight"))
    tokens, kinds = (torch.cat([getattr(part, name) for part in parts]) for name in ("tokens", "kinds"))
    return Particles(y, log_weight, tokens, kinds)


def _context(schema: Schema, conditions: Sequence[Condition]) -> dict[str, object]:
    """Return the values of the context columns. Each value must come from one equality."""
    names = {column.name for column in schema.context}
    found: dict[str, object] = {}
    for condition in conditions:
        if condition.column not in names:
            continue
        if condition.relation != "=":
            raise TableError(
                f"condition {condition.text!r}: column {condition.column!r} is a context column, which has no "
                "distribution in the model; give it one value"
            )
        if condition.column in found:
            raise TableError(f"context column {condition.column!r} is given twice; give it once")
        found[condition.column] = condition.values[0]
    return found


def _sets(encoder: CellEncoder, conditions: Sequence[Condition], *, complete: bool) -> dict[int, Set]:
    """Return the set of allowed values of each conditioned column, by the column's index in the model's order.

    If ``complete``, every column that can have missing values must be present.
    """
    sets: dict[str, Set] = {}
    if complete:
        with_gaps = [name for name in encoder.order if encoder.cells[name].gaps]
        conditions = [*conditions, *(Condition(name, "present", (), f"{name} is not missing") for name in with_gaps)]
    for condition in conditions:
        column = column_of(encoder.schema, condition)
        if column.role == "constant":
            check_constant(encoder.schema, condition)
        if column.role != "model":
            continue
        new = set_of(condition, column, gaps=encoder.cells[column.name].gaps)
        if column.name in sets:
            new = sets[column.name] & new
        if new.is_empty:
            about = [each for each in conditions if each.column == column.name]
            raise TableError(
                f"{texts_of(about)} contradict one another: no value of column {column.name!r} meets all of them; "
                "leave one out"
            )
        sets[column.name] = new
    return {encoder.order.index(name): each for name, each in sets.items()}


def check_constant(schema: Schema, condition: Condition) -> None:
    """Raise TableError if the value of a constant column does not meet a condition."""
    column = schema[condition.column]
    if not meets(column, condition):
        value = shown(column.decode(np.zeros(1)))[0]
        raise TableError(
            f"condition {condition.text!r}: column {column.name!r} is always {value}; leave the condition out"
        )


def _with_determinants(encoder: CellEncoder, sets: dict[int, Set], conditions: Sequence[Condition]) -> dict[int, Set]:
    """Return the sets, with smaller sets for columns that determine a conditioned column.

    For example, a condition on the county leaves only the towns of that county.
    """
    order = encoder.order
    for rule in sorted(encoder.rules, key=lambda rule: -order.index(rule.dependent)):
        within = sets.get(order.index(rule.dependent))
        cells = encoder.cells[rule.determinant]
        if within is None or not isinstance(cells, WordCells):
            continue
        i, keys = order.index(rule.determinant), np.asarray(rule.keys)
        kept = np.ones(len(cells.kinds) + 1, np.bool_)  # words, then the missing value; a rule may lack some of them
        kept[np.where(np.isnan(keys), -1, keys).astype(np.int64)] = within.contains(np.asarray(rule.values))
        allowed = Set.codes(kept[:-1], gap=cells.gaps and bool(kept[-1]))
        sets[i] = sets[i] & allowed if i in sets else allowed
        if sets[i].is_empty:
            raise TableError(
                f"{texts_of(conditions)} contradict one another: {rule.determinant!r} determines {rule.dependent!r}, "
                "and no row of the fitted table has both; leave one out"
            )
    return sets
