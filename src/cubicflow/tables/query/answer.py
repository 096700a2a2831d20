"""One column of a fitted table given conditions on other columns: masses, density, quantiles, each with its error.

A column after all conditions, in the model's order, is a mixture: each weighted row gives a full distribution of the
column, and the answer is their weighted mean. The only error is that of the rows; enumerated rows have no error. A
column before the last condition or constraint, with a condition of its own, or that earlier columns determine is
counted: the answer is the share of rows with a value. Its density at a value is a ratio of two probabilities: of the
conditions with and without that value.

Errors are standard errors of ratios of weighted sums. A counted answer has an additional error: a value that was never
drawn may have a probability of about one over the effective size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from cubicflow.arguments import unknown_name
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.laws.cells import NumberCells
from cubicflow.tables.query.question import Question
from cubicflow.tables.query.strategies import paths_to_last, probability_of, weighed, weighted_rows
from cubicflow.tables.query.walk import effective_size
from cubicflow.tables.schema.plain_rows import plain_numbers, with_gaps
from cubicflow.tables.schema.sets import Set
from cubicflow.tables.table_error import TableError

SIZE = 10_000.0  # effective size of the particles of an answer
DENSITY_SIZE = 2_000.0  # effective size of the particles for a density at one value
SIGN = np.int64(63)  # the place of the sign of a float64


class Estimates(NamedTuple):
    """Estimated numbers and their standard errors; the error of an exact number is 0."""

    values: Floats
    errors: Floats


class Masses(NamedTuple):
    """Values of a column (None for a missing value), their probabilities, and the standard errors of the
    probabilities."""

    values: list[object]
    masses: Floats
    errors: Floats


class Means:
    """Weighted means over rows that meet a question.

    Args:
        log_weight: the log weights of the rows, (N,).
        exact: the relative error of the weights of all paths; None for drawn rows.
    """

    def __init__(self, log_weight: Floats, exact: float | None) -> None:
        self.size = math.inf if exact is not None else effective_size(log_weight)
        self.shares = np.exp(log_weight - log_weight.max())
        self.shares /= self.shares.sum()
        self._exact = exact

    def of(self, f: Floats) -> Estimates:
        """Return the mean (V,) of each column of f (N, V)."""
        mean = self.shares @ f
        return self._estimates(mean, np.sqrt(self.shares**2 @ (f - mean) ** 2))

    def of_flags(self, share: Floats, squares: Floats) -> Estimates:
        """Return the shares of rows with a property, given the sums (V,) of their weights and of the weights' squares.

        The error has a part for rows with the property that were never drawn.
        """
        total = float((self.shares**2).sum())
        variance = np.maximum(squares * (1 - share) ** 2 + (total - squares) * share**2, 0)
        return self._estimates(share, np.sqrt(variance + self.size**-2))

    def _estimates(self, mean: Floats, error: Floats) -> Estimates:
        return Estimates(mean, error if self._exact is None else np.full_like(mean, self._exact))


class Conditional:
    """The distribution of a column given conditions, made by :meth:`cubicflow.tables.FittedTable.conditional`.

    Attributes:
        column: the name of the column.
        given: the conditions as text.
        probability, probability_error: the probability of the conditions and its standard error, among rows that keep
            the constraints of the fit. The probability is a density if a condition is a single real number.
        effective_size: the effective size of the particles; inf for an exact answer.
        particles: the number of particles.
        is_exact: whether the answer equals the model's distribution up to rounding.

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
        walk, size = question.walk, _checked_size(size)
        if column not in walk.encoder.order:
            raise TableError(unknown_name("the model", "column", column, walk.encoder.order))
        self.column, self.given = column, [condition.text for condition in question.conditions]
        self._question, self._walk, self._generator = question, walk, generator
        self._i = walk.encoder.order.index(column)
        self._column, self._coder = walk.columns[self._i], walk.coders[self._i]
        self._cells = self._coder.cells
        self._is_mixture = self._i > walk.last and not walk.is_determined(self._i)
        stop = self._i if self._is_mixture else max(walk.last, self._i) + 1
        found = weighted_rows(question, stop, size, generator)
        self.effective_size, self.particles, self.is_exact = found.effective_size, len(found.particles), found.is_exact
        self._known = paths_to_last(question) or found
        known = probability_of(question, self._known, lambda each: weighed(each, size, generator))
        self.probability, self.probability_error = known
        self._means = Means(found.particles.log_weight, found.exact_error)
        if self._is_mixture:
            self._law = walk.law(self._i, found.particles)
        else:  # the particles' values, rounded to those of rows
            self._y = plain_numbers(self._column, with_gaps(self._column, found.particles.y[:, self._i]))

    def __repr__(self) -> str:
        how = "exact" if self.is_exact else f"effective size {self.effective_size:,.0f}"
        given = f" given {', '.join(self.given)}" if self.given else ""
        return f"<{self.column!r}{given}: {how}, probability {self.probability:.4g} ± {2 * self.probability_error:.2g}>"

    # --- answers ---

    def masses(self, values: Sequence[object] | None = None) -> Masses:
        """Return the probabilities of values. None stands for a missing value.

        The default values are all words, or the atoms or drawn values of a column of numbers, and None if the column
        can be missing. A real number that is not an atom has mass 0.
        """
        y = self._listed() if values is None else self._plain(values)
        found = self._estimated(Set.known(y))
        if self._is_mixture and self._cells_are_points:  # single numbers that are not atoms have densities
            found = Estimates(*(np.where(np.isnan(y) | np.isin(y, self._atoms), each, 0.0) for each in found))
        return Masses(self._shown(y), *found)

    def density(self, values: Sequence[object]) -> Estimates:
        """Return the density per unit of real numbers at values.

        An atom has a mass, which is no part of the density. At an atom, this is the density of the numbers beside it.

        Raises TableError for a column without a density: one whose values have masses, or that earlier columns
        determine.
        """
        if not self._cells_are_points or self._i in self._walk.rules:
            raise TableError(f"column {self.column!r} has masses and no density; use masses()")
        if self._i in self._walk.computed:
            raise TableError(
                f"column {self.column!r} is computed from other columns, so its density is not known; use cdf()"
            )
        y = np.array([self._beside(v) for v in self._plain(values).tolist()])
        if self._is_mixture:
            return self._estimated(Set.known(y))
        return Estimates(*np.array([self._density_at(v) for v in y.tolist()]).reshape(-1, 2).T)

    def cdf(self, values: Sequence[object]) -> Estimates:
        """Return, for each value, the probability that the column is present and at most that value."""
        self._check_ordered()
        return self._below(self._plain(values))

    def quantiles(self, levels: Sequence[float]) -> Masses:
        """Return the quantiles at levels in (0, 1), among rows in which the column is present.

        The result holds the quantiles, the levels that they reach, and the standard errors of these levels.
        """
        self._check_ordered()
        wanted = np.asarray(levels, np.float64)
        if wanted.ndim != 1 or not ((wanted > 0) & (wanted < 1)).all():
            raise TableError(f"levels of quantiles should be numbers between 0 and 1, got {list(levels)!r}")
        (present,) = self._below(np.array([math.inf])).values
        found = self._quantiles(wanted * present)
        reached = self._below(found)
        return Masses(self._shown(found), reached.values / present, reached.errors / present)

    # --- computation ---

    def _estimated(self, sets: Set) -> Estimates:
        """Return the probability (V,) of each set."""
        if self._is_mixture:
            return self._means.of(self._law.masses(self._coder.of(sets)))
        shares, inside = self._means.shares, sets.membership(self._y)
        return self._means.of_flags(shares @ inside, shares**2 @ inside)

    def _below(self, ends: Floats) -> Estimates:
        """Return the probability (V,) of numbers up to each end."""
        last = np.floor(ends) if self._column.counts_mass else ends
        intervals = np.stack([np.full(len(last), -math.inf), last], axis=-1)
        return self._estimated(Set(intervals[:, None], np.zeros(len(last), np.bool_)))

    @property
    def _cells_are_points(self) -> bool:
        return isinstance(self._cells, NumberCells) and self._cells.is_point

    @property
    def _atoms(self) -> tuple[float, ...]:
        return self._cells.atoms if isinstance(self._cells, NumberCells) else ()

    def _listed(self) -> Floats:
        """Return the default values of :meth:`masses` as plain numbers."""
        gap = [math.nan] if self._cells.gaps else []
        if self._column.is_list:
            return np.array([*map(float, range(len(self._column.levels))), *gap])
        if self._is_mixture:
            if self._cells_are_points or getattr(self._cells, "listed", False):
                return np.array([*sorted(self._atoms), *gap])
            raise TableError(f"column {self.column!r} has too many values to list; pass the values to masses()")
        y = self._y
        return np.array([*np.unique(y[~np.isnan(y)]).tolist(), *gap])

    def _plain(self, values: Sequence[object]) -> Floats:
        """Return values as plain numbers. Raise TableError if the column cannot hold a value."""
        array = pa.array([None if value is None else str(value) for value in values], type=pa.string())
        y = plain_numbers(self._column, array)
        if np.isinf(y).any():
            wrong = values[int(np.flatnonzero(np.isinf(y))[0])]
            raise TableError(f"column {self.column!r} never holds {wrong!r}; leave this value out")
        return y

    def _shown(self, y: Floats) -> list[object]:
        found: list[object] = with_gaps(self._column, y).to_pylist()
        return found

    def _check_ordered(self) -> None:
        if self._column.is_list:
            raise TableError(f"column {self.column!r} is a list of values; use masses()")

    def _quantiles(self, levels: Floats) -> Floats:
        """Return the smallest plain numbers at which the distribution function reaches levels.

        The numbers are found by bisection among all float64, in their order. So atoms and steps are found exactly.
        """
        low, high = (_ordered(np.full(len(levels), end)) for end in (-math.inf, math.inf))
        while (high - 1 > low).any():
            middle = (low & high) + ((low ^ high) >> 1)  # the mean, without overflow
            is_below = self._below(_number(middle)).values < levels
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        return _number(high)

    def _beside(self, v: float) -> float:
        """Return the number next to an atom that the column can hold and that meets the conditions, else ``v``."""
        if v not in self._atoms:
            return v
        low, high = self._cells.scale.limits  # type: ignore[attr-defined] # cells with atoms have a scale
        within = self._walk.set_of(self._i)
        for end in (math.inf, -math.inf):
            near = math.nextafter(v, end)
            if low < near < high and within.contains(np.array([near]))[0]:
                return near
        return v

    def _density_at(self, v: float) -> tuple[float, float]:
        """Return p(value and conditions) / p(conditions) and its error; 0 at an atom without numbers beside it.

        The two probabilities are computed separately, so their relative errors are independent.
        """
        if not self._walk.set_of(self._i).contains(np.array([v]))[0]:
            return 0.0, 0.0
        question = self._question.with_sets({**self._walk.sets, self._i: Set.points([v])})
        if v in self._atoms or question.walk.cells(self._i).is_impossible:
            return 0.0, 0.0
        both = weighed(question, DENSITY_SIZE, self._generator)
        ratio = math.exp(both.log_probability - self._known.log_probability)
        return ratio, ratio * math.hypot(both.relative_error, self._known.relative_error)


