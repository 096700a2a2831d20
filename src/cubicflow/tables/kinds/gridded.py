"""Numbers and dates recorded at a fixed resolution: the base class of stepped, integer and datetime columns."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa

from cubicflow.tables.arrow_types import Floats, epsilon_of, is_date, whole_as, whole_numbers
from cubicflow.tables.kinds.column import Bounds, Evidence, Facts, Parsers, Quantity, first_shown
from cubicflow.tables.kinds.facts import LARGEST, Codes, Grid
from cubicflow.tables.maps import CodeCounts, histogram_of_codes
from cubicflow.tables.table_error import TableError

LARGEST_WHOLE = 2**63 - 1
# The smallest or largest value is a hard limit if at least this share and this number of rows have the value.
PILED = 0.01  # share of the rows
PILED_ROWS = 10  # rows


@dataclass(frozen=True, kw_only=True)
class Gridded(Quantity):
    """Numbers and dates at a fixed resolution: y is the code k of a value; the likelihood counts the code's mass."""

    json_parsers: ClassVar[Parsers] = {"grid": Grid.from_json}

    grid: Grid

    def settle(self, seen: Evidence) -> tuple[Self, list[str]]:
        """Return the column with the requested transform, if any. By default :meth:`learn` fits a histogram."""
        if seen.transform is None:
            return self, []
        values = self.grid.values(self.encode(seen.sample.column(self.name).combine_chunks()).astype(np.int64))
        scale = {"start": self.grid.values(np.zeros(1, np.int64)).item(), "unit": self.grid.width}
        return replace(self, map=self.transformed(seen.transform, seen.facts.smallest, values, **scale)), []

    def learn(self, counts: CodeCounts, rows: int, bounds: Bounds | None) -> Self:
        low, high = self._hard_limits(counts, rows) if bounds is None else self._codes_within(bounds)
        return replace(self, map=histogram_of_codes(counts, low, high))

    def _hard_limits(self, counts: CodeCounts, rows: int) -> tuple[int | None, int | None]:
        """Return the smallest and largest possible code, None for an open end.

        The smallest code is a limit if its value is 0. Either end is a limit if many rows have its value.
        """
        # a context value may lie outside the training data, and new dates come after the last one
        if self.role == "context" or self.on_calendar:
            return None, None
        last = self.grid.count - 1
        piled = {end: counts.of(end) >= max(PILED_ROWS, PILED * rows) for end in (0, last)}
        return 0 if self.grid.origin == 0 or piled[0] else None, last if piled[last] else None

    def _codes_within(self, bounds: Bounds) -> tuple[int | None, int | None]:
        """Return the first and the last code within bounds in the units of the data; None for an infinite bound."""
        grid = self.grid
        start = grid.origin / 10**grid.decimals
        first = math.ceil((bounds[0] - start) / grid.width - 1e-6) if math.isfinite(bounds[0]) else None
        last = math.floor((bounds[1] - start) / grid.width + 1e-6) if math.isfinite(bounds[1]) else None
        if (first is not None and first > 0) or (last is not None and last < grid.count - 1):
            end = start + grid.width * (grid.count - 1)
            raise TableError(
                f"column {self.name!r} runs from {start:g} to {end:g}, beyond its bounds {bounds[0]:g}:{bounds[1]:g}; "
                "widen the bounds"
            )
        return first, last

    def numbers(self, array: pa.Array) -> Floats:
        """Return the codes of values. A context value may lie between grid points; any other value may not."""
        grid = self.grid
        if is_date(array.type) and array.type != self.arrow_type:
            try:
                array = array.cast(self.arrow_type)
            except pa.ArrowInvalid:
                raise TableError(
                    f"column {self.name!r} was fitted as {self.type} and holds times of a finer resolution; round them"
                ) from None
        if pa.types.is_integer(array.type) or is_date(array.type):
            try:
                whole = whole_numbers(array)
            except pa.ArrowInvalid:
                raise TableError(f"column {self.name!r} holds whole numbers beyond 2^63; remove these rows") from None
            values = whole.astype(np.float64)
            if grid.decimals:
                codes, fit = grid.codes(values)
            else:
                far = np.abs(values - float(grid.origin)) > LARGEST
                if far.any():
                    first = first_shown(array, far)
                    raise TableError(
                        f"column {self.name!r} holds {first}, absurdly far from the fitted values; remove these rows"
                    )
                codes, fit = (whole - grid.origin) // grid.step, (whole - grid.origin) % grid.step == 0
        else:
            values = self.finite(array)
            codes, fit = grid.codes(values, epsilon_of(array.type))
        if fit.all():
            return codes.astype(np.float64)
        if self.role == "context":
            return np.where(fit, codes, (values * 10.0**grid.decimals - float(grid.origin)) / grid.step)
        raise TableError(
            f"column {self.name!r} holds {int((~fit).sum())} values that are not {self.expected_values}, the first is "
            f"{first_shown(array, ~fit)}; round them"
        )

    def encode_any(self, array: pa.Array) -> Floats:
        if self.role == "context":
            return super().encode_any(array)
        y = replace(self, role="context").encode_any(array)  # the role lets y lie between codes
        return np.where(y == np.floor(y), y, np.inf)

    def decode(self, y: Floats) -> pa.Array:
        return self.from_codes(np.clip(np.floor(y), *self.code_range).astype(np.int64))

    def from_codes(self, codes: Codes) -> pa.Array:
        """Return the values of codes as the column's arrow type. The values are whole numbers or dates."""
        return whole_as(self.grid.origin + self.grid.step * codes, self.arrow_type)

    @property
    def code_range(self) -> tuple[int, int]:
        """The first and the last code that a sample may have, by the limits of the column and of its type."""
        grid = self.grid
        smallest, largest = _whole_range(self.arrow_type, grid.decimals)
        first, last = -((grid.origin - smallest) // grid.step), (largest - grid.origin) // grid.step
        low, high = (-math.inf, math.inf) if self.map is None else self.map.limits
        first = first if math.isinf(low) else max(first, math.ceil(low))
        last = last if math.isinf(high) else min(last, math.ceil(high) - 1)
        return max(min(first, LARGEST), -LARGEST), max(min(last, LARGEST), -LARGEST)

    @property
    def expected_values(self) -> str:
        start = self.grid.origin / 10**self.grid.decimals
        counted = f" counted from {start:.12g}" if start % self.grid.width else ""
        return f"multiples of {self.grid.width:.12g}{counted}"

    @property
    def likelihood_term(self) -> str:
        return f"mass per step of {self.grid.width:.12g}"

    @property
    def axis_step(self) -> float | None:
        return self.grid.width


def whole_grid(facts: Facts) -> Grid:
    """Return the grid of a column of whole numbers or dates. Raise TableError if the grid is too long."""
    grid = facts.finder.grid()
    if grid is None or grid.count > LARGEST:
        raise TableError(
            f"column {facts.name!r} spans more than 2^53 steps, from {facts.smallest:.6g} to {facts.largest:.6g}; if "
            "it holds identifiers, leave it out",
            drop=[facts.name],
        )
    return grid


def _whole_range(type: pa.DataType, decimals: int) -> tuple[int, int]:
    """Return the smallest and the largest whole number n for which the type can hold n / 10^decimals."""
    if pa.types.is_integer(type) or is_date(type):
        storage = np.int32 if pa.types.is_date32(type) else np.int64 if is_date(type) else type.to_pandas_dtype()
        info, scale = np.iinfo(storage), 10**decimals
        return max(info.min * scale, -LARGEST_WHOLE - 1), min(info.max * scale, LARGEST_WHOLE)
    largest = LARGEST - 1  # Grid.codes computes multiples of the step in float64
    if pa.types.is_decimal(type):
        largest = min(largest, (10**type.precision - 1) * 10**decimals // 10**type.scale)
    elif pa.types.is_float16(type):
        largest = min(largest, int(np.finfo(np.float16).max) * 10**decimals)
    return -largest, largest
