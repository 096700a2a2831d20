"""Cells: how a model of columns receives one value, and the part of its probability that needs no network.

A cell is four numbers:

    kind       the index of its outcome: 0, 1, ... below ``outcomes``, or UNSEEN
    low, high  the distances of the value's interval on [0, 1] from 0 and from 1; low + high = 1 for a point
    log_size   the part of the log probability that does not depend on a network

The outcomes of a column of words are the frequent words, one outcome for all rare words together, and one for missing
values if training rows had any. The log_size of a rare word is the log of its share among the rare words. The outcomes
of a column of numbers are "a number", then each atom, which is a single value with a probability of its own, then
missing values. The log_size of a step is the log of its width on the column's own
:class:`~cubicflow.tables.unit_scale.UnitScale`. The log_size of a real number is the log of the scale's slope.
Adding it turns a density on [0, 1] into one in the data's units.

Every column reserves a small probability for values that its training rows never had: an unseen word, a value off the
grid or beyond a limit, a missing value in a column whose training rows had none. The cell of such a value has the kind
UNSEEN, and its log_size is the log of the reserved probability. All other cells share the rest. So the probabilities of
all possible values of a column sum to 1.

Failure modes: a column without a value in any training row raises TableError. Plain numbers are NaN for a missing value
and inf for a value that the column cannot hold.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cubicflow import saved
from cubicflow.saved import Range
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.kinds.column import Bounds, Column
from cubicflow.tables.table_error import TableError
from cubicflow.tables.unit_scale import (
    PRIOR,
    CodeCounts,
    Ends,
    UnitScale,
    ring_of_codes,
    ring_of_values,
    scale_of_codes,
    scale_of_values,
)

CELL = 4  # numbers in a cell
UNSEEN = -1  # the kind of a value that no training row had
ALONE, INTERVAL, POINT = 0, 1, 2  # shapes of a column: outcomes without a spline; intervals, or points, under a spline
FREQUENT = 5  # rows; a word with fewer rows shares the outcome of rare words
MOST_OUTCOMES = 512  # frequent words of a column
# A column of steps has an outcome for each distinct value, if it has at most FEW_VALUES distinct values and at least
# ROWS_PER_VALUE rows per distinct value.
FEW_VALUES = 24
ROWS_PER_VALUE = 10
MOST_ATOMS = 64  # atoms of a column
# A real number is an atom if the rows with this value reach all three limits:
ATOM_ROWS = 10  # rows with the value
ATOM_SHARE = 1e-3  # share of all rows that have the value
ATOM_EXCESS = 5.0  # multiple of the median rows of the neighbouring values
NEIGHBOURS = 8  # distinct values on either side that an atom is compared with
NEAR_0 = 40  # 0 is a limit if the smallest value lies between 0 and the column's range divided by this
MOST_UNSEEN = 0.5  # largest probability reserved for unseen values
FILLER = 0.25  # low and high of cells without an interval


@dataclass(frozen=True)
class Cells(ABC):
    """The cells of one column.

    Attributes:
        gaps: whether training rows had missing values in the column.
        unseen: the probability reserved for values that no training row had.
    """

    form: ClassVar[str]
    closed = False  # whether both ends of the scale are the same point of a circle

    gaps: bool
    unseen: Annotated[float, Range(sys.float_info.min, 1 - 2**-53)]

    @property
    @abstractmethod
    def outcomes(self) -> int:
        """The number of outcomes, not counting UNSEEN."""

    @property
    def shape(self) -> int:
        """The shape of outcome 0: ALONE without a spline, else INTERVAL or POINT for a number's place on [0, 1]."""
        return ALONE

    @abstractmethod
    def encode(self, y: Floats) -> Floats:
        """Return the cells (N, 4) of plain numbers (N,): NaN for a missing value, inf for a value that the column
        cannot hold."""

    @property
    def gap(self) -> int:
        """The kind of a missing value; UNSEEN if no training row had a missing value in the column."""
        return self.outcomes - 1 if self.gaps else UNSEEN

    def frame(self, kind: NDArray[np.int64], log_size: Floats) -> Floats:
        """Return cells with these kinds and log_sizes, and with fillers for low and high.

        The log_size of a seen kind is lowered by the probability that is reserved for unseen values.
        """
        cells = np.full((len(kind), CELL), FILLER)
        cells[:, 0] = kind
        cells[:, 3] = np.where(kind == UNSEEN, math.log(self.unseen), log_size + math.log1p(-self.unseen))
        return cells

    def only_masses(self, values: Sequence[float]) -> bool:  # noqa: ARG002 - used by cells with densities
        """Return whether each of these plain numbers has a mass, not a density."""
        return True

    def check(self, column: Column) -> None:
        """Raise TableError if these cells do not suit the column."""
        if column.is_list != isinstance(self, WordCells):
            raise TableError(f"the cells of column {column.name!r} belong to another kind of column")

    def to_json(self) -> dict[str, Any]:
        return {"form": self.form, **asdict(self)}

    @staticmethod
    def from_json(value: Any) -> Cells:
        """Return the cells that :meth:`to_json` wrote. Raises TableError for anything invalid."""
        if not isinstance(value, dict) or value.get("form") not in [*FORMS]:
            raise TableError(f"cells should be one of {', '.join(FORMS)}, got {str(value)[:80]}")
        try:
            fields = {key: item for key, item in value.items() if key != "form"}
            found: Cells = saved.from_json(FORMS[value["form"]], fields, exact=True)
        except ValueError as error:
            raise TableError(f"the description of cells {error}") from None
        return found


