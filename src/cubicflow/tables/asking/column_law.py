"""The law of a column: its conditional distribution given earlier columns, restricted to a set of its values.

A set is split into pieces. A word, an atom and the missing value are one piece each. An interval of numbers is one or
more spans of the column's unit scale. The network of a row gives each piece a probability: for a word the probability
of its outcome times the word's share of the outcome; for a span its mass under the row's spline
(:mod:`cubicflow.tables.interval_mass`). The probability of the set is the sum. All of this is done with logarithms, so
a probability of 1e-190 has as many correct digits as one of 0.1. A real number that is not an atom has probability 0.
If a set holds only such numbers, its pieces have densities per unit instead, and draws choose among these numbers.

A number with decimals stands for all numbers that round to it: half a unit of its last decimal on either side. On a
circle, one of these halves may lie across the seam.

No piece holds unseen values, so unseen values are never drawn, as in ``sample``.

A tilt multiplies the probabilities of pieces before one piece is drawn. The weight divides by the tilt, so weighted
draws have the same distribution under every tilt.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.asking.allowed import Allowed, AllowedLevels, AllowedNumbers, Interval
from cubicflow.tables.cells import Cells, NumberCells, WordCells
from cubicflow.tables.interval_mass import log_masses, places_inside
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.kinds.real import Real
from cubicflow.tables.unit_spline import unit_spline

TAIL = (1e-5, 1e-4, 1e-3, 5e-3, 2e-2)  # extra knots near an end of [0, 1], for rare ranges
# knots of [0, 1]: 32 equal parts, finer near both ends
KNOTS = np.array([*TAIL, *(i / 32 for i in range(1, 32)), *(1 - end for end in reversed(TAIL))])
MOST_LISTED = 256  # words; more words share pieces
LARGEST = 1e300  # stands for an infinite number in a difference
LEAST_LOG_WIDTH = -690.0  # the log of about 1e-300; float64 cannot hold a much narrower part of [0, 1]
NARROWEST = 1e-4  # width of a span between knots, relative to the distance from the nearer end
STRAIGHT = 1e-8  # the same ratio, below which numbers are drawn evenly: [0, 1] does not resolve them


class Drawn(NamedTuple):
    """Drawn plain numbers (N,) and their log weights (N,)."""

    y: Floats
    log_weight: Floats


class Listed(NamedTuple):
    """The plain number of every piece.

    A piece with ``is_representative`` holds further numbers, which together are improbable; ``y`` represents them.
    """

    y: Floats
    is_representative: NDArray[np.bool_]


class ColumnLaw(ABC):
    """The conditional distribution of a column, restricted to a set. ``strata`` is the number of groups of values that
    a tilt weights separately."""

    strata: int
    is_density = False

    @abstractmethod
    def log_chances(self, log_outcomes: Tensor, params: Tensor | None) -> Tensor:
        """Return the log probabilities (N, pieces) of all pieces, or log densities if ``is_density``.

        ``log_outcomes`` (N, outcomes) and ``params`` come from the network.
        """

    def chances(self, log_outcomes: Tensor, params: Tensor | None) -> Tensor:
        """Return the probabilities (N, pieces) of all pieces, or densities if ``is_density``."""
        return self.log_chances(log_outcomes, params).exp()

    @abstractmethod
    def values_in(self, piece: NDArray[np.int64], uniform: Tensor, params: Tensor | None) -> Floats:
        """Return a plain number (N,) inside each given piece, chosen by ``uniform`` (N,) in (0, 1)."""

    @abstractmethod
    def stratum(self, y: Floats) -> NDArray[np.int64]:
        """Return the stratum of each plain number."""

    @property
    @abstractmethod
    def piece_strata(self) -> NDArray[np.int64]:
        """The stratum of every piece."""

    @property
    def listed(self) -> Listed | None:
        """The plain number of every piece; None if a piece holds many numbers."""
        return None

    @property
    def is_impossible(self) -> bool:
        """Whether the set has probability 0 under every network."""
        return False

    def draw(
        self,
        log_outcomes: Tensor,
        params: Tensor | None,
        generator: torch.Generator,
        factors: Floats | None = None,
    ) -> Drawn:
        """Draw a plain number of the set for every row, and return it with its log weight.

        Without ``factors`` the weight is the probability of the set. ``factors`` of the pieces, (pieces,) or
        (N, pieces), are a tilt; the weight corrects for them.
        """
        log_p = self.log_chances(log_outcomes, params)
        log_tilt = torch.zeros_like(log_p)
        if factors is not None:
            log_tilt = torch.from_numpy(factors).to(log_p.device).log().expand_as(log_p)
        total = torch.logsumexp(log_p + log_tilt, 1)
        shares = (log_p + log_tilt - total.clamp(min=-LARGEST)[:, None]).exp()
        uniform = torch.rand(len(log_p), 2, generator=generator, device=log_p.device, dtype=torch.float64)
        ends = shares.cumsum(1)
        piece = (ends <= uniform[:, :1] * ends[:, -1:]).sum(1).clamp(max=log_p.shape[1] - 1)
        log_weight = total - log_tilt.gather(1, piece[:, None])[:, 0]
        y = self.values_in(piece.cpu().numpy(), uniform[:, 1], params)
        return Drawn(y, log_weight.cpu().numpy())


class WordLaw(ColumnLaw):
    """The law of a column of words: one piece for every allowed level, and one for missing values.

    If there are many levels, all levels of one outcome share a piece.
    """

    def __init__(self, cells: WordCells, allowed: AllowedLevels) -> None:
        levels = np.flatnonzero(allowed.levels)
        self._kinds = np.asarray(cells.kinds, np.int64)
        kinds, shares = self._kinds[levels], np.asarray(cells.shares)[levels]
        self._is_list = len(levels) <= MOST_LISTED
        order = np.argsort(kinds, kind="stable")
        self._levels = levels[order].astype(np.float64)
        group = np.arange(len(levels)) if self._is_list else np.unique(kinds[order], return_inverse=True)[1]
        count = int(group.max(initial=-1)) + 1
        totals = np.bincount(group, weights=shares[order], minlength=count)
        self._ends = np.cumsum(shares[order] / totals[group])  # cumulative shares: piece p spans [p, p + 1]
        firsts = np.searchsorted(group, np.arange(count))
        self._outcomes = np.append(kinds[order][firsts], [cells.gap] * allowed.gap).astype(np.int64)
        self._log_shares = torch.from_numpy(np.log(np.append(totals, [1.0] * allowed.gap)))
        self._numbers, self._has_gap = count, allowed.gap
        self.strata, self._gap = cells.outcomes, cells.gap

    @property
    def listed(self) -> Listed | None:
        values = np.append(self._levels, [math.nan] * self._has_gap)
        return Listed(values, np.zeros(len(values), np.bool_)) if self._is_list else None

    @property
    def piece_strata(self) -> NDArray[np.int64]:
        return self._outcomes

    def log_chances(self, log_outcomes: Tensor, params: Tensor | None) -> Tensor:  # noqa: ARG002 - words have no spline
        chosen = torch.from_numpy(self._outcomes).to(log_outcomes.device)
        return log_outcomes[:, chosen] + self._log_shares.to(log_outcomes.device)

    def values_in(self, piece: NDArray[np.int64], uniform: Tensor, params: Tensor | None) -> Floats:  # noqa: ARG002
        if not len(self._levels):
            return np.full(len(piece), np.nan)
        found = np.searchsorted(self._ends, piece + uniform.cpu().numpy(), side="right")
        levels = self._levels[np.minimum(found, len(self._levels) - 1)]
        return np.where(piece < self._numbers, levels, np.nan)

    def stratum(self, y: Floats) -> NDArray[np.int64]:
        gap = np.isnan(y)
        return np.where(gap, self._gap, self._kinds[np.where(gap, 0, y).astype(np.int64)])


class Spans(NamedTuple):
    """Parts of the unit scale. Every field has the shape (J,).

    A part is the distances of its ends from 0 and from 1, its log width, its first and its last value, and the index of
    the interval of numbers that it belongs to.
    """

    low: Floats
    high: Floats
    log_width: Floats
    first: Floats
    last: Floats
    interval: Floats

    def take(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> Spans:
        return Spans(*(each[chosen] for each in self))

    @property
    def middles(self) -> tuple[Floats, Floats]:
        """The distances of the middles from 0 and from 1."""
        half = np.exp(self.log_width) / 2
        return self.low + half, self.high + half


class NumberLaw(ColumnLaw):
    """The law of a column of numbers. The pieces are spans or points of the unit scale, atoms, and missing values, in
    this order.

    Attributes:
        spans: the spans; the first pieces, unless ``is_density``.
        atoms: the atoms in the set, which are the next pieces.
    """

    def __init__(
        self, column: Column, cells: NumberCells, allowed: AllowedNumbers, knots: Floats | None = None
    ) -> None:
        self._column, self._cells = column, cells
        self.knots = KNOTS if knots is None else knots
        self._numbers = len(self.knots) + 1  # strata of numbers that are not atoms
        atoms = np.asarray(sorted(cells.atoms), np.float64)
        inside = allowed.contains(atoms)
        self.atoms, self._atom_kinds = atoms[inside], 1 + np.flatnonzero(inside)
        self._gap = allowed.gap
        points = [p for p, last in allowed.intervals if p == last and p not in cells.atoms]
        self.is_density = bool(
            cells.is_point and points and not inside.any() and not allowed.gap and len(points) == len(allowed.intervals)
        )
        self._points, self._log_density, self._places = self._usual(points if self.is_density else [])
        self.spans = self._spans_of([] if self.is_density else allowed.intervals)
        if knots is not None:
            self.spans = _cut(self.spans, knots)
        self.strata = self._numbers + cells.outcomes

    def _usual(self, points: Sequence[float]) -> tuple[Floats, Tensor, Tensor]:
        """Return the points that a row can hold, their log densities, and their places on the unit scale."""
        cells = self._cells.encode(np.asarray(points, np.float64))
        usual = cells[:, 0] == 0
        _, low, high, log_size = cells[usual].T
        log_density = log_size - math.log1p(-self._cells.unseen)
        place = np.clip((1 + low - high) / 2, 0, 1)
        return np.asarray(points, np.float64)[usual], torch.from_numpy(log_density), torch.from_numpy(place)

    def _spans_of(self, intervals: Sequence[Interval]) -> Spans:
        """Return the spans of intervals of plain numbers. An interval of width 0 has no span."""
        column, scale = self._column, self._cells.scale
        low, high = scale.limits
        found: list[tuple[float, ...]] = []  # the ends of the numbers, the ends of the values, the interval's index
        for i, (first, last) in enumerate(intervals):
            if not self._cells.is_point:
                found.append((first, last + 1, max(first, low), min(last, high - 1), i))
            elif not isinstance(column, Real) or column.decimals is None:
                found.append((first, last, max(first, low), min(last, high), i))
            elif first < last:
                found += [(*ends, i) for ends in column.written(first, last)]
        a, b, *values = np.array(found, np.float64).reshape(-1, 5).T
        a, b = np.maximum(a, low), np.minimum(b, high)
        spans = Spans(*scale.span(a, np.maximum(a, b)), *values)
        return spans.take(spans.log_width > LEAST_LOG_WIDTH)

    @property
    def listed(self) -> Listed | None:
        middles = np.empty(0)
        if len(self.spans.low):
            if not self._cells.listed:
                return None
            middles = np.floor(self._cells.scale.values_at(*self.spans.middles))
            middles = np.clip(middles, self.spans.first, self.spans.last)
        values = np.concatenate([self._points, middles, self.atoms, np.full(int(self._gap), math.nan)])
        return Listed(values, np.arange(len(values)) < len(middles))

    @property
    def is_impossible(self) -> bool:
        return not len(self.spans.low) and not len(self._points) and not len(self.atoms) and not self._gap

    @property
    def piece_strata(self) -> NDArray[np.int64]:
        low, high = self.spans.middles
        places = np.concatenate([self._places.numpy(), np.where(low <= high, low, 1 - high)])
        gap = np.full(int(self._gap), self.strata - 1)
        return np.concatenate([np.searchsorted(self.knots, places), self._numbers + self._atom_kinds, gap])

    def stratum(self, y: Floats) -> NDArray[np.int64]:
        cells = self._cells.encode(y)
        kind = cells[:, 0].astype(np.int64)
        stratum = np.searchsorted(self.knots, (1 + cells[:, 1] - cells[:, 2]) / 2)
        return np.where(kind == 0, stratum, self._numbers + np.maximum(kind, 0))

    def log_chances(self, log_outcomes: Tensor, params: Tensor | None) -> Tensor:
        device, closed = log_outcomes.device, self._cells.closed
        others = [*self._atom_kinds.tolist(), *([self._cells.gap] if self._gap else [])]
        parts = [log_outcomes[:, others]]
        if len(self.spans.low):
            low, high, log_width, *_ = self.spans
            parts.insert(0, log_outcomes[:, :1] + log_masses(low, high, log_width, params, closed=closed).to(device))
        if len(self._points):
            places = self._places.to(device).expand(len(log_outcomes), -1)
            log_slopes = torch.zeros_like(places)
            if params is not None:
                log_slopes = unit_spline(places, params[:, None], closed=closed)[1]
            parts.insert(0, log_outcomes[:, :1] + log_slopes + self._log_density.to(device))
        return torch.cat(parts, dim=1)

    def values_in(self, piece: NDArray[np.int64], uniform: Tensor, params: Tensor | None) -> Floats:
        numbers = len(self._points) or len(self.spans.low)
        others = np.concatenate([self.atoms, [math.nan] * self._gap])
        y = others[np.clip(piece - numbers, 0, max(len(others) - 1, 0))] if len(others) else np.full(len(piece), np.nan)
        if len(self._points):
            return np.where(piece < numbers, self._points[np.minimum(piece, numbers - 1)], y)
        chosen = np.flatnonzero(piece < numbers)
        if len(chosen):
            rows = torch.from_numpy(chosen).to(uniform.device)
            y[chosen] = self._inside(piece[chosen], uniform[rows], None if params is None else params[rows])
        return y

    def _inside(self, piece: NDArray[np.int64], uniform: Tensor, params: Tensor | None) -> Floats:
        """Return a number (n,) inside each given span."""
        spans = self.spans.take(piece)
        low, high, log_width = (torch.from_numpy(each).to(uniform.device) for each in spans[:3])
        low, high = places_inside(low, high, log_width, params, uniform, closed=self._cells.closed)
        y = self._cells.scale.values_at(low.cpu().numpy(), high.cpu().numpy())
        y = y if self._cells.is_point else np.floor(y)
        is_straight = np.exp(spans.log_width) < STRAIGHT * np.minimum(spans.low, spans.high)
        if is_straight.any():
            with np.errstate(invalid="ignore"):  # the wide spans may be infinite
                evenly = spans.first + uniform.cpu().numpy() * (spans.last - spans.first)
            y = np.where(is_straight, evenly if self._cells.is_point else np.rint(evenly), y)
        return np.clip(self._column.rounded(y), spans.first, spans.last)


def _cut(spans: Spans, knots: Floats) -> Spans:
    """Return the spans, split at the knots of [0, 1]. A knot very close to an end of a span does not split it."""
    found = []
    for low, high, log_width, *rest in zip(*spans, strict=True):
        width = math.exp(log_width)
        ends = [0.0]  # distances from the lower end of the span
        for knot in knots.tolist():
            least = NARROWEST * min(knot, 1 - knot)
            if knot - low - ends[-1] > least and 1 - knot - high > least:
                ends.append(knot - low)
        for a, b in pairwise([*ends, width]):
            found.append((low + a, high + width - b, math.log(b - a) if b - a < width else log_width, *rest))
    return Spans(*np.array(found).reshape(-1, 6).T)


def column_law(column: Column, cells: Cells, allowed: Allowed, knots: Floats | None = None) -> ColumnLaw:
    """Return the conditional distribution of a column, restricted to a set. ``knots`` of [0, 1] split numbers into the
    strata of a tilt."""
    if isinstance(cells, WordCells) and isinstance(allowed, AllowedLevels):
        return WordLaw(cells, allowed)
    if isinstance(cells, NumberCells) and isinstance(allowed, AllowedNumbers):
        return NumberLaw(column, cells, allowed, knots)
    raise TypeError(f"the set {type(allowed).__name__} does not fit column {column.name!r}, which is {column.kind}")
