"""The law of a column: its distribution given earlier columns, for each of N rows.

The network of a row gives the log probability of every outcome, and the params of a spline. A set is a few cells
(:mod:`cubicflow.tables.laws.coder`), and each cell has one formula: the probability of its outcome, times its share of
the outcome or the mass of its interval under the row's spline (:mod:`cubicflow.tables.laws.masses`). The probability
of the set is the sum. All of this is done with logarithms, so a probability of 1e-190 has as many correct digits as one
of 0.1. Everything is float64.

A rule or a sum can fix the number of a row. Then all other numbers have probability 0, or share the rule's ``slack``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.laws.coder import Coder, SetCells
from cubicflow.tables.laws.masses import NARROW, NARROW_IF_ROUNDED, log_slopes, masses_of, unit_spline

LARGEST = 1e300  # stands for an infinite number in a difference


class Drawn(NamedTuple):
    """Drawn plain numbers (N,) and their log weights (N,)."""

    y: Floats
    log_weight: Floats


@dataclass(frozen=True)
class Law:
    """The distribution of one column given earlier columns, for each of N rows.

    Sets are given by their cells, which the column's coder makes of one set for all rows or of a set for each row.
    No set holds unseen values.

    Attributes:
        coder: the coder of the column.
        log_outcomes: the log probabilities of the outcomes, (N, outcomes).
        params: the params of the splines, (N, P); None for a column without splines.
        fixed: the number that earlier columns determine, (N,); inf where they determine none, -inf where they leave no
            number. None for no rows.
        slack: the probability that a row breaks the rule behind ``fixed``.
        is_rounded: whether the params have been rounded to float32. Then masses are right to about seven digits.
    """

    coder: Coder
    log_outcomes: Tensor
    params: Tensor | None
    fixed: Floats | None = None
    slack: float = 0.0
    is_rounded: bool = False

    def __len__(self) -> int:
        return len(self.log_outcomes)

    def take(self, rows: NDArray[np.int64] | slice) -> Law:
        """Return the laws of some rows, in float64."""
        which = rows if isinstance(rows, slice) else torch.from_numpy(rows).to(self.log_outcomes.device)
        params = None if self.params is None else self.params[which].double()
        fixed = None if self.fixed is None else self.fixed[rows]
        return replace(self, log_outcomes=self.log_outcomes[which].double(), params=params, fixed=fixed)

    def room(self, rows: int) -> Law:
        """Return laws of the same column for ``rows`` rows, in half of the memory, to be set by :meth:`put`.

        :meth:`take` converts them to float64.
        """

        def empty(like: Tensor) -> Tensor:
            return like.new_empty(rows, like.shape[1], dtype=torch.float32)

        params = None if self.params is None else empty(self.params)
        fixed = None if self.fixed is None else np.empty(rows)
        return Law(self.coder, empty(self.log_outcomes), params, fixed, self.slack, is_rounded=True)

    def put(self, rows: slice, laws: Law) -> None:
        """Set the laws of some rows."""
        self.log_outcomes[rows] = laws.log_outcomes.float()
        if self.params is not None and laws.params is not None:
            self.params[rows] = laws.params.float()
        if self.fixed is not None and laws.fixed is not None:
            self.fixed[rows] = laws.fixed

    def without_gap(self) -> Law:
        """Return the law given that the value is present."""
        if not self.coder.cells.gaps:
            return self
        kept = self.log_outcomes.clone()
        kept[:, self.coder.cells.gap] = -math.inf
        fixed = None if self.fixed is None else np.where(np.isnan(self.fixed), np.inf, self.fixed)
        return replace(self, log_outcomes=torch.log_softmax(kept, dim=1), fixed=fixed)

    def log_p(self, cells: SetCells) -> Tensor:
        """Return the log probabilities (N, J) of all cells, without fixed numbers; log densities of points."""
        outcome = torch.from_numpy(cells.outcome).to(self.log_outcomes.device)
        found = self.log_outcomes[:, outcome[0]] if len(outcome) == 1 else self.log_outcomes.gather(1, outcome)
        found = found + torch.from_numpy(cells.log_size).to(found.device)
        for here, within in self._within(cells):
            found[:, here] += within.log().T
        return found

    def log_mass(self, within: SetCells) -> Floats:
        """Return the log probability (N,) that the column lies in the set of each row; log densities of points."""
        found: Floats = torch.logsumexp(self.log_p(within), 1).cpu().numpy()
        return self._with_fixed(found, within)

    def masses(self, sets: SetCells) -> Floats:
        """Return the probability (N, V) of each of V sets in each row; densities of points."""
        cells, owner = sets.flattened()
        outcome, size, place = (
            torch.from_numpy(each).to(self.log_outcomes.device)
            for each in (cells.outcome[0], np.exp(cells.log_size.T), owner)
        )
        p = self.log_outcomes.T.exp()[outcome] * size  # (J, N)
        for here, within in self._within(cells):
            p[here] *= within
        found = p.new_zeros(len(sets.fields), len(self)).index_add_(0, place, p).T
        result: Floats = found.cpu().numpy()
        if self.fixed is None:
            return result
        kept = (1 - self.slack) * sets.sets.membership(self.fixed) + self.slack * result
        return np.where(np.isposinf(self.fixed)[:, None], result, kept)

    def draw(self, within: SetCells, generator: torch.Generator, log_tilt: Floats | None = None) -> Drawn:
        """Draw a plain number of the set for every row, and return it with its log weight.

        Without a tilt the weight is the probability of the set. ``log_tilt``, (1, J) or (N, J), multiplies the
        probabilities of cells before one cell is drawn. The weight divides by it, so weighted draws have the same
        distribution under every tilt. A row with a fixed number in its set gets that number.
        """
        log_p = self.log_p(within)
        tilt = torch.zeros(()) if log_tilt is None else torch.from_numpy(log_tilt).to(log_p.device)
        tilted = log_p + tilt
        total = torch.logsumexp(tilted, 1)
        shares = (tilted - total.clamp(min=-LARGEST)[:, None]).exp()
        uniform = torch.rand(len(self), 2, generator=generator, device=log_p.device, dtype=torch.float64)
        ends = shares.cumsum(1)
        chosen = (ends <= uniform[:, :1] * ends[:, -1:]).sum(1).clamp(max=log_p.shape[1] - 1)
        log_weight = (total - tilt.expand_as(log_p).gather(1, chosen[:, None])[:, 0]).cpu().numpy()
        cell = chosen.cpu().numpy()
        own = within.fields[0][cell] if len(within.fields) == 1 else within.fields[np.arange(len(cell)), cell]
        y = self.coder.numbers(own, uniform[:, 1], self.params)
        if self.fixed is not None:
            y = np.where(within.sets.contains(self.fixed) & ~np.isposinf(self.fixed), self.fixed, y)
        return Drawn(y, self._with_fixed(log_weight, within))

    def _within(self, cells: SetCells) -> Iterator[tuple[slice, Tensor]]:
        """Yield which cells are intervals, and their masses (J, N) under the splines; then points, and their slopes."""
        one_for_all, closed = len(cells.fields) == 1, self.coder.cells.closed
        low, high, log_width = np.moveaxis(cells.fields[0] if one_for_all else cells.fields, -1, 0)[1:4]
        if cells.intervals:
            here = slice(0, cells.intervals)
            narrow = NARROW_IF_ROUNDED if self.is_rounded else NARROW
            a, b, log_w = (each[..., here] for each in (low, high, log_width))
            yield here, masses_of(a, b, log_w, self.params, closed=closed, narrow=narrow).to(self.log_outcomes.device)
        if cells.points and self.params is not None:
            here = slice(cells.intervals, cells.intervals + cells.points)
            ends = (torch.from_numpy(np.atleast_2d(each[..., here]).T).to(self.params.device) for each in (low, high))
            first, last = (each.expand(-1, len(self)) for each in ends)
            yield here, log_slopes(first, last, self.params, closed=closed).exp()

    def _with_fixed(self, log_weight: Floats, within: SetCells) -> Floats:
        """Return the log probabilities of sets, corrected in rows with a fixed number."""
        if self.fixed is None:
            return log_weight
        with np.errstate(divide="ignore"):
            kept = np.log((1 - self.slack) * within.sets.contains(self.fixed))
            kept = np.logaddexp(kept, math.log(self.slack) + log_weight) if self.slack else kept
        return np.where(np.isposinf(self.fixed), log_weight, kept)

    def distribution(self, u: Tensor) -> Tensor:
        """Return the distribution function (N, U) of numbers at places u (U,) of the column's unit scale."""
        if self.params is None:
            return u.expand(len(self), -1)
        closed = self.coder.cells.closed
        return unit_spline(u.expand(len(self), -1), self.params[:, None], closed=closed)[0]
