"""Particles: weighted rows that are drawn column by column inside sets (sequential importance sampling).

A particle is the beginning of a row: the plain numbers of the columns so far, and a log weight. In a column without a
set, a value is drawn from the conditional distribution, and the weight stays. In a column with a set, a value is drawn
from the conditional distribution inside the set, and the weight is multiplied by the probability of the set. So the
mean weight of independent particles is an unbiased estimate of the probability of all sets together, and weighted
particles follow the distribution of rows inside the sets. Particles are never resampled between columns: they stay
independent, so the spread of their weights gives a valid standard error.

A column that earlier columns determine, by a rule or as the last column of a sum, gets the determined value. The value
has weight 1; the weight becomes 0 if the value is not in the set, or if the row breaks a constraint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cubicflow import weights
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.laws.cells import CELL
from cubicflow.tables.laws.coder import KNOTS, SetCells
from cubicflow.tables.laws.law import Law
from cubicflow.tables.model.columns import ModelOfColumns
from cubicflow.tables.model.network import Beginnings
from cubicflow.tables.model.table_model import check_drawn
from cubicflow.tables.query.constraints import Constraint
from cubicflow.tables.query.sums import checks_of, computed_columns
from cubicflow.tables.schema.sets import Set


class Tilt(NamedTuple):
    """Factors of the strata of a column, and the knots of [0, 1] that split its numbers into strata."""

    factors: Floats
    knots: Floats


@dataclass
class Particles:
    """The beginnings of N rows.

    Attributes:
        y: plain numbers (N, D) in the model's order; NaN before a column is drawn.
        log_weight: the log weights (N,).
        context: plain numbers (N, C) of the context columns; None without context.
        begun: the first columns as the model sees them, computed when a law is asked for.
    """

    y: Floats
    log_weight: Floats
    context: Floats | None = None
    begun: Beginnings | None = None

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: NDArray[np.int64]) -> Particles:
        """Return the particles at the indices ``rows``, which may repeat."""
        context = None if self.context is None else self.context[rows]
        begun = self.begun and self.begun.take(torch.from_numpy(rows).to(self.begun.kinds.device))
        return Particles(self.y[rows], self.log_weight[rows], context, begun)

    def with_more(self, other: Particles) -> Particles:
        """Return these particles and others."""
        y, log_weight = np.concatenate([self.y, other.y]), np.concatenate([self.log_weight, other.log_weight])
        if self.context is None or other.context is None:
            return Particles(y, log_weight)
        return Particles(y, log_weight, np.concatenate([self.context, other.context]))


@dataclass
class Walk:
    """A sampler of particles that goes through the columns of a model, inside sets.

    Attributes:
        sets: the sets, by the index of their columns in the model's order.
        tilts: the tilts of some columns, by the same index.
        context: plain numbers of the context columns, (C,) for all rows or (N, C) for N rows.
        present: whether every column is drawn given that it is not missing.
        constraints: constraints that rows keep. Sums are computed. The weight of a row that breaks a constraint becomes
            0 at the last column of the constraint.
        checks: functions that find the rows which keep the constraints, by the index of a constraint's last column.
    """

    model: ModelOfColumns
    sets: Mapping[int, Set]
    context: Floats | None = None
    tilts: dict[int, Tilt] = field(default_factory=dict)
    present: bool = False
    constraints: Sequence[Constraint] = ()

    def __post_init__(self) -> None:
        self.encoder = self.model.encoder
        order, self.coders, self.places = self.encoder.order, self.encoder.coders, self.encoder.places
        self.columns = [coder.column for coder in self.coders]
        self.rules = {order.index(rule.dependent): (order.index(rule.determinant), rule) for rule in self.encoder.rules}
        self.computed = computed_columns(self)
        self.checks = checks_of(self)

    @property
    def last(self) -> int:
        """The index of the last column with a set or a check; -1 if there is none. Later columns keep all weights."""
        return max((*self.sets, *self.checks), default=-1)

    def set_of(self, i: int) -> Set:
        """Return the set of column i; everything if it has none."""
        return self.sets[i] if i in self.sets else Set.everything(gap=self.coders[i].cells.gaps)

    def knots(self, i: int) -> Floats:
        """Return the knots of [0, 1] that split the numbers of column i into strata."""
        return self.tilts[i].knots if i in self.tilts else KNOTS

    def cells(self, i: int) -> SetCells:
        """Return the cells of the set of column i, split at its knots if it is tilted."""
        return self.coders[i].of(self.set_of(i), self.tilts[i].knots if i in self.tilts else None)

    def only(self, i: int) -> float | None:
        """Return the only value in the set of column i; None if the set has several values."""
        return self.sets[i].only if i in self.sets else None

    @torch.no_grad()
    def law(self, i: int, particles: Particles) -> Law:
        """Return the distribution of column i given the earlier columns of particles."""
        begun = particles.begun
        if begun is None:
            begun = particles.begun = self._begin(particles, i)
        while begun.count < i:
            begun.add(self._cells_of(particles, begun.count))
        log_outcomes, params = begun.next_column()
        check_drawn(log_outcomes.sum(), *(() if params is None else (params.sum(),)))
        fixed = self.determined(particles.y, i) if self.is_determined(i) else None
        found = Law(self.coders[i], log_outcomes, params, fixed)
        return found.without_gap() if self.present else found

    def _begin(self, particles: Particles, stop: int) -> Beginnings:
        """Return the first ``stop`` columns of particles as the model sees them."""
        device = self.model.network.positions.device
        context, cells = None, torch.empty(len(particles), 0, CELL, dtype=torch.float64, device=device)
        if particles.context is not None:
            context = torch.from_numpy(self.encoder.context_inputs(particles.context)).to(device)
        if stop:
            cells = torch.stack([self._cells_of(particles, i) for i in range(stop)], dim=1)
        return self.model.network.begin(cells, context)

    def _cells_of(self, particles: Particles, i: int) -> Tensor:
        cells = self.coders[i].cells.encode(particles.y[:, i])
        return torch.from_numpy(cells).to(self.model.network.positions.device)

    def start(self, n: int = 1) -> Particles:
        """Return n particles before the first column."""
        context = None if self.context is None else np.broadcast_to(self.context, (n, self.context.shape[-1]))
        return Particles(np.full((n, len(self.columns)), np.nan), np.zeros(n), context)

    def begun(self, y: Floats, upto: int) -> Particles:
        """Return particles with the first ``upto`` columns of rows (N, D) and equal weights."""
        found = self.start(len(y))
        found.y[:, :upto] = y[:, :upto]
        return found

    @torch.no_grad()
    def step(self, particles: Particles, i: int, generator: torch.Generator) -> None:
        """Draw column i of every particle. The particles are changed in place."""
        self.draw(particles, i, self.law(i, particles), generator)

    def draw(self, particles: Particles, i: int, law: Law, generator: torch.Generator) -> None:
        """Draw column i of every particle from its law. The particles are changed in place.

        A column that determines others, and has no set, gets values of the training rows only.
        """
        cells, log_tilt = self.cells(i), None
        if i in self.tilts:
            log_tilt = np.log(self.tilts[i].factors)[self.coders[i].strata_of(cells, self.knots(i))][None]
        y, log_weight = law.draw(cells, generator, log_tilt)
        if i not in self.sets:
            free = np.isposinf(law.fixed) if law.fixed is not None else True
            y = np.where(free, self.encoder.with_known_determinants(i, y), y)
        self.settle(particles, i, y, log_weight)
        self.check(particles, i)

    def is_determined(self, i: int) -> bool:
        """Return whether earlier columns can determine column i, by a rule or as the last column of a sum."""
        return i in self.rules or i in self.computed

    def determined(self, y: Floats, i: int) -> Floats:
        """Return the value of column i that earlier columns determine in every row (N, D); inf where it is drawn.

        The value is -inf where every value breaks a sum.
        """
        found = np.full(len(y), np.inf)
        if i in self.rules:
            determinant, rule = self.rules[i]
            found = rule.apply(y[:, determinant], found)
        elif i in self.computed:
            found = self.computed[i](y)
        return found

    def keeps(self, y: Floats, stop: int | None = None) -> NDArray[np.bool_]:
        """Return which rows (N, D) keep the constraints on the columns 0 .. ``stop`` - 1, by default on all columns."""
        kept, context = np.ones(len(y), np.bool_), self.start(len(y)).context
        for i, check in self.checks.items():
            if stop is None or i < stop:
                kept &= check(y, context)
        return kept

    def check(self, particles: Particles, i: int) -> None:
        """Set the weight of particles that break a constraint at column i to 0. The particles are changed in place."""
        if i in self.checks:
            particles.log_weight = np.where(
                self.checks[i](particles.y, particles.context), particles.log_weight, -math.inf
            )

    def settle(self, particles: Particles, i: int, y: Floats, log_weight: Floats | float = 0.0) -> None:
        """Set column i of every particle and add the log weights. The particles are changed in place."""
        particles.y[:, i] = y
        particles.log_weight = particles.log_weight + log_weight

    def run(self, n: int, stop: int, generator: torch.Generator) -> Particles:
        """Return ``n`` independent particles with columns 0 .. ``stop`` - 1."""
        particles = self.start()  # one particle represents all until a column can take several values
        for i in range(stop):
            if len(particles) < n and self.only(i) is None:
                particles = particles.take(np.zeros(n, np.int64))
            self.step(particles, i, generator)
        return particles if len(particles) == n else particles.take(np.zeros(n, np.int64))

    def completed(self, particles: Particles, first: int, generator: torch.Generator) -> Floats:
        """Draw the columns from ``first`` on, and return the rows (N, D) in the table's order."""
        for i in range(first, len(self.columns)):
            self.step(particles, i, generator)
        return self.to_table(particles.y)

    def to_table(self, y: Floats) -> Floats:
        """Return plain numbers (..., D) in the table's order instead of the model's."""
        found = np.empty_like(y)
        found[..., self.places] = y
        return found


def effective_size(log_weight: Floats) -> float:
    """Return the effective sample size of weights, (sum w)^2 / sum w^2; 0 if all weights are 0.

    >>> effective_size(np.log([1.0, 1.0, 2.0]))
    2.6666666666666665
    """
    top = log_weight.max(initial=-math.inf)
    return 0.0 if top == -math.inf else weights.effective_size(np.exp(log_weight - top))


def resample(log_weight: Floats, n: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return the indices of ``n`` particles, drawn in proportion to their weights by systematic resampling.

    >>> resample(np.log([0.5, 0.25, 0.25]), 4, np.random.default_rng(0)).tolist()
    [0, 0, 1, 2]
    """
    return weights.systematic(np.exp(log_weight - log_weight.max()), n, generator.random())
