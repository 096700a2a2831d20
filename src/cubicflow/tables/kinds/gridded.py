"""Columns of numbers and dates at a fixed resolution, on a line or on a circle."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats, epsilon_of, floats_as, is_date, shown, whole_as, whole_numbers
from cubicflow.tables.kinds.column import Bounds, Column, Evidence, first_shown, requested_map
from cubicflow.tables.kinds.facts import LARGEST, Grid
from cubicflow.tables.maps import histogram_of_codes
from cubicflow.tables.table_error import TableError
from cubicflow.tables.unit_scale import CodeCounts

LARGEST_WHOLE = 2**63 - 1
MOST_STEPS = 100_000  # steps from the smallest to the largest value; a finer column counts as continuous
# The smallest or largest value is a hard limit if at least this share and this number of rows have the value.
PILED = 0.01  # share of the rows
PILED_ROWS = 10  # rows


@dataclass(frozen=True, kw_only=True)
class Gridded(Column):
    """Numbers and dates at a fixed resolution: y is the code k of a value; the likelihood counts the code's mass.

    The grid of a circle spans one turn.
    """

    grid: Grid
    kind: str = "stepped"

    @property
    def turn(self) -> Bounds | None:
        return (0.0, float(self.grid.count)) if self.about.is_circle else None

    def settle(self, seen: Evidence) -> tuple[Self, list[str]]:
        """Return the column with the requested transform, if any. By default :meth:`learn` fits a histogram."""
        if seen.transform is None:
            return self, []
        values = self.grid.values(self.encode(seen.sample.column(self.name).combine_chunks()).astype(np.int64))
        scale = {"start": self.grid.values(np.zeros(1, np.int64)).item(), "unit": self.grid.width}
        return replace(self, map=requested_map(seen.transform, self, seen.facts.smallest, values, **scale)), []

    def learn(self, counts: CodeCounts, rows: int, bounds: Bounds | None) -> Self:
        if self.is_circle:
            return self
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

    def numbers(self, array: pa.Array, *, strict: bool = True) -> Floats:
        """Return the codes of values. A context value may lie between grid points; any other value may not."""
        y, fit = self._places(array)
        if strict and not (fit.all() or self.role == "context"):
            raise TableError(
                f"column {self.name!r} holds {int((~fit).sum())} values that are not {self.expected_values}, the first "
                f"is {first_shown(array, ~fit)}; round them"
            )
        inside = np.mod(y, self.grid.count) if self.is_circle else y
        return np.where((y == np.floor(y)) | (self.role == "context"), inside, np.inf)

    def unwrapped(self, array: pa.Array) -> Floats:
        return self._places(array)[0]

    def _places(self, array: pa.Array) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the places of values on the grid, and whether they are grid points."""
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
            return codes.astype(np.float64), fit
        return np.where(fit, codes, (values * 10.0**grid.decimals - float(grid.origin)) / grid.step), fit

    def decode(self, y: Floats) -> pa.Array:
        steps = np.floor(y)
        inside = np.mod(steps, self.grid.count) if self.is_circle else np.clip(steps, *self.code_range)
        codes = inside.astype(np.int64)
        if self._is_whole:
            return whole_as(self.grid.origin + self.grid.step * codes, self.arrow_type)
        return floats_as(self.grid.values(codes), self.arrow_type, self.grid.decimals)

    def unlimited(self, y: Floats) -> Floats:
        return self.grid.values(y)  # type: ignore[arg-type] # codes as floats

    @property
    def _is_whole(self) -> bool:
        return pa.types.is_integer(self.arrow_type) or is_date(self.arrow_type)

    @property
    def decimals(self) -> int | None:
        return None if self._is_whole else self.grid.decimals

    @property
    def exact_decimals(self) -> int:
        return self.grid.decimals

    @property
    def code_range(self) -> tuple[float, float]:
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
        grid = self.grid
        if self.on_calendar:
            start = shown(self.values([grid.origin]))[0]
            return f"date-times in steps of {self._step} counted from {start}"
        if grid.step == 1 and not grid.decimals:
            return "whole numbers"
        start = grid.origin / 10**grid.decimals
        counted = f" counted from {start:.12g}" if start % grid.width else ""
        return f"multiples of {self._step}{counted}"

    @property
    def likelihood_term(self) -> str:
        return f"mass per step of {self._step}"

    @property
    def _step(self) -> str:
        return _duration(self.arrow_type, self.grid.step) if self.on_calendar else f"{self.grid.width:.12g}"

    def axis_values(self, array: pa.Array) -> Floats:
        """Return numbers, or days since 1970, the unit of matplotlib's date axes."""
        if not self.on_calendar:
            return super().axis_values(array)
        return whole_numbers(array.cast(pa.timestamp("ms"), safe=False)) / 86_400_000.0

    @property
    def axis_step(self) -> float | None:
        if not self.on_calendar:
            return self.grid.width
        return float(np.diff(self.axis_values(self.values([0, self.grid.step])))[0]) or None

    def check(self) -> None:
        super().check()
        if self.is_circle and self.grid.count > MOST_STEPS:
            raise ValueError(f"a turn has {self.grid.count} steps, more than {MOST_STEPS}")


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


def _duration(type: pa.DataType, step: int) -> str:
    unit = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    seconds = step * (86400.0 if pa.types.is_date32(type) else 1e-3 if pa.types.is_date64(type) else unit[type.unit])
    for name, length in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds >= length and seconds % length == 0:
            count = int(seconds // length)
            return f"{count} {name}{'s' if count > 1 else ''}"
    return f"{seconds:g} seconds"


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
