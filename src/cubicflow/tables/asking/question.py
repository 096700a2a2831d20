"""Conditions taken together: sets of all columns, their probability, and weighted beginnings of rows that meet them.

Two ways to answer, chosen by what the columns are:

1. Enumeration. Where every column up to the last one with a condition has a list of values, and all paths together are
   few, every path is followed with its probability. The answer is exact: it is the model's, to rounding. Whole numbers
   from a short list leave a little probability for others; one value stands in for those, and their probability is the
   error.
2. Particles (see :mod:`cubicflow.tables.asking.particles`). Their number grows until the effective size is what was
   asked for. Where few particles are effective, draws are tilted.

Conditions on the first columns alone are the first way, whatever comes later: equalities are one path, and a last set
is a mass. Answering costs the model nothing: it is trained as it would be without.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.asking.allowed import Allowed, AllowedLevels, allowed_by, intersection
from cubicflow.tables.asking.conditions import Condition, Given, asked_column, read_conditions, texts_of
from cubicflow.tables.asking.constant_column import meets
from cubicflow.tables.asking.particles import Particles, Walk, effective_size
from cubicflow.tables.asking.tilting import ENOUGH, tilted
from cubicflow.tables.cell_encoder import CellEncoder
from cubicflow.tables.cells import WordCells
from cubicflow.tables.columns_model import ColumnsModel
from cubicflow.tables.schema import Schema
from cubicflow.tables.table_error import TableError

MOST_PATHS = 1 << 15
PILOT = 1 << 12
TRIED = 1 << 11  # particles after every tilt
AT_ONCE = 1 << 14
MOST_PARTICLES = 1 << 16
MOST_TILTS = 8
FEWEST = 100.0  # an effective size below this answers nothing
CONFIDENCE = 0.05  # the chance that a bound does not hold


@dataclass(frozen=True)
class Weighed:
    """Beginnings of rows that meet conditions, with weights. ``unresolved`` is the probability of what was not followed
    by enumeration; None for particles."""

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
        """The effective size for each particle."""
        return self.effective_size / len(self.particles)

    @property
    def log_probability(self) -> float:
        found = float(np.logaddexp.reduce(self.particles.log_weight)) if len(self.particles) else -math.inf
        return found if self.is_exact else found - math.log(len(self.particles))

    @property
    def relative_error(self) -> float:
        """The standard error of the probability, as a part of it."""
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
    """Conditions on the columns of a fitted model.

    Args:
        model, encoder: of a :class:`~cubicflow.tables.fitted.FittedTable`.
        given: texts, or a mapping from columns to values (see :mod:`cubicflow.tables.asking.conditions`). Every context
            column needs an equality.
        complete: whether no column may lack its value.
    """

    def __init__(self, model: ColumnsModel, encoder: CellEncoder, given: Given, *, complete: bool = False) -> None:
        self.conditions = read_conditions(given, encoder.schema)
        self.context_values = _context(encoder.schema, self.conditions)
        context, self.context_columns = encoder.context_from(self.context_values, 1)
        sets = _with_determinants(encoder, _sets(encoder, self.conditions, complete=complete), self.conditions)
        self.walk = Walk(model, encoder, sets, None if context is None else context[0])
        for i in self.walk.allowed:
            if self.walk.law(i).is_impossible:
                raise TableError(
                    f"{texts_of(self._about(i))} is impossible: the probability is 0 or below 1e-15, since column "
                    f"{self.walk.columns[i].name!r} does not reach that far; ask for values that it holds"
                )

    def with_set(self, i: int, allowed: Allowed) -> Question:
        """The same question with another set for the model's column i."""
        other = copy(self)
        other.walk = Walk(self.walk.model, self.walk.encoder, {**self.walk.allowed, i: allowed}, self.walk.context)
        return other

    def _about(self, i: int) -> list[Condition]:
        name = self.walk.columns[i].name
        return [condition for condition in self.conditions if condition.column == name] or self.conditions

    @property
    def texts(self) -> list[str]:
        return [condition.text for condition in self.conditions]

    @property
    def has_density(self) -> bool:
        """Whether the probability is a density: a condition is a single real number."""
        return any(self.walk.law(i).is_density for i in self.walk.allowed)

    # --- enumeration ---

    @torch.no_grad()
    def enumerated(self, stop: int, most: int | None = None) -> Weighed | None:
        """Every path through columns 0 .. ``stop`` - 1 with its probability; None where there are more than ``most``
        (``MOST_PATHS``, unless given)."""
        most = MOST_PATHS if most is None else most
        walk, particles, unresolved = self.walk, self.walk.start(), 0.0
        for i in range(stop):
            listed = walk.law(i).listed
            if listed is None or len(particles) * len(listed.y) > most:
                return None
            log_outcomes, params = walk.model.column_law(i, particles.tokens, particles.kinds)
            chances = walk.law(i).chances(log_outcomes, params).cpu().numpy()  # (N, V)
            parent, child = np.nonzero(chances > 0)
            y, log_weight = listed.y[child], np.log(chances[parent, child])
            stands_in = listed.stands_in[child]
            if i in walk.rules:
                parent, y, log_weight, stands_in = self._determined(particles, i, parent, y, log_weight, stands_in)
            unresolved += float(np.exp(particles.log_weight[parent] + log_weight)[stands_in].sum())
            particles = particles.take(parent)
            walk.settle(particles, i, y, log_weight)
        return Weighed(particles, unresolved)

    def _determined(
        self,
        particles: Particles,
        i: int,
        parent: NDArray[np.int64],
        y: Floats,
        log_weight: Floats,
        stands_in: NDArray[np.bool_],
    ) -> tuple[NDArray[np.int64], Floats, Floats, NDArray[np.bool_]]:
        """The same paths, but a single one through a column whose value an earlier one determines."""
        determinant, rule = self.walk.rules[i]
        value = rule.apply(particles.y[:, determinant], np.full(len(particles), np.inf))
        known = ~np.isposinf(value)
        inside = self.walk.allowed[i].contains(value) if i in self.walk.allowed else np.ones(len(value), np.bool_)
        kept, free = np.flatnonzero(known & inside), ~known[parent]
        return (
            np.concatenate([kept, parent[free]]),
            np.concatenate([value[kept], y[free]]),
            np.concatenate([np.zeros(len(kept)), log_weight[free]]),
            np.concatenate([np.zeros(len(kept), np.bool_), stands_in[free]]),
        )

    @torch.no_grad()
    def exact_probability(self) -> Weighed | None:
        """The paths up to the last column with a set, with its mass in their weights; None where they are too many."""
        last = self.walk.last
        if last < 0 or last in self.walk.rules:
            return self.enumerated(last + 1)
        found = self.enumerated(last)
        if found is None:
            return None
        particles = found.particles
        log_outcomes, params = self.walk.model.column_law(last, particles.tokens, particles.kinds)
        mass = self.walk.law(last).chances(log_outcomes, params).sum(1).clamp(min=1e-300).log().cpu().numpy()
        particles.log_weight = particles.log_weight + mass
        return found

    # --- particles ---

    def weighed(self, stop: int, size: float, generator: torch.Generator) -> Weighed:
        """Enumerated paths through columns 0 .. ``stop`` - 1, or particles with an effective size of ``size``. Refuses
        conditions that too few particles meet."""
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
        """Tilt the walk while that helps; particles drawn under the best tilts."""
        best, tilts = first, self.walk.tilts
        current = first
        for _ in range(MOST_TILTS):
            mended = tilted(self.walk, current.particles)
            if mended is self.walk.tilts:  # nothing but chance is left to mend
                break
            self.walk.tilts = mended
            current = Weighed(self.walk.run(TRIED, stop, generator))
            if not current.effective_size:
                break
            # rows that were hardly ever drawn before may hold more of the probability than all that were
            missed = current.log_probability > best.log_probability + math.log1p(3 * best.relative_error)
            if missed or current.relative_size > best.relative_size:
                best, tilts = current, self.walk.tilts
            if best.relative_size >= ENOUGH:
                break
        self.walk.tilts = tilts
        return best

    # --- refusals ---

    def impossible(self) -> TableError:
        return TableError(f"{texts_of(self.conditions)}: no row meets the conditions; their probability is 0")

    def too_rare(self, plain: Weighed, found: Weighed) -> TableError:
        """What is said of conditions that too few particles meet."""
        about = f"{texts_of(self.conditions)}: too rare to answer; "
        size = f"the effective size of {len(found.particles):,} rows drawn is {found.effective_size:.0f}"
        if self.has_density:
            return TableError(f"{about}{size}. Ask for a range in place of a single number")
        mean = math.exp(plain.log_probability)
        bound = upper_bound(mean, len(plain.particles))
        guess = math.exp(found.log_probability)
        return TableError(
            f"{about}the probability is about {guess:.1g}, at most {bound:.1g} with {1 - CONFIDENCE:.0%} confidence; "
            f"{size}. Widen the conditions"
        )


