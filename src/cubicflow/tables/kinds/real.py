"""Real columns: numbers without a step, with a density per unit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from cubicflow.tables.arrow_types import Floats, decimal_range, floats_as, type_name
from cubicflow.tables.kinds.column import Column, Evidence, Facts, Parsers, Quantity, Role, median_and_spread
from cubicflow.tables.kinds.facts import LARGEST
from cubicflow.tables.maps import Scaled
from cubicflow.tables.table_error import TableError

MOST_DIGITS = 8  # decimals of samples; numbers with more decimals are not rounded
HEAVY = 1000.0  # spreads from the median; with longer tails, standardising would squeeze most values into one point


def _parse_decimals(decimals: Any) -> Any:
    if decimals is not None and (not isinstance(decimals, int) or not 0 <= decimals <= 30):
        raise ValueError(f"decimals should be a whole number from 0 to 30, got {decimals!r}")
    return decimals


@dataclass(frozen=True, kw_only=True)
class Real(Quantity):
    """Numbers without a step. Samples are rounded to ``decimals`` decimals; None keeps all digits."""

    kind: ClassVar[str] = "real"
    roles: ClassVar[tuple[Role, ...]] = ("model", "context", "weights")
    counts_mass: ClassVar[bool] = False
    json_parsers: ClassVar[Parsers] = {"decimals": _parse_decimals}

    decimals: int | None = None

    @classmethod
    def infer(cls, facts: Facts, requested_kind: type[Column] | None, role: Role) -> Column | None:  # noqa: ARG003
        known = not facts.finder.no_grid and 0 < facts.finder.decimals <= MOST_DIGITS
        type = "double" if pa.types.is_integer(facts.type) else type_name(facts.type)
        decimals = facts.finder.decimals if known else 0 if facts.too_large_for_steps else None
        return cls(facts.name, type, role, decimals=decimals)

    def settle(self, seen: Evidence) -> tuple[Column, list[str]]:
        values = self.encode(seen.sample.column(self.name).combine_chunks())
        smallest, largest, note = seen.facts.smallest, seen.facts.largest, None
        if seen.transform is not None:
            shape = self.transformed(seen.transform, smallest, values, start=0.0, unit=1.0)
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

    def numbers(self, array: pa.Array) -> Floats:
        return self.finite(array)

    def rounded(self, y: Floats) -> Floats:
        return y if self.decimals is None else np.round(y, self.decimals)

    def written(self, first: float, last: float) -> list[tuple[float, float, float, float]]:
        """Return the intervals of numbers that round to a value from ``first`` to ``last``, for a column with decimals.

        Each interval is its two ends, its first and its last value.

        >>> Real("x", "double", decimals=1).written(0.93, 1.2)
        [(0.95, 1.25, 1.0, 1.2)]
        """
        first, last, half = self._value_from(first), self._value_to(last), self._half
        return [(first - half, last + half, first, last)] if first <= last else []

    @property
    def _half(self) -> float:
        return 0.5 / 10.0 ** (self.decimals or 0)

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
        return units / 10.0 ** (self.decimals or 0)

    def decode(self, y: Floats) -> pa.Array:
        type = self.arrow_type
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
