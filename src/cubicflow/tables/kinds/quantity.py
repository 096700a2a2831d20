"""Columns whose values are places on a line: numbers and dates."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import pyarrow as pa

from cubicflow.tables.arrow_types import Floats, floats, is_number
from cubicflow.tables.kinds.column import Column, first_shown
from cubicflow.tables.maps import Scaled
from cubicflow.tables.table_error import TableError

ABSURD = 1e12  # standard deviations; the square of much more is no float32


class Quantity(Column):
    """A column of numbers or dates, which may be given a shape before it is standardised."""

    def encode(self, array: pa.Array) -> Floats:
        array = self.read(array)
        return self._within_limits(self.numbers(array), array)

    @abstractmethod
    def numbers(self, array: pa.Array) -> Floats:
        """y of values of the column's own family of types, whatever its limits."""

    @classmethod
    def holds(cls, type: pa.DataType) -> bool:
        return is_number(type)

    def finite(self, array: pa.Array) -> Floats:
        """The values as float64, if none is infinite."""
        values = floats(array)
        infinite = ~np.isfinite(values)
        if infinite.any():
            raise TableError(f"column {self.name!r} holds {int(infinite.sum())} infinite values; remove those rows")
        return values

    def transformed(self, transform: str, smallest: float, sample: Floats, *, start: float, unit: float) -> Scaled:
        """The shape that the user asked for, of ``start`` + ``unit`` y."""
        if transform == "log":
            # a step from 0 to 1 has a logarithm, the number 0 has none
            if smallest < 0 or (smallest == 0 and not self.counts_mass):
                raise TableError(
                    f"column {self.name!r} holds {smallest:g}, which has no logarithm; give bounds whose lower end lies "
                    "below all values, or transform it by asinh instead",
                    f"--transform {self.name}=asinh",
                )
            return Scaled("log", start=start, unit=unit)
        centre, spread = middle(sample)
        return Scaled("asinh", centre=centre, scale=spread, start=start, unit=unit)

    def _within_limits(self, y: Floats, array: pa.Array) -> Floats:
        if self.map is None or not y.size:
            return y
        low, high = self.map.limits
        # a code is the left end of its step; a value with a density must lie strictly inside
        outside = (y < low) | (y >= high) if self.counts_mass else (y <= low) | (y >= high)
        if outside.any():
            raise TableError(
                f"column {self.name!r} holds {int(outside.sum())} values outside of its range as fitted, the first is "
                f"{first_shown(array, outside)}; leave those rows out, or fit again and widen the bounds",
                f"--bounds {self.name}=LOW:HIGH",
            )
        ends = np.array([y.argmin(), y.argmax()])  # the map is increasing
        absurd = np.zeros(len(y), dtype=np.bool_)
        absurd[ends] = np.abs(self.map.forward(y[ends] + self.middle)[0]) > ABSURD
        if absurd.any():
            raise TableError(
                f"column {self.name!r} holds {first_shown(array, absurd)}, absurdly far from what was fitted; remove "
                "such rows"
            )
        return y


def middle(values: Floats) -> tuple[float, float]:
    """Median, and the half-width around it that holds half of the values; the standard deviation where that is 0."""
    centre = float(np.median(values))
    spread = float(np.median(np.abs(values - centre))) or float(values.std()) or 1.0
    return centre, spread