def upper_bound(mean: float, n: int) -> float:
    """The largest expectation of independent numbers in [0, 1] with this mean of n of them, with 95 % confidence: the p
    above the mean at which n KL(mean, p) reaches log 20 (Hoeffding 1963).

    >>> round(upper_bound(0.0, 1000), 4)
    0.003
    """
    low, high = mean, 1.0
    enough = -math.log(CONFIDENCE) / n
    for _ in range(60):
        p = (low + high) / 2
        of_one = mean * math.log(mean / p) if mean > 0 else 0.0
        of_zero = (1 - mean) * math.log((1 - mean) / (1 - p)) if mean < 1 and p < 1 else 0.0
        low, high = (p, high) if of_one + of_zero < enough else (low, p)
    return high


def _joined(parts: Sequence[Particles]) -> Particles:
    y, log_weight = (np.concatenate([getattr(part, name) for part in parts]) for name in ("y", "log_weight"))
    tokens, kinds = (torch.cat([getattr(part, name) for part in parts]) for name in ("tokens", "kinds"))
    return Particles(y, log_weight, tokens, kinds)


def _context(schema: Schema, conditions: Sequence[Condition]) -> dict[str, object]:
    """The values of context columns, each from an equality."""
    names = {column.name for column in schema.context}
    found: dict[str, object] = {}
    for condition in conditions:
        if condition.column not in names:
            continue
        if condition.relation != "=":
            raise TableError(
                f"condition {condition.text!r}: column {condition.column!r} is context, which the model is given and "
                "does not model; give it one value"
            )
        if condition.column in found:
            raise TableError(f"context column {condition.column!r} is given twice")
        found[condition.column] = condition.values[0]
    return found


