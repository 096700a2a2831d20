"""Circular columns: angles, hours of the day, days of the year. The two ends of the range are the same point."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from cubicflow.tables.arrow_types import Floats, floats_as, type_name
from cubicflow.tables.kinds.column import Bounds, Column, Evidence, Facts, Parsers, Role, cannot_be
from cubicflow.tables.kinds.facts import Codes, Grid
from cubicflow.tables.kinds.gridded import Gridded
from cubicflow.tables.kinds.real import MOST_DIGITS, Real
from cubicflow.tables.kinds.stepped import MOST_STEPS
from cubicflow.tables.maps import CodeCounts
from cubicflow.tables.table_error import TableError


def _parse_ends(value: Any) -> Bounds:
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(end, int | float) for end in value):
        raise ValueError(f"the ends of a circle should be two numbers, got {str(value)[:80]}")
    low, high = map(float, value)
    if not (math.isfinite(high - low) and low < high):
        raise ValueError(f"the ends of a circle should be finite, the first below the second, got {low} and {high}")
    return low, high


class CircularColumn(Column):
    """A column whose plain numbers lie on a circle."""

    is_circle: ClassVar[bool] = True

    @property
    @abstractmethod
    def turn(self) -> Bounds:
        """The plain numbers of the two ends of the range. All plain numbers lie below the second end."""

    @property
    @abstractmethod
    def ends(self) -> Bounds:
        """The values of the two ends."""

    @abstractmethod
    def unwrapped(self, array: pa.Array) -> Floats:
        """Return plain numbers that may be whole turns away from the range, of values that :meth:`read` returned."""


@dataclass(frozen=True, kw_only=True)
class Circular(Real, CircularColumn):
    """Numbers on a circle, with a density per unit. Values that differ by a whole turn are equal.

    Attributes:
        ends: the two ends of the range, one turn apart; they are the same point. Values are returned in
            [first end, second end).

    >>> Circular("angle", "double", ends=(-180.0, 180.0)).numbers(pa.array([190.0, 180.0, -10.0])).tolist()
    [-170.0, -180.0, -10.0]
    """

    kind: ClassVar[str] = "circular"
    roles: ClassVar[tuple[Role, ...]] = ("model", "context")
    json_parsers: ClassVar[Parsers] = {**Real.json_parsers, "ends": _parse_ends}

    ends: Bounds = (0.0, 1.0)

    @property
    def turn(self) -> Bounds:
        return self.ends

    @classmethod
    def infer(cls, facts: Facts, requested_kind: type[Column] | None, role: Role) -> Column | None:
        if requested_kind is not cls:
            return None
        if not cls.accepts_type(facts.type):
            raise cannot_be(facts, cls)
        known = not facts.finder.no_grid and 0 < facts.finder.decimals <= MOST_DIGITS
        return cls(facts.name, type_name(facts.type), role, decimals=facts.finder.decimals if known else None)

    def settle(self, seen: Evidence) -> tuple[Column, list[str]]:
        if seen.transform is not None:
            raise TableError(f"column {self.name!r} is circular, so it takes no transform; leave {seen.transform} out")
        if seen.bounds is None or not all(map(math.isfinite, seen.bounds)):
            raise TableError(
                f"column {self.name!r} is circular; give the length of a turn",
                kinds={self.name: "circular:24"},
            )
        column = replace(self, ends=seen.bounds)
        ring = ring_grid(seen.facts.finder.grid(), seen.bounds)
        if ring is not None:
            return CircularSteps(self.name, self.type, self.role, grid=ring), []
        return (replace(column, type="double") if pa.types.is_integer(self.arrow_type) else column), []

    def numbers(self, array: pa.Array) -> Floats:
        return self.wrapped(self.unwrapped(array))

    def unwrapped(self, array: pa.Array) -> Floats:
        return self.finite(array)

    def wrapped(self, values: Floats) -> Floats:
        """Return the same points as numbers in [first end, second end)."""
        low, high = self.ends
        inside = low + np.mod(values - low, high - low)
        return np.where(inside < high, inside, low)  # a value just below `low` can round to `high`

    def rounded(self, y: Floats) -> Floats:
        if self.decimals is None:
            return self.wrapped(y)
        first, last, closes = self._written_ends
        nearest = np.round(y, self.decimals)
        return self.wrapped(nearest if closes else np.clip(nearest, first, last))

    def decode(self, y: Floats) -> pa.Array:
        values = super().rounded(self.rounded(y))  # wrapping adds rounding errors
        return floats_as(values, self.arrow_type, self.decimals)

    def written(self, first: float, last: float) -> list[tuple[float, float, float, float]]:
        """Return the intervals of numbers that round to a value from ``first`` to ``last``, for a column with decimals.

        Half a unit of the last decimal lies across the seam if the seam is itself a value.

        >>> Circular("angle", "double", ends=(0.0, 360.0), decimals=1).written(0.0, 0.5)
        [(359.95, 360.0, 0.0, 0.0), (0.0, 0.55, 0.0, 0.5)]
        """
        smallest, largest, closes = self._written_ends
        first, last = self._value_from(max(first, smallest)), self._value_to(min(last, largest))
        if first > last:
            return []
        (low, high), half = self.ends, self._half
        begins, stops = first == smallest, last == largest
        inside = low if begins else first - half, high if stops and not closes else last + half, first, last
        return [(high - half, high, first, first), inside] if begins and closes else [inside]

    @cached_property
    def _written_ends(self) -> tuple[float, float, bool]:
        """The smallest and the largest value with the column's decimals, and whether both ends have such decimals."""
        low, high = self.ends
        smallest, largest = self._value_from(low), self._value_to(math.nextafter(high, low))
        return smallest, largest, smallest == low and self._value_from(high) == high

    def _value(self, units: int) -> float:
        value = super()._value(units)
        return float(self.wrapped(np.array([value]))[0]) if self.ends[0] <= value < self.ends[1] else value


