"""Real numbers: a density per unit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from cubicflow.tables.arrow_types import Floats, decimal_range, floats_as, type_name
from cubicflow.tables.kinds.column import Column, Evidence, Facts, Parsers, Quantity, Role, middle
from cubicflow.tables.maps import Scaled
from cubicflow.tables.table_error import TableError

MOST_DIGITS = 8  # decimals kept in samples; more of them are noise
HEAVY = 1000.0  # spreads from the median; beyond, most of a standardised column would be a single point
SPIKE = 0.05  # of the rows at one value make a density that no flow can follow


def _digits(decimals: Any) -> Any:
    if decimals is not None and (not isinstance(decimals, int) or not 0 <= decimals <= 30):
        raise ValueError(f"its samples have {decimals!r} decimals")
    return decimals


@dataclass(frozen=True, kw_only=True)
class Real(Quantity):
    """Numbers without a step. ``decimals`` are the digits that samples are rounded to; None for all."""

    kind: ClassVar[str] = "real"
    roles: ClassVar[tuple[Role, ...]] = ("model", "context", "weights")
    counts_mass: ClassVar[bool] = False
    own: ClassVar[Parsers] = {"decimals": _digits}

    decimals: int | None = None

    @classmethod
    def infer(cls, facts: Facts, told: type[Column] | None, role: Role) -> Column | None:  # noqa: ARG003
        known = not facts.finder.lost and 0 < facts.finder.decimals <= MOST_DIGITS
        type = "double" if pa.types.is_integer(facts.type) else type_name(facts.type)
        return cls(facts.name, type, role, decimals=facts.finder.decimals if known else None)

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
        return replace(self, map=shape), [
            remark for remark in (note, None if seen.atoms else self._spike(values)) if remark
        ]

    def shape(self, smallest: float, largest: float, sample: Floats) -> tuple[Scaled, str | None]:
        """The shape that suits values with these ends, without its mean and std, and a remark where it is unusual."""
        centre, spread = middle(sample)
        if max(largest - centre, centre - smallest) <= HEAVY * spread:
            return Scaled(), None
        return Scaled("asinh", centre=centre, scale=spread), (
            f"{self.name!r} has very long tails ({smallest:.3g} to {largest:.3g}, half of it within {spread:.3g} of "
            f"{centre:.3g}), so it is shaped by asinh"
        )

    def _spike(self, values: Floats) -> str | None:
        """A warning if many rows share one value."""
        distinct, counts = np.unique(values, return_counts=True)
        share = counts.max() / len(values)
        if share < SPIKE:
            return None
        return (
            f"{share:.0%} of {self.name!r} is exactly {distinct[counts.argmax()]:g}: a density is infinite there, so "
            "its likelihood means little; consider modelling those rows apart"
        )

    def numbers(self, array: pa.Array) -> Floats:
        return self.finite(array)

    def rounded(self, y: Floats) -> Floats:
        return y if self.decimals is None else np.round(y, self.decimals)

    def decode(self, y: Floats) -> pa.Array:
        type = self.arrow_type
        digits = type.scale if self.decimals is None and pa.types.is_decimal(type) else self.decimals
        with np.errstate(over="ignore"):  # digits after the point of a number near the largest
            values = y if digits is None else np.round(y, digits)
        return floats_as(np.clip(values, *self._range(digits)), type, digits)

    def _range(self, digits: int | None) -> tuple[float, float]:
        """The smallest and the largest sample with so many digits after the point; None for all digits.

        Both lie strictly within the limits, and both are numbers of the column's type, so that neither rounding to the
        digits nor to the type can carry what lies between them to a limit.
        """
        low, high = (-math.inf, math.inf) if self.map is None else self.map.limits
        return _first_above(low, self.arrow_type, digits), -_first_above(-high, self.arrow_type, digits)

    words = "numbers"
    counted = "density per unit"


def _first_above(low: float, type: pa.DataType, digits: int | None) -> float:
    number: Any = {pa.float16(): np.float16, pa.float32(): np.float32}.get(type, np.float64)
    smallest = float(np.finfo(number).min)
    if pa.types.is_decimal(type):
        smallest = float(decimal_range(type)[0])
    if low < smallest:
        return smallest
    if digits is not None:
        # exact, from the limit as it is written: 0.3 is 3 / 10, not the nearest binary number
        step = 10**digits
        first = number((math.floor(Fraction(repr(float(low))) * step) + 1) / step)
        if first > low:
            return float(first)
    first = number(low)
    for _ in range(2):  # the type's nearest number to the limit may lie below it
        first = first if first > low else np.nextafter(first, number(math.inf))
    return float(first)