def _sets(encoder: CellEncoder, conditions: Sequence[Condition], *, complete: bool) -> dict[int, Allowed]:
    """The sets of the modelled columns, by their places in the model's order."""
    sets: dict[str, Allowed] = {}
    if complete:
        with_gaps = [name for name in encoder.order if encoder.cells[name].gaps]
        conditions = [*conditions, *(Condition(name, "present", (), f"{name} is not missing") for name in with_gaps)]
    for condition in conditions:
        column = asked_column(encoder.schema, condition)
        if column.role == "constant":
            check_constant(encoder.schema, condition)
        if column.role != "model":
            continue
        new = allowed_by(condition, column, encoder.cells[column.name])
        before = sets.get(column.name)
        if before is not None:
            new = intersection(before, new)
        if new.is_empty:
            about = [each for each in conditions if each.column == column.name]
            raise TableError(f"{texts_of(about)} contradict one another: no value of column {column.name!r} meets both")
        sets[column.name] = new
    return {encoder.order.index(name): allowed for name, allowed in sets.items()}


def check_constant(schema: Schema, condition: Condition) -> None:
    """Refuse a condition that the one value of a constant column does not meet."""
    column = schema[condition.column]
    if not meets(column, condition):
        raise TableError(f"condition {condition.text!r}: column {column.name!r} is {column.describe().split(':')[0]}")


def _with_determinants(
    encoder: CellEncoder, sets: dict[int, Allowed], conditions: Sequence[Condition]
) -> dict[int, Allowed]:
    """The sets, and what they leave of columns that determine others: towns of the counties that are asked for."""
    order = encoder.order
    for rule in sorted(encoder.rules, key=lambda rule: -order.index(rule.dependent)):
        asked = sets.get(order.index(rule.dependent))
        cells = encoder.cells[rule.determinant]
        if asked is None or not isinstance(cells, WordCells):
            continue
        place = order.index(rule.determinant)
        kept = asked.contains(np.asarray(rule.values))
        gone = np.asarray(rule.keys)[~kept].tolist()
        before = sets.get(place, AllowedLevels((True,) * len(cells.kinds), cells.gaps))
        if not isinstance(before, AllowedLevels):
            continue
        sets[place] = before.without(gone)
        if sets[place].is_empty:
            raise TableError(
                f"{texts_of(conditions)} contradict one another: {rule.determinant!r} determines {rule.dependent!r}, "
                "and no row of the fitted table has both"
            )
    return sets