@dataclass(frozen=True)
class WordCells(Cells):
    """The cells of a column of words, whose plain numbers are levels 0, 1, ...

    A frequent level is an outcome of its own. The rare levels share one outcome, in which each has its ``share``.
    """

    form: ClassVar[str] = "words"

    kinds: tuple[int, ...]  # outcome of each level
    shares: tuple[float, ...]  # probability of each level within its outcome

    def __post_init__(self) -> None:
        if not self.kinds or min(self.kinds) < 0 or max(self.kinds) >= len(self.kinds):
            raise ValueError("has kinds that are not indices of outcomes, counted from 0")
        totals = np.bincount(np.asarray(self.kinds, np.int64), weights=np.asarray(self.shares))
        if (
            len(self.kinds) != len(self.shares)
            or not len(totals)
            or not np.allclose(totals, 1)
            or min(self.shares) <= 0
        ):
            raise ValueError("has shares of an outcome that are not positive, or do not sum to 1")

    @property
    def outcomes(self) -> int:
        return max(self.kinds) + 1 + self.gaps

    def encode(self, y: Floats) -> Floats:
        known = np.isfinite(y)
        level = np.where(known, y, 0).astype(np.int64)
        kind = np.where(known, np.asarray(self.kinds)[level], np.where(np.isnan(y), self.gap, UNSEEN))
        return self.frame(kind, np.where(known, np.log(np.asarray(self.shares))[level], 0))

    def check(self, column: Column) -> None:
        super().check(column)
        if len(column.levels) != len(self.kinds):
            raise TableError(
                f"column {column.name!r} has {len(column.levels)} levels, but its cells have {len(self.kinds)}"
            )