def _ordered(y: Floats) -> NDArray[np.int64]:
    """Return whole numbers in the order of float64 numbers."""
    bits = y.view(np.int64)
    return bits ^ ((bits >> SIGN) & np.iinfo(np.int64).max)


def _number(place: NDArray[np.int64]) -> Floats:
    """Return the float64 numbers at places in their order.

    >>> y = np.array([-np.inf, -1.5, -0.0, 5e-324, 2.0])
    >>> bool((np.diff(_ordered(y)) > 0).all()), _number(_ordered(y)).tolist()
    (True, [-inf, -1.5, -0.0, 5e-324, 2.0])
    """
    return (place ^ ((place >> SIGN) & np.iinfo(np.int64).max)).view(np.float64)


def probability_given(question: Question, size: float, generator: torch.Generator) -> Estimates:
    """Return the probability that a row which keeps the constraints meets the conditions, and its standard error."""
    size = _checked_size(size)
    found = weighed(question, size, generator)
    value, error = probability_of(question, found, lambda each: weighed(each, size, generator))
    return Estimates(np.array(value), np.array(error))


def _checked_size(size: float) -> float:
    if isinstance(size, bool) or not isinstance(size, int | float) or not 1 <= size < math.inf:
        raise TableError(f"effective_size should be a number, 1 or more, got {size!r}")
    return float(size)
