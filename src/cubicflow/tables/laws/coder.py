"""Sets of one column as cells: the parts of a set whose probability is one number per row.

A cell of a set is an outcome of the column, and

    an interval of the unit scale   its probability is its mass under the row's spline
    a point of the unit scale       a real number; it has a density per unit
    a share of the outcome          a word, an atom, the missing value, or several words of one outcome

A real number that is not an atom has probability 0. If a set holds only such numbers, its cells are points with
densities. Else its cells are intervals and shares with probabilities, and single real numbers are left out.

A number with decimals stands for all numbers that round to it: half a unit of its last decimal on either side. On a
circle, one of these halves may lie across the seam. No cell holds unseen values, so unseen values are never drawn.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.laws.cells import FILLER, Cells, NumberCells, WordCells
from cubicflow.tables.laws.masses import places_inside
from cubicflow.tables.schema.sets import Set

Codes = NDArray[np.int64]
TAIL = (1e-5, 1e-4, 1e-3, 5e-3, 2e-2)  # extra knots near an end of [0, 1], for rare ranges
# knots of [0, 1]: 32 equal parts, finer near both ends
KNOTS = np.array([*TAIL, *(i / 32 for i in range(1, 32)), *(1 - end for end in reversed(TAIL))])
NO_GAP = np.array([False])
MOST_KNOWN = 1 << 12  # sets of words whose cells are kept
MOST_TOGETHER = 1 << 13  # numbers of cells that are kept together
MOST_KEPT = 1 << 6  # groups of sets whose cells are kept
MOST_SINGLE = 256  # words of a set with a cell each; more words of one outcome share cells
LEAST_LOG_WIDTH = -690.0  # the log of about 1e-300; float64 cannot hold a much narrower part of [0, 1]
NARROWEST = 1e-4  # width of an interval between knots, relative to the distance from the nearer end
STRAIGHT = 1e-8  # the same ratio, below which numbers are drawn evenly: [0, 1] does not resolve them
TAILS = 42.0  # reaches of a tail beyond which its codes are not listed; they hold e^-42 of the tail


class SetCells(NamedTuple):
    """The cells of one set for all rows, or of a set for each of N rows.

    ``fields`` (1, J, 7) or (N, J, 7) has seven numbers for each cell:

        outcome            its outcome
        low, high          the distances of its interval on the unit scale from 0 and from 1
        log_width          the log of the width of its interval
        log_size           the log of its share of the outcome; the log slope of the scale at a point; 0 for an
                           interval; -inf where a set lacks the cell
        first, last        its first and its last plain number; for words, their first and last place among all words
                           sorted by outcome

    The first ``intervals`` cells are intervals of the unit scale, the next ``points`` cells are its points.
    """

    sets: Set
    fields: Floats
    intervals: int = 0
    points: int = 0

    @property
    def outcome(self) -> Codes:
        return self.fields[..., 0].astype(np.int64)

    @property
    def log_size(self) -> Floats:
        return self.fields[..., 4]

    @property
    def is_impossible(self) -> bool:
        """Whether a set has no cell: its probability is 0 under every network."""
        return bool((self.log_size == -math.inf).all(axis=1).any())

    @property
    def is_density(self) -> bool:
        """Whether cells have densities instead of probabilities."""
        return self.points > 0

    def flattened(self) -> tuple[SetCells, Codes]:
        """Return the cells of all sets as those of one set, (1, M, 7), and the set (M,) to which each cell belongs."""
        cell, row = np.nonzero((self.log_size > -math.inf).T)
        intervals, points = ((cell < end).sum() for end in (self.intervals, self.intervals + self.points))
        return SetCells(self.sets, self.fields[row, cell][None], int(intervals), int(points - intervals)), row

    def present(self) -> SetCells:
        """Return the cells that some set has."""
        there = np.flatnonzero((self.log_size > -math.inf).any(axis=0))
        intervals, points = ((there < end).sum() for end in (self.intervals, self.intervals + self.points))
        return SetCells(self.sets, self.fields[:, there], int(intervals), int(points - intervals))


class Coder(ABC):
    """The conversion of sets of one column to cells.

    A tilt of draws weighs groups of values separately, the strata: the outcomes, and for numbers the parts of [0, 1]
    between ``knots``.
    """

    has_knots = True  # whether strata are parts of [0, 1], besides other outcomes

    def __init__(self, column: Column, cells: Any) -> None:
        self.column = column
        self.cells: Cells = cells  # the outcomes and the scale of the column
        self._kept: dict[tuple[bytes, bytes, bytes], SetCells] = {}

    def of(self, sets: Set, knots: Floats | None = None) -> SetCells:
        """Return the cells of sets. ``knots`` of [0, 1] split intervals. The cells of few small sets are kept."""
        key = sets.ends.tobytes(), sets.gap.tobytes(), b"" if knots is None else knots.tobytes()
        if (kept := self._kept.get(key)) is not None:
            return kept
        found = self._of(sets, knots)
        if found.fields.size <= MOST_TOGETHER:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[key] = found
        return found

    @abstractmethod
    def _of(self, sets: Set, knots: Floats | None) -> SetCells:
        """Return the cells of sets."""

    @abstractmethod
    def listed(self, within: Set, most: int, *, finest: bool = False) -> SetCells | None:
        """Return at most ``most`` cells of a set for all rows with one number each; None if it has more numbers.

        Without ``finest``, an interval between listed numbers is one cell, of which ``first`` is one number.
        """

    @abstractmethod
    def singles(self, cells: SetCells) -> tuple[Floats, NDArray[np.bool_]]:
        """Return a plain number of each cell, (1, J) or (N, J), and whether it is the only number of the cell."""

    @abstractmethod
    def numbers(self, cells: Floats, uniform: Tensor, params: Tensor | None) -> Floats:
        """Return a plain number (N,) inside each cell (N, 7), chosen by ``uniform`` (N,) in (0, 1)."""

    @abstractmethod
    def strata(self, y: Floats, knots: Floats) -> Codes:
        """Return the stratum of each plain number."""

    @abstractmethod
    def strata_of(self, cells: SetCells, knots: Floats) -> Codes:
        """Return the stratum of each cell of a set for all rows."""

    def number_of_strata(self, knots: Floats) -> int:  # noqa: ARG002 - words have no knots
        return self.cells.outcomes


class WordCoder(Coder):
    """The coder of a column of words. A set with many words has a cell for each outcome, else one for each word."""

    has_knots = False
    cells: WordCells

    def __init__(self, column: Column, cells: WordCells) -> None:
        super().__init__(column, cells)
        order = np.argsort(cells.kinds, kind="stable")
        self._order = order.astype(np.float64)  # the words sorted by outcome
        self._outcomes = np.asarray(cells.kinds, np.int64)[order]
        self._shares = np.asarray(cells.shares)[order]
        self._ends = np.cumsum(self._shares)
        self._known: dict[bytes, Floats] = {}

    def _of(self, sets: Set, knots: Floats | None) -> SetCells:  # noqa: ARG002 - words have no knots
        keys = np.column_stack([sets.ends.reshape(len(sets), -1), sets.gap]).view(np.int64)
        _, first, index = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        found = [self._cells_of(sets.ends[row], self.cells.gaps and bool(sets.gap[row])) for row in first.tolist()]
        fields = _no_cells(len(found), max(map(len, found)))
        for row, each in zip(fields, found, strict=True):
            row[: len(each)] = each
        return SetCells(sets, fields[index.ravel()])

    def _cells_of(self, ends: Floats, gap: bool) -> Floats:
        """Return the cells (J, 7) of a set with these ends (J, 2)."""
        key = ends.tobytes() + bytes([gap])
        if key not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            inside = np.flatnonzero(Set(ends[None, ~np.isnan(ends[:, 0])], NO_GAP).contains(self._order))
            # A cell is a run of neighbouring words with one outcome; a word is alone if there are few words.
            starts = np.ones(len(inside), np.bool_)
            if len(inside) > MOST_SINGLE:
                starts[1:] = (np.diff(inside) > 1) | (np.diff(self._outcomes[inside]) > 0)
            begins = np.flatnonzero(starts)
            found = np.full((len(begins) + gap, 7), FILLER)
            runs = found[: len(begins)]
            runs[:, 0] = self._outcomes[inside[begins]]
            runs[:, 4] = np.log(np.add.reduceat(self._shares[inside], begins)) if len(begins) else 0
            runs[:, 5], runs[:, 6] = inside[begins], inside[np.append(begins, len(inside))[1:] - 1]
            if gap:
                found[-1, [0, 4, 5, 6]] = self.cells.gap, 0, math.nan, math.nan
            self._known[key] = found
        return self._known[key]

    def listed(self, within: Set, most: int, *, finest: bool = False) -> SetCells | None:  # noqa: ARG002
        cells = self.of(within)
        words, alone = self.singles(cells)
        if len(cells.fields[0]) > most or not alone.all():
            return None
        fields = cells.fields.copy()
        fields[..., 5] = fields[..., 6] = words
        return cells._replace(fields=fields)

    def singles(self, cells: SetCells) -> tuple[Floats, NDArray[np.bool_]]:
        first, last = cells.fields[..., 5], cells.fields[..., 6]
        is_gap = np.isnan(first)
        return np.where(is_gap, math.nan, self._order[np.where(is_gap, 0, first).astype(np.int64)]), is_gap | (
            first == last
        )

    def numbers(self, cells: Floats, uniform: Tensor, params: Tensor | None) -> Floats:  # noqa: ARG002 - no spline
        is_gap = np.isnan(cells[:, 5])
        first, last = np.where(is_gap[:, None], 0, cells[:, 5:]).astype(np.int64).T
        low, high = self._ends[first] - self._shares[first], self._ends[last]
        place = np.searchsorted(self._ends, low + uniform.cpu().numpy() * (high - low), side="right")
        found: Floats = np.where(is_gap, math.nan, self._order[np.clip(place, first, last)])
        return found

    def strata(self, y: Floats, knots: Floats) -> Codes:  # noqa: ARG002 - words have no knots
        found: Codes = self.cells.encode(y)[:, 0].astype(np.int64)
        return found

    def strata_of(self, cells: SetCells, knots: Floats) -> Codes:  # noqa: ARG002 - words have no knots
        found: Codes = cells.outcome[0]
        return found


class NumberCoder(Coder):
    """The coder of a column of numbers. The cells of a set are intervals or points, atoms, and the missing value."""

    cells: NumberCells

    def __init__(self, column: Column, cells: NumberCells) -> None:
        super().__init__(column, cells)
        self._atoms = np.asarray(sorted(cells.atoms), np.float64)
        self._outcomes = np.append(1 + np.arange(len(self._atoms)), [cells.gap] * cells.gaps)

    def _of(self, sets: Set, knots: Floats | None) -> SetCells:
        is_point = np.zeros(sets.ends.shape[:2], np.bool_)
        if self.cells.is_point:
            is_point = sets.ends[..., 0] == sets.ends[..., 1]
        others = self._others(sets)
        intervals = self._intervals(sets.ends, ~is_point & ~np.isnan(sets.ends[..., 0]), knots)
        # Single numbers count only in a set that holds nothing else.
        alone = (is_point | np.isnan(sets.ends[..., 0])).all(axis=1) & (others[..., 4] == -math.inf).all(axis=1)
        points = self._points(sets.ends[..., 0], is_point & alone[:, None])
        fields = np.concatenate([intervals, points, others], axis=1)
        return SetCells(sets, fields, intervals.shape[1], points.shape[1]).present()

    def _intervals(self, ends: Floats, chosen: NDArray[np.bool_], knots: Floats | None) -> Floats:
        """Return the cells (N, J, 7) of the chosen intervals of plain numbers, among ``ends`` (N, I, 2)."""
        if not chosen.any():
            return np.empty((len(ends), 0, 7))
        each, index = np.unique(ends[chosen], axis=0, return_inverse=True)
        found = self._places(each)
        if knots is not None:
            found = _cut(found, knots)
        owner, cells = found[:, 0].astype(np.int64), found[:, 1:]
        count = np.bincount(owner, minlength=len(each))
        table = _no_cells(len(each), int(count.max(initial=0)))
        place = np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
        table[owner, place, 1:4], table[owner, place, 5:] = cells[:, :3], cells[:, 3:]
        table[owner, place, 4] = 0
        result = _no_cells(*ends.shape[:2], table.shape[1])
        result[chosen] = table[index.ravel()]
        return result.reshape(len(ends), -1, 7)

    def _places(self, ends: Floats) -> Floats:
        """Return, for intervals of plain numbers (I, 2), rows of the interval's index, low, high, log_width, first and
        last, sorted by the index."""
        column, scale = self.column, self.cells.scale
        low, high = scale.limits
        first, last = ends.T
        index = np.arange(float(len(ends)))
        if not self.cells.is_point:
            found = np.stack([index, first, last + 1, np.maximum(first, low), np.minimum(last, high - 1)], axis=1)
        elif column.decimals is None:
            found = np.stack([index, first, last, np.maximum(first, low), np.minimum(last, high)], axis=1)
        else:
            written = [(i, *each) for i, pair in enumerate(ends.tolist()) for each in column.written(*pair)]
            found = np.array(written, np.float64).reshape(-1, 5)
        a, b = np.maximum(found[:, 1], low), np.minimum(found[:, 2], high)
        places = np.stack([found[:, 0], *scale.span(a, np.maximum(a, b)), found[:, 3], found[:, 4]], axis=1)
        return places[places[:, 3] > LEAST_LOG_WIDTH]

    def _points(self, y: Floats, chosen: NDArray[np.bool_]) -> Floats:
        """Return the cells (N, J, 7) of the chosen real numbers among y (N, J); none for a number beyond a limit."""
        if not chosen.any():
            return np.empty((len(y), 0, 7))
        found = _no_cells(*y.shape)
        cells = self.cells.encode(y[chosen])
        log_size = np.where(cells[:, 0] == 0, cells[:, 3] - math.log1p(-self.cells.unseen), -math.inf)
        found[chosen] = np.stack(
            [0 * log_size, cells[:, 1], cells[:, 2], 0 * log_size, log_size, *2 * [y[chosen]]], axis=1
        )
        return found

    def _others(self, sets: Set) -> Floats:
        """Return the cells (N, J, 7) of atoms and of the missing value."""
        found = np.full((len(sets), len(self._outcomes), 7), FILLER)
        found[..., 0] = self._outcomes
        found[..., 5] = found[..., 6] = np.append(self._atoms, [math.nan] * self.cells.gaps)
        inside = np.zeros(found.shape[:2], np.bool_)
        for ends in np.moveaxis(sets.ends, 1, 0):  # one interval of every set
            inside[:, : len(self._atoms)] |= (self._atoms >= ends[:, :1]) & (self._atoms <= ends[:, 1:])
        if self.cells.gaps:
            inside[:, -1] = sets.gap
        found[..., 4] = np.where(inside, 0.0, -math.inf)
        return found

    def listed(self, within: Set, most: int, *, finest: bool = False) -> SetCells | None:
        cells = self.of(within)
        if not cells.intervals:
            return cells if cells.fields.shape[1] <= most else None
        if self.cells.is_point or not (finest or self.cells.listed):
            return None
        if not finest:
            cells = cells._replace(fields=cells.fields.copy())
            own = cells.fields[0, : cells.intervals]
            half = np.exp(own[:, 3]) / 2
            middle = np.floor(self.cells.scale.values_at(own[:, 1] + half, own[:, 2] + half))
            own[:, 5] = np.clip(middle, own[:, 5], own[:, 6])
            return cells if cells.fields.shape[1] <= most else None
        scale, ends = self.cells.scale, within.ends[0]
        first = np.maximum(ends[:, 0], np.minimum(ends[:, 1], scale.edges[0]) - TAILS * scale.reach_below)
        last = np.minimum(ends[:, 1], np.maximum(ends[:, 0], scale.edges[-1]) + TAILS * scale.reach_above)
        first = np.ceil(np.maximum(first, scale.limits[0]))
        last = np.floor(np.minimum(last, scale.limits[1] - 1))
        if (np.maximum(last - first + 1, 0)).sum() > most:
            return None
        codes = np.concatenate([np.arange(a, b + 1) for a, b in zip(first.tolist(), last.tolist(), strict=True)])
        single = self.of(Set(np.stack([codes, codes], axis=-1)[None], within.gap))
        return single if single.fields.shape[1] <= most else None

    def singles(self, cells: SetCells) -> tuple[Floats, NDArray[np.bool_]]:
        first, last = cells.fields[..., 5], cells.fields[..., 6]
        return first, np.isnan(first) | (first == last)

    def numbers(self, cells: Floats, uniform: Tensor, params: Tensor | None) -> Floats:
        first, last = cells[:, 5], cells[:, 6]
        chosen = np.flatnonzero((cells[:, 0] == 0) & (first < last))
        if not len(chosen):
            return first
        inside, rows = cells[chosen], torch.from_numpy(chosen).to(uniform.device)
        low, high, log_width = torch.from_numpy(inside[:, 1:4]).to(uniform.device).unbind(1)
        own = None if params is None else params[rows]
        ends = places_inside(low, high, log_width, own, uniform[rows], closed=self.cells.closed)
        y = self.cells.scale.values_at(*(each.cpu().numpy() for each in ends))
        y = y if self.cells.is_point else np.floor(y)
        is_straight = np.exp(inside[:, 3]) < STRAIGHT * np.minimum(inside[:, 1], inside[:, 2])
        if is_straight.any():
            with np.errstate(invalid="ignore"):  # wide intervals may be infinite
                evenly = first[chosen] + uniform[rows].cpu().numpy() * (last - first)[chosen]
            y = np.where(is_straight, evenly if self.cells.is_point else np.rint(evenly), y)
        found = first.copy()
        found[chosen] = np.clip(self.column.rounded(y), first[chosen], last[chosen])
        return found

    def number_of_strata(self, knots: Floats) -> int:
        return len(knots) + 1 + self.cells.outcomes

    def strata(self, y: Floats, knots: Floats) -> Codes:
        cells = self.cells.encode(y)
        return _strata(cells[:, 0].astype(np.int64), (1 + cells[:, 1] - cells[:, 2]) / 2, knots)

    def strata_of(self, cells: SetCells, knots: Floats) -> Codes:
        _, low, high, log_width, *_ = cells.fields[0].T
        half = np.where(np.arange(len(low)) < cells.intervals, np.exp(log_width) / 2, 0)
        return _strata(cells.outcome[0], np.where(low <= high, low + half, 1 - high - half), knots)


def _no_cells(*shape: int) -> Floats:
    """Return the seven numbers of cells that no set has."""
    found = np.full((*shape, 7), FILLER)
    found[..., [0, 4]] = 0, -math.inf
    return found


def _strata(outcome: Codes, place: Floats, knots: Floats) -> Codes:
    """Return the strata of cells of numbers: the parts between the knots, then the other outcomes."""
    return np.where(outcome == 0, np.searchsorted(knots, place), len(knots) + 1 + np.maximum(outcome, 0))


def _cut(places: Floats, knots: Floats) -> Floats:
    """Return the places of :meth:`NumberCoder._places`, split at the knots of [0, 1]. A knot very close to an end of an
    interval does not split it.
    """
    found = []
    for index, low, high, log_width, *rest in places.tolist():
        width = math.exp(log_width)
        ends = [0.0]  # distances from the lower end of the interval
        for knot in knots.tolist():
            least = NARROWEST * min(knot, 1 - knot)
            if knot - low - ends[-1] > least and 1 - knot - high > least:
                ends.append(knot - low)
        for a, b in pairwise([*ends, width]):
            found.append((index, low + a, high + width - b, math.log(b - a) if b - a < width else log_width, *rest))
    return np.array(found).reshape(-1, 6)


def coder_of(column: Column, cells: Cells) -> Coder:
    """Return the coder of a column with these cells."""
    return WordCoder(column, cells) if isinstance(cells, WordCells) else NumberCoder(column, cells)  # type: ignore[arg-type] # of numbers