@dataclass(frozen=True, kw_only=True)
class CircularSteps(Gridded, CircularColumn):
    """Numbers on a circle at a fixed resolution, such as hours: a mass per step. ``grid`` spans one turn."""

    kind: ClassVar[str] = "circular steps"

    @classmethod
    def infer(cls, facts: Facts, requested_kind: type[Column] | None, role: Role) -> None:
        """Return None: only :meth:`Circular.settle` makes this kind."""

    def learn(self, counts: CodeCounts, rows: int, bounds: Bounds | None) -> CircularSteps:  # noqa: ARG002
        return self

    @property
    def turn(self) -> Bounds:
        return 0.0, float(self.grid.count)

    @property
    def ends(self) -> Bounds:
        low, high = self.grid.values(np.array([0, self.grid.count])).tolist()
        return low, high

    def numbers(self, array: pa.Array) -> Floats:
        return np.mod(self.unwrapped(array), self.grid.count)

    def unwrapped(self, array: pa.Array) -> Floats:
        return super().numbers(array)

    def decode(self, y: Floats) -> pa.Array:
        return self.from_codes(np.mod(np.floor(y), self.grid.count).astype(np.int64))

    def from_codes(self, codes: Codes) -> pa.Array:
        if pa.types.is_integer(self.arrow_type):
            return super().from_codes(codes)
        return floats_as(self.grid.values(codes), self.arrow_type, self.grid.decimals)

    @property
    def decimals(self) -> int | None:
        return None if pa.types.is_integer(self.arrow_type) else self.grid.decimals

    def check(self) -> None:
        super().check()
        if self.grid.count > MOST_STEPS:
            raise ValueError(f"a turn has {self.grid.count} steps, more than {MOST_STEPS}")


def ring_grid(seen: Grid | None, ends: Bounds) -> Grid | None:
    """Return the grid of one turn, starting at the first end.

    Returns None if the values and the turn have no common step, or if that step is tiny. ``seen`` is the grid of the
    observed values, or None.

    >>> ring_grid(Grid(1, 1, 0, 22), (0.0, 24.0))
    Grid(origin=0, step=1, decimals=0, count=24)
    >>> ring_grid(Grid(1, 1, 0, 6), (0.0, 2 * math.pi)) is None
    True
    """
    if seen is None:
        return None
    low, high = (end * 10.0**seen.decimals for end in ends)
    if low != round(low) or high != round(high):
        return None
    origin, turn = round(low), round(high) - round(low)
    step = math.gcd(seen.step, turn, seen.origin - origin)
    return Grid(origin, step, seen.decimals, turn // step) if turn // step <= MOST_STEPS else None