@dataclass(frozen=True)
class NumberCells(Cells):
    """The cells of a column of numbers: a scale, and atoms.

    ``listed`` numbers have an atom for each value seen, and no spline for other values. The ends of a ``closed`` scale
    are the same point of a circle.
    """

    form: ClassVar[str] = "numbers"

    scale: UnitScale
    atoms: tuple[float, ...] = ()
    listed: bool = False
    is_point: bool = False
    closed: bool = False

    def __post_init__(self) -> None:
        if len(set(self.atoms)) < len(self.atoms):
            raise ValueError("has an atom twice")

    @property
    def shape(self) -> int:
        return ALONE if self.listed else POINT if self.is_point else INTERVAL

    @property
    def outcomes(self) -> int:
        return 1 + len(self.atoms) + self.gaps

    def encode(self, y: Floats) -> Floats:
        low_limit, high_limit = self.scale.limits
        inside = np.isfinite(y)
        value = np.where(inside, y, self.scale.edges[0])
        last = value if self.is_point else value + 1
        atoms = np.asarray(sorted(self.atoms))
        place = np.searchsorted(atoms, value) if len(atoms) else np.zeros(len(y), np.int64)
        is_atom = inside & (atoms[np.minimum(place, len(atoms) - 1)] == value) if len(atoms) else np.zeros(len(y), bool)
        log_size = self.scale.log_density(value) if self.is_point else self.scale.log_mass(value)
        usual = inside & ~is_atom & (value >= low_limit) & (last <= high_limit) & np.isfinite(log_size)
        kind = np.where(usual, 0, np.where(is_atom, 1 + place, np.where(np.isnan(y), self.gap, UNSEEN)))
        cells = self.frame(kind, np.where(usual, log_size, 0))
        placed = usual | is_atom
        cells[:, 1] = np.where(placed, self.scale.distances(value)[0], FILLER)
        cells[:, 2] = np.where(placed, self.scale.distances(last)[1], FILLER)
        return cells

    def only_masses(self, values: Sequence[float]) -> bool:
        return not self.is_point or all(math.isnan(value) or value in self.atoms for value in values)


FORMS: dict[str, type[Cells]] = {cells.form: cells for cells in (WordCells, NumberCells)}


# --- learning ---


def learn_cells(column: Column, y: Floats, weights: Floats | None, *, atoms: bool = True) -> Cells:
    """Return the cells of a column, learned from its plain numbers (N,) in the training rows and from their weights.

    ``atoms`` tells whether real numbers with many rows get a probability of their own.
    """
    present = np.isfinite(y)
    gaps = not bool(present.all())
    counted = None if weights is None else weights[present]
    rows, values = len(y), y[present]
    if not len(values) or (counted is not None and not counted.sum()):
        raise TableError(f"column {column.name!r} has no value in any training row; leave it out", drop=[column.name])
    if counted is not None:  # the weights sum to the number of rows, whatever their unit
        counted = counted * (len(values) / counted.sum())
    if column.is_list:
        return _words(len(column.levels), values, counted, gaps, rows)
    unseen = PRIOR / (rows + 1)
    if column.turn is not None and column.has_steps:
        return NumberCells(gaps, unseen, ring_of_codes(values, counted, int(column.turn[1])), closed=True)
    if column.turn is not None:
        return _ring(values, counted, column.turn, gaps, unseen)
    limits = (-math.inf, math.inf) if column.map is None else column.map.limits
    low, high = (None if math.isinf(end) else end for end in limits)
    if column.has_steps:
        if low is None and not column.on_calendar and column.role != "context":
            start, step = (float(each) for each in column.unlimited(np.array([0.0, 1.0])))
            if never_negative(start + (step - start) * values):
                low = -start / (step - start)  # the code of 0
        ends = None if low is None else math.ceil(low - 1e-6), None if high is None else math.ceil(high) - 1
        return _steps(values, counted, ends, gaps, unseen)
    low = 0.0 if low is None and never_negative(values) else low
    return _reals(values, counted, (low, high), gaps, unseen, find_atoms(values, counted) if atoms else np.empty(0))


def never_negative(values: Floats) -> bool:
    """Return whether 0 is a limit: no value is below 0, and the smallest is near 0.

    >>> never_negative(np.array([1.0, 99.0])), never_negative(np.array([17.0, 90.0])), never_negative(np.array([-1.0]))
    (True, False, False)
    """
    smallest, largest = float(values.min()), float(values.max())
    return 0 <= smallest <= (largest - smallest) / NEAR_0


