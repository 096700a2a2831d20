"""One column of a fitted table given conditions on any others: masses, density, quantiles, each with its error.

A column that comes after all conditions is a mixture: each weighted particle knows the column's whole distribution, and
the answer is the weighted mean of those. It has no other error than that of the particles, and none where they were
enumerated. A column that comes before the last condition, or has one itself, is answered by the values that the
particles have; its density at a value is the ratio of two probabilities, with and without that value as a condition.

Errors are standard errors of ratios of weighted sums. Where values are counted, one that was never drawn may have a
probability of about one over the effective size, which is part of its error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.asking.allowed import AllowedLevels, AllowedNumbers
from cubicflow.tables.asking.column_law import ColumnLaw, column_law
from cubicflow.tables.asking.question import Question
from cubicflow.tables.cell_encoder import plain_numbers, with_gaps
from cubicflow.tables.cells import NumberCells, WordCells
from cubicflow.tables.kinds.levels import Levelled
from cubicflow.tables.table_error import TableError

DENSITY_SIZE = 2_000.0  # the effective size for a density at one value
BISECTIONS = 60


class Estimates(NamedTuple):
    """Numbers, and their standard errors: 0 where they are exact."""

    values: Floats
    errors: Floats


class Masses(NamedTuple):
    """Values of a column, None for a missing one, their probabilities, and the standard errors of those."""

    values: list[object]
    masses: Floats
    errors: Floats


class Conditional:
    """A column given conditions. Made by :meth:`cubicflow.tables.FittedTable.conditional`.

    Attributes:
        column: its name.
        given: the conditions, as text.
        probability, probability_error: of the conditions, with its standard error; a density where a condition is a
            single real number.
        effective_size: of the particles that answer, inf for an exact answer.
        particles: their number.
        is_exact: whether the answer is the model's own, to rounding.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cubicflow.tables import FittedTable, fit_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "t.csv").write_text("word,size\\n" + "a,0.25\\nb,1.5\\nb,2.75\\n" * 20)
    ...     fitted = fit_table(f"{folder}/t.csv", f"{folder}/run", steps=5, progress=False).fitted
    >>> answer = fitted.conditional("word", ["size>1"])
    >>> words, masses, errors = answer.masses()
    >>> words, round(float(masses.sum()), 6)
    (['a', 'b'], 1.0)
    """

    def __init__(self, question: Question, column: str, size: float, generator: torch.Generator) -> None:
        walk = question.walk
        self.column, self.given = column, question.texts
        self._question, self._walk, self._generator = question, walk, generator
        self._i = walk.encoder.order.index(column)
        self._column, self._cells = walk.columns[self._i], walk.cells[self._i]
        self._is_mixture = self._i > walk.last and self._i not in walk.rules
        stop = self._i if self._is_mixture else max(walk.last, self._i) + 1
        found = question.weighed(stop, size, generator)
        self._weighed = found
        self.effective_size, self.particles, self.is_exact = found.effective_size, len(found.particles), found.is_exact
        known = question.exact_probability() or found
        self.probability = math.exp(known.log_probability)
        self.probability_error = self.probability * known.relative_error
        self._shares = found.shares
        if self._is_mixture:
            with torch.no_grad():
                state = found.particles
                self._law = walk.model.column_law(self._i, state.tokens, state.kinds)

    def __repr__(self) -> str:
        how = "exact" if self.is_exact else f"effective size {self.effective_size:,.0f}"
        given = f" given {', '.join(self.given)}" if self.given else ""
        return f"<{self.column!r}{given}: {how}, probability {self.probability:.4g} ± {2 * self.probability_error:.2g}>"

    # --- answers ---

    def masses(self, values: Sequence[object] | None = None) -> Masses:
        """The probabilities of values; by default of all words, or of all values that particles have, and of the gap.

        A real number that is no atom has the mass 0.
        """
        y = self._listed() if values is None else self._plain(values)
        chances = np.stack([self._share_of(law) for law in self._laws_of(y)], axis=1)
        mean, error = self._mean(chances)
        return Masses(self._shown(y), mean, error)

    def density(self, values: Sequence[object]) -> Estimates:
        """The density of real numbers, per unit, at values."""
        if not self._cells_are_points:
            raise TableError(f"column {self.column!r} has masses and no density; ask for masses")
        y = self._plain(values)
        if self._is_mixture:
            laws = [self._inside(v, v) for v in y.tolist()]
            return Estimates(*self._mean(np.stack([self._share_of(law) for law in laws], axis=1)))
        pairs = [self._density_at(float(v)) for v in y]
        return Estimates(np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs]))

    def cdf(self, values: Sequence[object]) -> Estimates:
        """The probability of a number that is there and at most as large as each of the values."""
        self._check_ordered()
        return Estimates(*self._mean(self._shares_below(self._plain(values).tolist())))

    def quantiles(self, levels: Sequence[float]) -> Masses:
        """Values below which these parts of the probability lie, among rows that have a value.

        Returns the values, the levels that were reached, and the standard errors of those levels.
        """
        self._check_ordered()
        wanted = np.asarray(levels, np.float64)
        if wanted.ndim != 1 or not ((wanted > 0) & (wanted < 1)).all():
            raise TableError(f"quantiles are asked for by numbers between 0 and 1, got {list(levels)!r}")
        there = self._below(math.inf)
        found = [self._quantile(level * there) for level in wanted.tolist()]
        reached, error = self._mean(self._shares_below(found))
        return Masses(self._shown(np.array(found)), reached / there, error / there)

    # --- how ---

    def _mean(self, f: Floats) -> tuple[Floats, Floats]:
        """The weighted mean of what each particle says, (N,) or (N, V), and its standard error."""
        shares = self._shares if f.ndim == 1 else self._shares[:, None]
        mean = (shares * f).sum(axis=0)
        if self.is_exact:
            error = np.full_like(mean, (self._weighed.unresolved or 0.0) / max(self.probability, 1e-300))
        else:
            counted = 0.0 if self._is_mixture else 1 / self.effective_size
            error = np.sqrt((shares**2 * (f - mean) ** 2).sum(axis=0) + counted**2)
        return mean, error

    def _share_of(self, law: ColumnLaw | AllowedNumbers | float) -> Floats:
        """What each particle (N,) says of a set: its probability, or whether the particle's value is in it."""
        if isinstance(law, ColumnLaw):
            log_outcomes, params = self._law
            with torch.no_grad():
                return law.chances(log_outcomes, params).sum(1).cpu().numpy()
        y = self._weighed.particles.y[:, self._i]
        if isinstance(law, AllowedNumbers):
            return law.contains(y).astype(np.float64)
        return (np.isnan(y) if math.isnan(law) else y == law).astype(np.float64)

    def _inside(self, first: float, last: float) -> ColumnLaw | AllowedNumbers:
        """What asks for the probability of an interval."""
        allowed = AllowedNumbers(((first, last),), gap=False)
        return column_law(self._column, self._cells, allowed) if self._is_mixture else allowed

    def _shares_below(self, ends: Sequence[float]) -> Floats:
        """(N, V): what each particle says of numbers up to each end."""
        return np.stack([self._share_of(self._inside(-math.inf, end)) for end in ends], axis=1)

    def _laws_of(self, y: Floats) -> list[ColumnLaw | AllowedNumbers | float]:
        """What asks for the probability of each of these plain numbers."""
        values: list[float] = y.tolist()
        return [self._single(v) if self._is_mixture else v for v in values]

    def _single(self, v: float) -> ColumnLaw:
        if isinstance(self._cells, WordCells):
            levels = tuple(i == v for i in range(len(self._cells.kinds)))
            return column_law(self._column, self._cells, AllowedLevels(levels, gap=math.isnan(v)))
        point = () if math.isnan(v) or (self._cells_are_points and v not in self._atoms) else ((v, v),)
        return column_law(self._column, self._cells, AllowedNumbers(point, gap=math.isnan(v)))

    @property
    def _cells_are_points(self) -> bool:
        return isinstance(self._cells, NumberCells) and self._cells.is_point

    @property
    def _atoms(self) -> tuple[float, ...]:
        return self._cells.atoms if isinstance(self._cells, NumberCells) else ()

    def _listed(self) -> Floats:
        """The values whose masses are shown without asking."""
        gap = [math.nan] if self._cells.gaps else []
        if isinstance(self._column, Levelled):
            return np.array([*map(float, range(len(self._column.levels))), *gap])
        if self._is_mixture:
            if self._cells_are_points or getattr(self._cells, "listed", False):
                return np.array([*sorted(self._atoms), *gap])
            raise TableError(f"column {self.column!r} has too many values to list; name those to ask for")
        y = self._weighed.particles.y[:, self._i]
        return np.array([*np.unique(y[~np.isnan(y)]).tolist(), *gap])

    def _plain(self, values: Sequence[object]) -> Floats:
        """Values as plain numbers; refuses those that do not belong."""
        array = pa.array([None if value is None else str(value) for value in values], type=pa.string())
        y = plain_numbers(self._column, array)
        if np.isinf(y).any():
            wrong = values[int(np.flatnonzero(np.isinf(y))[0])]
            raise TableError(f"column {self.column!r} never holds {wrong!r}")
        return y

    def _shown(self, y: Floats) -> list[object]:
        found: list[object] = with_gaps(self._column, y).to_pylist()
        return found

    def _check_ordered(self) -> None:
        if isinstance(self._column, Levelled):
            raise TableError(f"column {self.column!r} is a list of values; ask for their masses")

    def _quantile(self, level: float) -> float:
        """The plain number at which the distribution function reaches a level."""
        if not self._is_mixture:
            y, shares = self._weighed.particles.y[:, self._i], self._shares
            there = ~np.isnan(y)
            order = np.argsort(y[there], kind="stable")
            ends = np.cumsum(shares[there][order])
            return float(y[there][order][min(int(np.searchsorted(ends, level)), len(ends) - 1)])
        # by halving [0, 1] on the column's own scale, where every value has a place
        low, high = 0.0, 1.0
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            v = self._at(middle)
            low, high = (middle, high) if self._below(v) < level else (low, middle)
            if not self._cells_are_points and self._at(low) == self._at(high):
                break
        inside = self._at(high)
        reaching = (atom for atom in sorted(self._atoms) if self._below(atom) >= level)
        if self._below(inside) < level:  # the last value is an atom
            return next(reaching, inside)
        return min(next(reaching, inside), inside)

    def _below(self, v: float) -> float:
        """The probability of a number that is there and at most v."""
        return float(self._mean(self._share_of(self._inside(-math.inf, v)))[0])

    def _at(self, u: float) -> float:
        """The plain number at a place of [0, 1]."""
        scale = self._cells.scale  # type: ignore[attr-defined] # numbers have one
        y = float(scale.inverse(np.array([min(max(u, 1e-15), 1 - 1e-15)]))[0])
        return y if self._cells_are_points else math.floor(y)

    def _density_at(self, v: float) -> tuple[float, float]:
        """p(value and conditions) / p(conditions), each with its own particles."""
        before = self._walk.allowed.get(self._i)
        if before is not None and not before.contains(np.array([v]))[0]:
            return 0.0, 0.0
        question = self._question.with_set(self._i, AllowedNumbers(((v, v),), gap=False))
        if v in self._atoms or question.walk.law(self._i).is_impossible:
            return 0.0, 0.0
        both = question.exact_probability() or question.weighed(question.walk.last + 1, DENSITY_SIZE, self._generator)
        ratio = math.exp(both.log_probability) / self.probability
        own = self.probability_error / self.probability
        return ratio, ratio * math.hypot(both.relative_error, own)
