"""The domain of an integral, column by column, and the map from the unit cube to the domain.

A column is an interval, a circle or the real line. An interval is the unit interval, stretched. A circle is an interval
whose ends are the same point. The real line is x = center + scale tan(pi (u - 1/2)). Uniform u then gives a Cauchy
distribution, whose tails are heavier than the tails of most integrands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

# Points of the unit cube keep this distance from the cube's faces, so that no point on the real line is infinite.
EDGE = 2.0**-40


class Circle(NamedTuple):
    """A column whose two ends are the same point: an angle, an hour of the day.

    >>> Circle()
    Circle(low=0.0, high=6.283185307179586)
    """

    low: float = 0.0
    high: float = 2 * math.pi


class Line(NamedTuple):
    """A column that is the whole real line. Half of the first points are within ``scale`` of ``center``.

    >>> Line(scale=10.0)
    Line(center=0.0, scale=10.0)
    """

    center: float = 0.0
    scale: float = 1.0


Column = tuple[float, float] | Circle | Line


class Bounds:
    """The domain of an integral, from one entry for each column.

    Args:
        columns: for each column a pair (low, high), (-inf, inf), a :class:`Circle` or a :class:`Line`.

    >>> bounds = Bounds([(0, 2), (-math.inf, math.inf), Circle()])
    >>> bounds.circles
    [False, False, True]
    >>> x, log_volume = bounds.from_cube(torch.full((1, 3), 0.5, dtype=torch.float64))
    >>> x
    tensor([[1.0000, 0.0000, 3.1416]], dtype=torch.float64)
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = [_column(i, entry) for i, entry in enumerate(_entries(columns))]
        if not self.columns:
            raise ValueError("bounds is empty; give one pair (low, high) for each column of the points")
        self.circles = [isinstance(column, Circle) for column in self.columns]
        pairs = torch.tensor([[float(end) for end in column] for column in self.columns], dtype=torch.float64)
        self._line = torch.tensor([isinstance(column, Line) for column in self.columns])
        self._low, self._size = pairs[:, 0], torch.where(self._line, pairs[:, 1], pairs[:, 1] - pairs[:, 0])

    def __len__(self) -> int:
        return len(self.columns)

    def from_cube(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Map points u of the unit cube to (x, log |dx/du|): (N, D) -> (N, D), (N,)."""
        if not bool(self._line.any()):
            return self._low + self._size * u, self._size.log().sum().expand(len(u))
        angle = math.pi * (u - 0.5)
        x = self._low + self._size * torch.where(self._line, angle.tan(), u)
        log_slope = torch.where(self._line, math.log(math.pi) - 2 * angle.cos().log(), 0.0)
        return x, (log_slope + self._size.log()).sum(1)


def _entries(columns: Sequence[Column]) -> list[Column]:
    if isinstance(columns, (Circle, Line)):
        raise TypeError(f"bounds must be a sequence with one entry for each column, got {columns!r}; put it in a list")
    try:
        return list(columns)
    except TypeError:
        raise TypeError(f"bounds must be a sequence with one entry for each column, got {columns!r}") from None


def _column(i: int, entry: Column) -> Column:
    """Check one entry. Every error message names the column and says what to write instead."""
    if isinstance(entry, Line):
        if not (math.isfinite(entry.center) and 0 < entry.scale < math.inf):
            raise ValueError(f"bounds[{i}] is {entry}; its center must be finite and its scale positive and finite")
        return entry
    try:
        low, high = (float(end) for end in entry)
    except (TypeError, ValueError):
        raise TypeError(
            f"bounds[{i}] must be a pair of numbers (low, high), a Circle or a Line, got {entry!r}"
        ) from None
    if math.isnan(low) or math.isnan(high):
        raise ValueError(f"bounds[{i}] = ({low:g}, {high:g}) holds NaN; give two numbers")
    if low > high:
        raise ValueError(f"bounds[{i}] = ({low:g}, {high:g}) is reversed; write ({high:g}, {low:g})")
    if low == high and math.isinf(low):
        raise ValueError(f"bounds[{i}] = ({low:g}, {high:g}) is not an interval; use (-inf, inf) for the whole line")
    if low == high:
        raise ValueError(f"bounds[{i}] = ({low:g}, {high:g}) has width 0; leave the column out, or widen it")
    if isinstance(entry, Circle) and math.isinf(high - low):
        raise ValueError(f"bounds[{i}] is {entry}; a circle needs two finite ends")
    if (low, high) == (-math.inf, math.inf):
        return Line()
    if math.isinf(low) or math.isinf(high):
        half_line = f"{high:g} - t / (1 - t)" if math.isinf(low) else f"{low:g} + t / (1 - t)"
        raise ValueError(
            f"bounds[{i}] = ({low:g}, {high:g}) is infinite on one side; substitute x = {half_line}, multiply f by "
            "1 / (1 - t)^2 and give (0, 1) as the bounds of t, or use (-inf, inf) for all of the line"
        )
    if math.isinf(high - low):
        raise ValueError(f"bounds[{i}] = ({low:g}, {high:g}) is too wide for float64; use (-inf, inf), or narrow it")
    return Circle(low, high) if isinstance(entry, Circle) else (low, high)