def _words(levels: int, values: Floats, weights: Floats | None, gaps: bool, rows: int) -> WordCells:
    counts = np.bincount(values.astype(np.int64), weights=weights, minlength=levels).astype(np.float64)
    enough = max(FREQUENT, float(np.sort(counts)[-MOST_OUTCOMES]) if levels > MOST_OUTCOMES else 0.0)
    frequent = counts >= enough
    if (~frequent).sum() == 1 or levels <= 2:  # a single rare word has nothing to share an outcome with
        frequent[:] = True
    kinds = np.where(frequent, np.cumsum(frequent) - 1, frequent.sum())
    totals = np.bincount(kinds, weights=counts + PRIOR)
    shares = (counts + PRIOR) / totals[kinds]
    # Good and Turing: the probability of an unseen word is about the share of rows whose word occurs once.
    once = float(counts[(counts > 0) & (counts <= 1)].sum())
    unseen = min((once + PRIOR) / (rows + 1), MOST_UNSEEN)
    return WordCells(gaps, unseen, tuple(kinds.tolist()), tuple(shares.tolist()))


def _steps(values: Floats, weights: Floats | None, ends: Ends, gaps: bool, unseen: float) -> NumberCells:
    counts = CodeCounts()
    counts.update(values.astype(np.int64), weights)
    few = counts.pooled == 1 and len(counts.codes) <= FEW_VALUES
    listed = few and len(counts.codes) * ROWS_PER_VALUE <= len(values)
    atoms = tuple(counts.codes.astype(float).tolist()) if listed else ()
    return NumberCells(gaps, unseen, scale_of_codes(counts, ends, atoms), atoms, listed)


def _reals(values: Floats, weights: Floats | None, ends: Ends, gaps: bool, unseen: float, atoms: Floats) -> NumberCells:
    smooth = ~np.isin(values, atoms)
    rest = values[smooth]
    if len(rest) < 2 or rest.min() == rest.max():  # too few values for a scale without the atoms
        atoms, smooth, rest = np.empty(0), np.ones(len(values), bool), values
    low, high = ends
    if low is None and values.min() in atoms:
        low = float(values.min())
    if high is None and values.max() in atoms:
        high = float(values.max())
    scale = scale_of_values(rest, None if weights is None else weights[smooth], (low, high))
    return NumberCells(gaps, unseen, scale, tuple(atoms.tolist()), is_point=True)


def _ring(values: Floats, weights: Floats | None, ends: Bounds, gaps: bool, unseen: float) -> NumberCells:
    atoms = find_atoms(values, weights)
    smooth = ~np.isin(values, atoms)
    scale = ring_of_values(values[smooth], None if weights is None else weights[smooth], ends)
    return NumberCells(gaps, unseen, scale, tuple(atoms.tolist()), is_point=True, closed=True)


def find_atoms(values: Floats, weights: Floats | None = None) -> Floats:
    """Return the sorted values that hold clearly more rows than their neighbouring values.

    >>> rng = np.random.default_rng(0)
    >>> find_atoms(np.concatenate([np.zeros(300), rng.exponential(size=700)])).tolist()
    [0.0]
    """
    distinct, place = np.unique(values, return_inverse=True)
    counts = np.bincount(place, weights=weights).astype(np.float64)
    total = float(counts.sum())
    often = np.flatnonzero(counts >= max(ATOM_ROWS, ATOM_SHARE * total))
    often = often[np.argsort(-counts[often], kind="stable")][: 4 * MOST_ATOMS]
    found = []
    for i in often.tolist():
        neighbours = np.concatenate([counts[max(i - NEIGHBOURS, 0) : i], counts[i + 1 : i + 1 + NEIGHBOURS]])
        if not len(neighbours) or counts[i] >= ATOM_EXCESS * np.median(neighbours):
            found.append(distinct[i])
    return np.sort(np.asarray(found[:MOST_ATOMS], np.float64))
