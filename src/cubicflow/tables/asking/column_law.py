"""The law of a column: its conditional distribution given earlier columns, restricted to a set of its values.

A set is split into pieces. A word, an atom and the missing value are one piece each. An interval of numbers is one or
more intervals [a, b] of the column's unit scale. The network of a row gives each piece a probability: for a word the
probability of its outcome times the word's share of the outcome; for an interval F(b) - F(a) under the row's spline.
The probability of the set is the sum. A real number that is not an atom has probability 0. If a set holds only such
numbers, its pieces have densities per unit instead, and draws choose among these numbers.

No piece holds unseen values, so unseen values are never drawn, as in ``sample``.

A tilt multiplies the probabilities of pieces before one piece is drawn. The weight divides by the tilt, so weighted
draws have the same distribution under every tilt.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.asking.allowed import Allowed, AllowedLevels, AllowedNumbers
from cubicflow.tables.cells import Cells, NumberCells, WordCells
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.kinds.real import Real
from cubicflow.tables.unit_spline import unit_spline

TAIL = (1e-5, 1e-4, 1e-3, 5e-3, 2e-2)  # extra knots near an end of [0, 1], for rare ranges
# knots of [0, 1]: 32 equal parts, finer near both ends
KNOTS = np.array([*TAIL, *(i / 32 for i in range(1, 32)), *(1 - end for end in reversed(TAIL))])
MOST_LISTED = 256  # words; more words share pieces
LEAST = 1e-300  # smallest probability that enters a logarithm


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
    def chances(self, log_outcomes: Tensor, params: Tensor | None) -> Tensor:
        """Return the probabilities (N, pieces) of all pieces, or densities if ``is_density``.

        ``log_outcomes`` (N, outcomes) and ``params`` come from the network.
        """

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
        chances = self.chances(log_outcomes, params)
        tilt = torch.ones_like(chances)
        if factors is not None:
            tilt = torch.from_numpy(factors).to(chances.device).expand_as(chances)
        tilted = chances * tilt
        total = tilted.sum(1)
        uniform = torch.rand(len(chances), 2, generator=generator, device=chances.device, dtype=torch.float64)
        piece = (tilted.cumsum(1) <= uniform[:, :1] * total[:, None]).sum(1).clamp(max=chances.shape[1] - 1)
        log_weight = total.clamp(min=LEAST).log() - tilt.gather(1, piece[:, None])[:, 0].log()
        log_weight = torch.where(total > 0, log_weight, -torch.inf)
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
        self._shares = torch.from_numpy(np.append(totals, [1.0] * allowed.gap))
        self._numbers, self._has_gap = count, allowed.gap
        self.strata, self._gap = cells.outcomes, cells.gap

    @property
    def listed(self) -> Listed | None:
        values = np.append(self._levels, [math.nan] * self._has_gap)
        return Listed(values, np.zeros(len(values), np.bool_)) if self._is_list else None

    @property
    def piece_strata(self) -> NDArray[np.int64]:
        return self._outcomes

    def chances(self, log_outcomes: Tensor, params: Tensor | None) -> Tensor:  # noqa: ARG002 - words have no spline
        chosen = torch.from_numpy(self._outcomes).to(log_outcomes.device)
        return log_outcomes.exp()[:, chosen] * self._shares.to(log_outcomes.device)

    def values_in(self, piece: NDArray[np.int64], uniform: Tensor, params: Tensor | None) -> Floats:  # noqa: ARG002
        if not len(self._levels):
            return np.full(len(piece), np.nan)
        found = np.searchsorted(self._ends, piece + uniform.cpu().numpy(), side="right")
        levels = self._levels[np.minimum(found, len(self._levels) - 1)]
        return np.where(piece < self._numbers, levels, np.nan)

    def stratum(self, y: Floats) -> NDArray[np.int64]:
        gap = np.isnan(y)
        return np.where(gap, self._gap, self._kinds[np.where(gap, 0, y).astype(np.int64)])


class NumberLaw(ColumnLaw):
    """The law of a column of numbers. The pieces are intervals or points of the unit scale, atoms, and missing values,
    in this order."""

    def __init__(
        self, column: Column, cells: NumberCells, allowed: AllowedNumbers, knots: Floats | None = None
    ) -> None:
        self._column, self._cells = column, cells
        self.knots = KNOTS if knots is None else knots
        self._numbers = len(self.knots) + 1  # strata of numbers that are not atoms
        atoms = np.asarray(sorted(cells.atoms), np.float64)
        inside = allowed.contains(atoms)
        self._atoms, self._atom_kinds = atoms[inside], 1 + np.flatnonzero(inside)
        self._gap = allowed.gap
        points = [p for p, last in allowed.intervals if p == last and p not in cells.atoms]
        self.is_density = bool(
            cells.is_point and points and not inside.any() and not allowed.gap and len(points) == len(allowed.intervals)
        )
        self._points = np.asarray(points if self.is_density else [], np.float64)
        wide = (e for e in allowed.intervals if not (cells.is_point and e[0] == e[1]))
        spans = [self._on_scale(first, last, cut=knots is not None) for first, last in wide]
        # (J, 4): the ends on the unit scale, and the first and last plain number
        self._spans = np.concatenate([span for span in spans if len(span)] or [np.empty((0, 4))])
        low, high = cells.scale.limits
        outside = (self._points <= low) | (self._points >= high)
        self._points = self._points[~outside]
        density = cells.scale.log_density(self._points) if len(self._points) else np.empty(0)
        self._log_density = torch.from_numpy(density)
        positions = cells.scale.distances(self._points)[0] if len(self._points) else np.empty(0)
        self._positions = torch.from_numpy(positions)  # of the points on the unit scale
        self.strata = self._numbers + cells.outcomes

    def _on_scale(self, first: float, last: float, *, cut: bool) -> Floats:
        """Return the spans (J, 4) of plain numbers from ``first`` to ``last``; ``cut`` splits them at the knots."""
        column, scale = self._column, self._cells.scale
        low, high = scale.limits
        if isinstance(column, Real):
            half = 0.0
            if column.decimals is not None:  # decoding rounds, so each value also covers half a step on either side
                step = 10.0**-column.decimals
                half = step / 2
                first = first if math.isinf(first) else round(math.ceil(first / step - 1e-9) * step, column.decimals)
                last = last if math.isinf(last) else round(math.floor(last / step + 1e-9) * step, column.decimals)
                if first > last:
                    return np.empty((0, 4))
            ends = max(first - half, low), min(last + half, high)
        else:
            first, last = max(first, low), min(last, high - 1 if math.isfinite(high) else high)
            ends = first, last + 1
        if ends[0] >= ends[1]:
            return np.empty((0, 4))
        a = 0.0 if math.isinf(ends[0]) else float(scale.distances(np.array([ends[0]]))[0][0])
        b = 1.0 if math.isinf(ends[1]) else 1.0 - float(scale.distances(np.array([ends[1]]))[1][0])
        inside = self.knots[np.searchsorted(self.knots, a, side="right") : np.searchsorted(self.knots, b)]
        found = [(*ends, first, last) for ends in pairwise([a, *(inside.tolist() if cut else []), b])]
        return np.array([piece for piece in found if piece[0] < piece[1]]).reshape(-1, 4)

    @property
    def listed(self) -> Listed | None:
        numbers, middles = self._points, np.empty(0)
        if len(self._spans) and not len(self._points):
            if not self._cells.listed:
                return None
            middles = self._cells.decode(np.zeros(len(self._spans), np.int64), self._spans[:, :2].mean(1), np.empty(0))
            middles = np.clip(middles, self._spans[:, 2], self._spans[:, 3])
        values = np.concatenate([numbers, middles, self._atoms, [math.nan] * self._gap])
        return Listed(values, np.arange(len(values)) < len(middles))

    @property
    def is_impossible(self) -> bool:
        return not len(self._spans) and not len(self._points) and not len(self._atoms) and not self._gap

    @property
    def piece_strata(self) -> NDArray[np.int64]:
        middles = (self._spans[:, 0] + self._spans[:, 1]) / 2 if not len(self._points) else self._positions.numpy()
        numbers = np.searchsorted(self.knots, middles)
        gap = [self.strata - 1] * self._gap
        return np.concatenate([numbers, self._numbers + self._atom_kinds, gap]).astype(np.int64)

    def stratum(self, y: Floats) -> NDArray[np.int64]:
        cells = self._cells.encode(y)
        kind = cells[:, 0].astype(np.int64)
        stratum = np.searchsorted(self.knots, (1 + cells[:, 1] - cells[:, 2]) / 2)
        return np.where(kind == 0, stratum, self._numbers + np.maximum(kind, 0))

    def chances(self, log_outcomes: Tensor, params: Tensor | None) -> Tensor:
        outcomes = log_outcomes.exp()
        device, parts = outcomes.device, []
        number = outcomes[:, :1]
        if len(self._points):
            positions = self._positions.to(device).expand(len(outcomes), -1)
            log_slopes = torch.zeros_like(positions)
            if params is not None:
                log_slopes = unit_spline(positions, params[:, None], closed=self._cells.closed)[1]
            parts.append(number * (log_slopes + self._log_density.to(device)).exp())
        elif len(self._spans):
            parts.append(number * self._between(params, len(outcomes), device))
        parts += [outcomes[:, torch.from_numpy(self._atom_kinds).to(device)]]
        if self._gap:
            parts.append(outcomes[:, self._cells.gap : self._cells.gap + 1])
        return torch.cat(parts, dim=1)

    def _between(self, params: Tensor | None, rows: int, device: torch.device) -> Tensor:
        """Return F(b) - F(a) for every span [a, b] of the unit scale, (N, J)."""
        ends = torch.from_numpy(self._spans[:, :2].copy()).to(device)  # (J, 2)
        if params is None:
            return (ends[:, 1] - ends[:, 0]).expand(rows, -1)
        positions, inverse = torch.unique(ends, return_inverse=True)
        values = unit_spline(positions.expand(rows, -1), params[:, None], closed=self._cells.closed)[0]
        values = values[:, inverse]  # (N, J, 2)
        return (values[..., 1] - values[..., 0]).clamp(min=0)

    def values_in(self, piece: NDArray[np.int64], uniform: Tensor, params: Tensor | None) -> Floats:
        numbers = len(self._points) or len(self._spans)
        others = np.concatenate([self._atoms, [math.nan] * self._gap])
        y = others[np.clip(piece - numbers, 0, max(len(others) - 1, 0))] if len(others) else np.full(len(piece), np.nan)
        if len(self._points):
            return np.where(piece < numbers, self._points[np.minimum(piece, numbers - 1)], y)
        chosen = np.flatnonzero(piece < numbers)
        if len(chosen):
            rows = torch.from_numpy(chosen).to(uniform.device)
            spans = self._spans[piece[chosen]]  # (n, 4)
            row_params = None if params is None else params[rows]
            ends = torch.from_numpy(spans[:, :2].copy()).to(uniform.device)  # (n, 2)
            values = (
                ends if row_params is None else unit_spline(ends, row_params[:, None], closed=self._cells.closed)[0]
            )
            u = values[:, 0] + uniform[rows] * (values[:, 1] - values[:, 0]).clamp(min=0)
            if row_params is not None:
                u = unit_spline(u.clamp(0, 1), row_params, closed=self._cells.closed, inverse=True)[0]
            within = np.clip(u.cpu().numpy(), spans[:, 0], spans[:, 1])
            kind = np.zeros(len(chosen), np.int64)
            drawn = self._column.rounded(self._cells.decode(kind, within, within))
            y[chosen] = np.clip(drawn, spans[:, 2], spans[:, 3])
        return y


def column_law(column: Column, cells: Cells, allowed: Allowed, knots: Floats | None = None) -> ColumnLaw:
    """Return the conditional distribution of a column, restricted to a set. ``knots`` of [0, 1] split numbers into the
    strata of a tilt."""
    if isinstance(cells, WordCells) and isinstance(allowed, AllowedLevels):
        return WordLaw(cells, allowed)
    if isinstance(cells, NumberCells) and isinstance(allowed, AllowedNumbers):
        return NumberLaw(column, cells, allowed, knots)
    raise TypeError(f"the set {type(allowed).__name__} does not fit column {column.name!r}, which is {column.kind}")
