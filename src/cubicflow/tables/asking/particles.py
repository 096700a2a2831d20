"""Rows that are drawn column by column inside sets, with weights.

A particle is the beginning of a row: the plain numbers of the columns so far, and the log of a weight. At a column that
is free, a value is drawn from its conditional and the weight stays. At a column with a set, a value is drawn from the
conditional inside the set and the weight is multiplied by the set's probability: so the mean weight of independent
particles is the probability of all sets together, without bias, and weighted particles are distributed as rows are that
lie in the sets (sequential importance sampling). Particles are never resampled on the way. They stay independent, and
the spread of their weights is an honest error.

A column that another one determines has that value, and the weight 0 where it is not in the set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.asking.allowed import Allowed, everything
from cubicflow.tables.asking.column_law import ColumnLaw, column_law
from cubicflow.tables.cell_encoder import CellEncoder
from cubicflow.tables.cells import UNSEEN
from cubicflow.tables.columns_model import ColumnsModel

Computed = Callable[[Floats], Floats]


class Tilt(NamedTuple):
    """Factors of the strata of a column, and the knots of [0, 1] that cut its numbers into strata."""

    factors: Floats
    knots: Floats


@dataclass
class Particles:
    """The beginnings of N rows. ``y`` (N, D) has the columns in the model's order, NaN where none is known yet."""

    y: Floats
    log_weight: Floats
    tokens: Tensor  # (N, C + i, E)
    kinds: Tensor  # (N, D)

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: NDArray[np.int64]) -> Particles:
        """Some of the particles, or some of them more than once."""
        places = torch.from_numpy(rows).to(self.tokens.device)
        return Particles(self.y[rows], self.log_weight[rows], self.tokens[places], self.kinds[places])


