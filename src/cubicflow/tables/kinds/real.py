"""Columns of numbers without a step, on a line or on a circle, with a density per unit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa

from cubicflow.saved import Range
from cubicflow.tables.arrow_types import Floats, decimal_range, floats_as
from cubicflow.tables.kinds.column import Bounds, Column, Evidence, median_and_spread, requested_map
from cubicflow.tables.kinds.facts import LARGEST
from cubicflow.tables.kinds.gridded import Gridded, ring_grid
from cubicflow.tables.maps import Scaled
from cubicflow.tables.table_error import TableError

HEAVY = 1000.0  # spreads from the median; with longer tails, standardising would squeeze most values into one point


@dataclass(frozen=True, kw_only=True)
class Real(Column):
    """Numbers without a step, with a density per unit.

    Attributes:
        decimals: samples are rounded to so many decimals; None keeps all digits.
        ends: the two ends of a circle, one turn apart; they are the same point. Values that differ by a whole turn are
            equal, and are returned in [first end, second end). None for a line.

    >>> Real("angle", "double", ends=(-180.0, 180.0)).numbers(pa.array([190.0, 180.0, -10.0])).tolist()
    [-170.0, -180.0, -10.0]
    """

    counts_mass: ClassVar[bool] = False

    decimals: Annotated[int, Range(0, 30)] | None = None
    ends: Bounds | None = None
    kind: str = "real"

    @property
    def turn(self) -> Bounds | None:
        return self.ends

    def settle(self, seen: Evidence) -> tuple[Column, list[str]]:
        if self.about.is_circle:
            return self._circle(seen), []
        values = self.encode(seen.sample.column(self.name).combine_chunks())
        smallest, largest, note = seen.facts.smallest, seen.facts.largest, None
        if seen.transform is not None:
            shape = requested_map(seen.transform, self, smallest, values)
        elif seen.bounds is not None:
            low, high = seen.bounds
            if smallest <= low or largest >= high:
                raise TableError(
                    f"column {self.name!r} runs from {smallest:.9g} to {largest:.9g}, on or beyond the bounds {low:g}:"
                    f"{high:g}; give bounds that lie outside of all values"
                )
            ends = [end if math.isfinite(end) else None for end in seen.bounds]
            shape = Scaled("bounded", low=ends[0], high=ends[1])
        else:
            shape, note = self.shape(smallest, largest, values)
        return replace(self, map=shape), [note] if note else []

    def _circle(self, seen: Evidence) -> Column:
        """Return the circle with the ends that the user gave; one of steps if the values and a turn have a step."""
        if seen.transform is not None:
            raise TableError(f"column {self.name!r} is circular, so it takes no transform; leave {seen.transform} out")
        if seen.bounds is None or not all(map(math.isfinite, seen.bounds)):
            raise TableError(
                f"column {self.name!r} is circular; give the length of a turn",
                kinds={self.name: "circular:24"},
            )
        ring = ring_grid(seen.facts.finder.grid(), seen.bounds)
        if ring is not None:
            return Gridded(self.name, self.type, self.role, grid=ring, kind="circular steps")
        type = "double" if pa.types.is_integer(self.arrow_type) else self.type
        return replace(self, type=type, ends=seen.bounds)

    def shape(self, smallest: float, largest: float, sample: Floats) -> tuple[Scaled, str | None]:
        """Return a default transform, without mean and std, for values in [smallest, largest], and a remark or None.

        The transform is asinh for very long tails, and the identity otherwise.
        """
        centre, spread = median_and_spread(sample)
        if max(largest - centre, centre - smallest) <= HEAVY * spread:
            return Scaled(), None
        return Scaled("asinh", centre=centre, scale=spread), (
            f"{self.name!r} has very long tails ({smallest:.3g} to {largest:.3g}, half of the values within "
            f"{spread:.3g} of {centre:.3g}), so it is transformed by asinh"
        )

    def numbers(self, array: pa.Array, *, strict: bool = True) -> Floats:  # noqa: ARG002 - always strict
        return self._wrapped(self.finite(array))

    def unwrapped(self, array: pa.Array) -> Floats:
        return self.finite(array)

    def _wrapped(self, values: Floats) -> Floats:
        """Return points of a circle as numbers in [first end, second end)."""
        if self.ends is None:
            return values
        low, high = self.ends
        inside = low + np.mod(values - low, high - low)
        return np.where(inside < high, inside, low)  # a value just below `low` can round to `high`

    def rounded(self, y: Floats) -> Floats:
        if self.decimals is None:
            return self._wrapped(y)
        nearest = np.round(y, self.decimals)
        if self.ends is None:
            return nearest
        first, last, closes = self._written_ends
        return self._wrapped(nearest if closes else np.clip(nearest, first, last))

    def written(self, first: float, last: float) -> list[tuple[float, float, float, float]]:
        """Return the intervals of numbers that round to a value from ``first`` to ``last``, for a column with decimals.

        On a circle, half a unit of the last decimal lies across the seam if the seam is itself a value.

        >>> Real("x", "double", decimals=1).written(0.93, 1.2)
        [(0.95, 1.25, 1.0, 1.2)]
        >>> Real("angle", "double", ends=(0.0, 360.0), decimals=1, kind="circular").written(0.0, 0.5)
        [(359.95, 360.0, 0.0, 0.0), (0.0, 0.55, 0.0, 0.5)]
        """
        half = 0.5 / 10.0 ** (self.decimals or 0)
        if self.ends is None:
            first, last = self._value_from(first), self._value_to(last)
            return [(first - half, last + half, first, last)] if first <= last else []
        smallest, largest, closes = self._written_ends
        first, last = self._value_from(max(first, smallest)), self._value_to(min(last, largest))
        if first > last:
            return []
        low, high = self.ends
        begins, stops = first == smallest, last == largest
        inside = low if begins else first - half, high if stops and not closes else last + half, first, last
        return [(high - half, high, first, first), inside] if begins and closes else [inside]

    @cached_property
    def _written_ends(self) -> tuple[float, float, bool]:
        """The smallest and the largest value of a circle with the column's decimals, and whether both ends have such
        decimals."""
        low, high = self.ends or (-math.inf, math.inf)
        smallest, largest = self._value_from(low), self._value_to(math.nextafter(high, low))
        return smallest, largest, smallest == low and self._value_from(high) == high

    def _value_from(self, y: float) -> float:
        """Return the smallest value with the column's decimals that is at least y."""
        return min((value for value in self._values_beside(y) if value >= y), default=y)

    def _value_to(self, y: float) -> float:
        """Return the largest value with the column's decimals that is at most y."""
        return max((value for value in self._values_beside(y) if value <= y), default=y)

    def _values_beside(self, y: float) -> list[float]:
        """Return the values beside y; none if y is so large that float64 has no such decimals."""
        scaled = y * 10.0 ** (self.decimals or 0)
        if not abs(scaled) < LARGEST:
            return []
        return [self._value(round(scaled) + i) for i in (-1, 0, 1)]

    def _value(self, units: int) -> float:
        """Return the value of a number of units of the last decimal."""
        value = units / 10.0 ** (self.decimals or 0)
        if self.ends is not None and self.ends[0] <= value < self.ends[1]:
            return float(self._wrapped(np.array([value]))[0])
        return value

    def decode(self, y: Floats) -> pa.Array:
        type = self.arrow_type
        if self.ends is not None:
            values = self.rounded(y)
            values = values if self.decimals is None else np.round(values, self.decimals)  # wrapping rounds too
            return floats_as(values, type, self.decimals)
        digits = type.scale if self.decimals is None and pa.types.is_decimal(type) else self.decimals
        with np.errstate(over="ignore"):  # np.round overflows near the largest float64
            values = y if digits is None else np.round(y, digits)
        return floats_as(np.clip(values, *self._range(digits)), type, digits)

    def _range(self, digits: int | None) -> tuple[float, float]:
        """Return the smallest and the largest sample with ``digits`` decimals; None keeps all digits.

        Both lie strictly within the limits of the map, and the column's type holds both exactly. Rounding is monotone,
        so a number between them stays between them when it is rounded to the digits or to the type.
        """
        low, high = (-math.inf, math.inf) if self.map is None else self.map.limits
        return _first_above(low, self.arrow_type, digits), -_first_above(-high, self.arrow_type, digits)

    def check(self) -> None:
        super().check()
        if self.ends is not None and not (0 < self.ends[1] - self.ends[0] < math.inf):
            raise ValueError(f"the first end of a circle should be below the second, got {self.ends}")

    expected_values = "numbers"
    likelihood_term = "density per unit"


def _first_above(low: float, type: pa.DataType, digits: int | None) -> float:
    """Return the first number of the type above ``low`` with ``digits`` decimals; None for all digits."""
    number: Any = {pa.float16(): np.float16, pa.float32(): np.float32}.get(type, np.float64)
    smallest = float(np.finfo(number).min)
    if pa.types.is_decimal(type):
        smallest = float(decimal_range(type)[0])
    if low < smallest:
        return smallest
    if digits is not None:
        # Fraction(repr()) is exact for the limit as it is written: 0.3 is 3 / 10, not the nearest binary number
        step = 10**digits
        first = number((math.floor(Fraction(repr(float(low))) * step) + 1) / step)
        if first > low:
            return float(first)
    first = number(low)
    for _ in range(2):  # the limit rounded to the type may lie below the limit: take up to two steps up
        first = first if first > low else np.nextafter(first, number(math.inf))
    return float(first)