@dataclass
class Walk:
    """The way through the columns of a model, inside sets.

    Attributes:
        allowed: the sets, by the place of their columns in the model's order.
        tilts: of some columns.
        context: plain numbers (C,) of the context columns.
        computed: columns whose values follow from those of earlier ones, by functions of plain numbers (N, D) in the
            model's order; inf where they do not.
    """

    model: ColumnsModel
    encoder: CellEncoder
    allowed: Mapping[int, Allowed]
    context: Floats | None = None
    tilts: dict[int, Tilt] = field(default_factory=dict)
    computed: Mapping[int, Computed] = field(default_factory=dict)
    _laws: dict[Any, ColumnLaw] = field(default_factory=dict)

    def __post_init__(self) -> None:
        order = self.encoder.order
        names = [column.name for column in self.encoder.columns]
        self.columns = [self.encoder.columns[names.index(name)] for name in order]
        self.cells = [self.encoder.cells[name] for name in order]
        self.rules = {order.index(rule.dependent): (order.index(rule.determinant), rule) for rule in self.encoder.rules}
        self.places = [names.index(name) for name in order]  # in the table's order

    @property
    def last(self) -> int:
        """The last column with a set; -1 without any."""
        return max(self.allowed, default=-1)

    def law(self, i: int) -> ColumnLaw:
        """Of column i inside its set."""
        knots = self.tilts[i].knots if i in self.tilts else None
        key = i, None if knots is None else knots.tobytes()
        if key not in self._laws:
            allowed = self.allowed.get(i) or everything(self.cells[i])
            self._laws[key] = column_law(self.columns[i], self.cells[i], allowed, knots)
        return self._laws[key]

    def only(self, i: int) -> float | None:
        """The one value that a column can have; None where it can have others."""
        return self.allowed[i].only if i in self.allowed else None

    def start(self, n: int = 1) -> Particles:
        """Particles before the first column."""
        device = self.model.positions.device
        tokens = self.model.positions.new_empty(n, 0, self.model.positions.shape[1])
        if self.context is not None:
            cells = self.encoder.context_inputs(np.repeat(self.context[None], n, axis=0))
            tokens = self.model.tokens(torch.from_numpy(cells).to(device).unflatten(1, (-1, 4)))
        kinds = torch.full((n, len(self.columns)), UNSEEN, device=device)
        return Particles(np.full((n, len(self.columns)), np.nan), np.zeros(n), tokens, kinds)

    def begun(self, y: Floats, upto: int) -> Particles:
        """Particles that have the first ``upto`` columns of these rows (N, D), all of one weight."""
        found = self.start(len(y))
        for i in range(upto):
            self.settle(found, i, y[:, i])
        return found

    def step(self, particles: Particles, i: int, generator: torch.Generator) -> None:
        """Draw column i of every particle, in place."""
        law = self.law(i)
        with torch.no_grad():
            log_outcomes, params = self.model.column_law(i, particles.tokens, particles.kinds)
            factors = self.tilts[i].factors[law.of_pieces] if i in self.tilts else None
            y, log_weight = law.draw(log_outcomes, params, generator, factors)
        self.settle(particles, i, *self.ruled(particles, i, y, log_weight))

    def ruled(self, particles: Particles, i: int, y: Floats, log_weight: Floats) -> tuple[Floats, Floats]:
        """Drawn values and weights of column i, or what an earlier column determines."""
        value = np.full(len(y), np.inf)
        if i in self.rules:
            determinant, rule = self.rules[i]
            value = rule.apply(particles.y[:, determinant], value)
        elif i in self.computed:
            value = self.computed[i](particles.y)
        free = np.isposinf(value)
        kept = np.ones(len(y), np.bool_)
        if i in self.allowed:
            kept = self.allowed[i].contains(np.where(free, np.nan, value))
        return np.where(free, y, value), np.where(free, log_weight, np.where(kept, 0.0, -math.inf))

    def settle(self, particles: Particles, i: int, y: Floats, log_weight: Floats | float = 0.0) -> None:
        """Give column i of every particle its value, in place."""
        cells = torch.from_numpy(self.cells[i].encode(y)).to(particles.tokens.device)
        particles.y[:, i] = y
        particles.log_weight = particles.log_weight + log_weight
        particles.kinds[:, i] = cells[:, 0].long()
        first = len(self.encoder.schema.context) + i
        with torch.no_grad():
            token = self.model.tokens(cells[:, None], first)
        particles.tokens = torch.cat([particles.tokens, token], dim=1)

    def run(self, n: int, stop: int, generator: torch.Generator) -> Particles:
        """``n`` independent particles after columns 0 .. ``stop`` - 1. As long as every column has one value, a single
        particle stands for all."""
        particles = self.start()
        for i in range(stop):
            if len(particles) < n and self.only(i) is None:
                particles = particles.take(np.zeros(n, np.int64))
            self.step(particles, i, generator)
        return particles if len(particles) == n else particles.take(np.zeros(n, np.int64))

    def to_table(self, y: Floats) -> Floats:
        """Plain numbers (N, D) in the table's order."""
        found = np.empty_like(y)
        found[:, self.places] = y
        return found


def effective_size(log_weight: Floats) -> float:
    """How many equal weights would say as much: (sum w)^2 / sum w^2; 0 where all are 0.

    >>> effective_size(np.log([1.0, 1.0, 2.0]))
    2.6666666666666665
    """
    top = log_weight.max(initial=-math.inf)
    if top == -math.inf:
        return 0.0
    w = np.exp(log_weight - top)
    return float(w.sum() ** 2 / (w**2).sum())


def resample(log_weight: Floats, n: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """``n`` particles in proportion to their weights, each as often as its weight demands up to rounding (systematic
    resampling): none twice unless it has more than 1/n of the weight.

    >>> resample(np.log([0.5, 0.25, 0.25]), 4, np.random.default_rng(0)).tolist()
    [0, 0, 1, 2]
    """
    w = np.exp(log_weight - log_weight.max())
    ends = np.cumsum(w)
    places = (np.arange(n) + generator.random()) / n * ends[-1]
    found: NDArray[np.int64] = np.searchsorted(ends, places, side="right")
    return np.minimum(found, len(w) - 1)
