"""Numbers recorded at a fixed resolution: multiples of a step, counted from an origin.

A grid is kept in whole numbers, value(k) = (origin + step k) / 10^decimals, so that 0.23 comes back as 0.23 and not as
0.22999999999999998, and so that the step is found by a greatest common divisor, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats, epsilon_of, is_date, is_number, whole_as, whole_numbers
from cubicflow.tables.kinds.column import Bounds, Column, first_shown
from cubicflow.tables.kinds.quantity import Quantity
from cubicflow.tables.maps import CodeCounts, histogram_of_codes
from cubicflow.tables.table_error import TableError

if TYPE_CHECKING:
    from cubicflow.tables.options import TableOptions
    from cubicflow.tables.survey import Facts


Codes = NDArray[np.int64]

EPSILON = float(np.finfo(np.float64).eps)
MOST_DECIMALS = 12
LARGEST = 2**53  # whole numbers up to here are exact in float64
FEW = 8  # distinct values; fewer say nothing about a step coarser than their last decimal
LARGEST_WHOLE = 2**63 - 1
PILED = 0.01  # of the rows at the outermost value, and
PILED_ROWS = 10  # so many of them, make it a hard limit: nothing was recorded beyond
CHANCE = 0.05  # of a step; rounding of this size would let any number pass for a multiple
ROUNDING = 8  # units in the last place, of the largest value, that arithmetic may have left: 0.1 + 0.2 is 0.3


@dataclass(frozen=True)
class Grid:
    """value(k) = (origin + step k) / 10^decimals, with ``count`` values k = 0 ... count - 1 seen."""

    origin: int
    step: int
    decimals: int
    count: int

    @property
    def width(self) -> float:
        """The step, in the data's own units."""
        return self.step / 10.0**self.decimals

    def codes(self, values: Floats, epsilon: float = EPSILON) -> tuple[Codes, NDArray[np.bool_]]:
        """The nearest k of every value, and whether it is that value to the rounding of its precision."""
        scaled = values * 10.0**self.decimals
        whole = np.rint(scaled)
        near = np.abs(whole - scaled) <= np.clip(ROUNDING * epsilon * np.abs(scaled), 1e-6, CHANCE)
        within = np.abs(scaled) < LARGEST
        offset = np.where(within, whole, 0).astype(np.int64) - self.origin
        return offset // self.step, near & within & (offset % self.step == 0)

    def values(self, codes: Codes) -> Floats:
        return (self.origin + self.step * codes) / 10.0**self.decimals

    def to_json(self) -> dict[str, int]:
        return {"origin": self.origin, "step": self.step, "decimals": self.decimals, "count": self.count}

    @classmethod
    def from_json(cls, value: Any) -> Grid:
        keys = ("origin", "step", "decimals", "count")
        if not isinstance(value, dict) or not all(type(value.get(key)) is int for key in keys):
            raise TableError(f"a grid should be whole numbers {', '.join(keys)}, got {value!r}")
        grid = cls(**{key: value[key] for key in keys})
        if not (0 < grid.step < LARGEST and 0 <= grid.decimals <= MOST_DECIMALS and 0 < grid.count <= LARGEST):
            raise TableError(f"a grid with a step of {grid.step} and {grid.decimals} decimals is none")
        if abs(grid.origin) >= 2**63:
            raise TableError(f"a grid that starts at {grid.origin} is none")
        return grid


class GridFinder:
    """Watches numbers go by, and knows the coarsest grid that holds them all; None once there is none."""

    def __init__(self, epsilon: float = EPSILON) -> None:
        self.epsilon = epsilon  # of the precision the numbers are kept in
        self.decimals = 0
        self.smallest: int | None = None
        self.largest: int | None = None
        self.divisor = 0
        self.lost = False
        self._distinct: set[float] = set()

    def see(self, values: Floats) -> None:
        if self.lost or not values.size:
            return
        values = np.unique(values)
        written = self.epsilon * np.abs(values)  # what writing a decimal in this precision may change
        computed = ROUNDING * float(written.max())  # what computing with it may
        for decimals in range(self.decimals, MOST_DECIMALS + 1):
            scaled = values * 10.0**decimals
            if np.abs(scaled).max() >= LARGEST or written.max() * 10.0**decimals > CHANCE:
                break
            whole = np.rint(scaled)
            error = np.abs(whole / 10.0**decimals - values)
            if (error <= written).all() or (computed * 10.0**decimals <= CHANCE and (error <= computed).all()):
                self._take(whole.astype(np.int64), decimals)
                return
        self.lost = True

    def see_whole(self, values: Codes) -> None:
        """The same for whole numbers, which are never lost."""
        if values.size:
            self._take(np.unique(values), self.decimals)

    def _take(self, whole: Codes, decimals: int) -> None:
        if len(self._distinct) < FEW:
            self._distinct.update((whole[:FEW] / 10.0**decimals).tolist())
        scale = 10 ** (decimals - self.decimals)
        self.decimals = decimals
        smallest, largest = int(whole[0]), int(whole[-1])
        if self.smallest is None or self.largest is None:
            self.smallest, self.largest = smallest, largest
        else:
            self.divisor *= scale
            joined = math.gcd(self.divisor, smallest - self.smallest * scale)
            self.smallest = min(smallest, self.smallest * scale)
            self.largest = max(largest, self.largest * scale)
            self.divisor = joined
        # differences of int64 can overflow; as uint64 they are right, since the values are sorted
        steps = np.unique(np.diff(whole.view(np.uint64)))
        self.divisor = math.gcd(self.divisor, *(int(step) for step in steps[:64]))
        if steps.size > 64:
            self.divisor = math.gcd(self.divisor, int(np.gcd.reduce(steps)))

    def grid(self) -> Grid | None:
        """The grid of all that was seen; None where there is none, or but one value."""
        if self.lost or self.smallest is None or self.largest is None or not self.divisor:
            return None
        step = self.divisor if len(self._distinct) >= FEW else 1
        return Grid(self.smallest, step, self.decimals, (self.largest - self.smallest) // step + 1)


@dataclass(frozen=True, kw_only=True)
class Gridded(Quantity):
    """Numbers and dates at a fixed resolution: y is the code k of a value, and the likelihood counts its mass."""

    grid: Grid

    def settle(
        self, facts: Facts, sample: pa.Table, options: TableOptions, others: Sequence[Column]
    ) -> tuple[Self, list[str]]:
        """A histogram follows any shape, so a column has a transform only where one was asked for."""
        transform = options.transforms.get(self.name)
        if transform is None:
            return self, []
        codes = self.encode(sample.column(self.name).combine_chunks()).astype(np.int64)
        start = self.grid.values(np.zeros(1, np.int64)).item()
        values = self.grid.values(codes)
        return replace(
            self, map=self.transformed(transform, facts.smallest, values, start=start, unit=self.grid.width)
        ), []

    def learn(self, counts: CodeCounts, rows: int, bounds: Bounds | None) -> Self:
        low, high = self.hard_limits(counts, rows) if bounds is None else self._codes_within(bounds)
        return replace(self, map=histogram_of_codes(counts, low, high))

    def hard_limits(self, counts: CodeCounts, rows: int) -> tuple[int | None, int | None]:
        """Codes that nothing can lie beyond: a smallest value of 0, or an end where values pile up."""
        if self.role == "context":  # a value that a density is given need not be one that was seen
            return None, None
        last = self.grid.count - 1
        piled = {end: counts.of(end) >= max(PILED_ROWS, PILED * rows) for end in (0, last)}
        return 0 if self.grid.origin == 0 or piled[0] else None, last if piled[last] else None

    def _codes_within(self, bounds: Bounds) -> tuple[int | None, int | None]:
        """The first and the last code within bounds in the data's own units."""
        grid = self.grid
        start = grid.origin / 10**grid.decimals
        first = math.ceil((bounds[0] - start) / grid.width - 1e-6) if math.isfinite(bounds[0]) else None
        last = math.floor((bounds[1] - start) / grid.width + 1e-6) if math.isfinite(bounds[1]) else None
        if (first is not None and first > 0) or (last is not None and last < grid.count - 1):
            end = start + grid.width * (grid.count - 1)
            raise TableError(
                f"column {self.name!r} runs from {start:g} to {end:g}, beyond its bounds {bounds[0]:g}:{bounds[1]:g}"
            )
        return first, last

    def numbers(self, array: pa.Array) -> Floats:
        """Codes of values on the grid. Between them only a context value may lie: a density can be given anything."""
        grid = self.grid
        if is_date(array.type) and array.type != self.arrow_type:
            try:
                array = array.cast(self.arrow_type)
            except pa.ArrowInvalid:
                raise TableError(f"column {self.name!r} holds times finer than {self.type}, as it was fitted") from None
        if pa.types.is_integer(array.type) or is_date(array.type):
            try:
                whole = whole_numbers(array)
            except pa.ArrowInvalid:
                raise TableError(f"column {self.name!r} holds whole numbers beyond 2^63") from None
            values = whole.astype(np.float64)
            if grid.decimals:
                codes, fit = grid.codes(values)
            else:
                far = np.abs(values - float(grid.origin)) > LARGEST
                if far.any():
                    first = first_shown(array, far)
                    raise TableError(f"column {self.name!r} holds {first}, absurdly far from what was fitted")
                codes, fit = (whole - grid.origin) // grid.step, (whole - grid.origin) % grid.step == 0
        else:
            values = self.finite(array)
            codes, fit = grid.codes(values, epsilon_of(array.type))
        if fit.all():
            return codes.astype(np.float64)
        if self.role == "context":
            return np.where(fit, codes, (values * 10.0**grid.decimals - float(grid.origin)) / grid.step)
        raise TableError(
            f"column {self.name!r} holds {int((~fit).sum())} values that are not {self.steps_in_words}, the first is "
            f"{first_shown(array, ~fit)}; round them"
        )

    def decode(self, y: Floats) -> pa.Array:
        return self.from_codes(np.clip(np.floor(y), *self._code_range()).astype(np.int64))

    def from_codes(self, codes: Codes) -> pa.Array:
        """Codes as values of the column's type, which are whole numbers."""
        return whole_as(self.grid.origin + self.grid.step * codes, self.arrow_type)

    def _code_range(self) -> tuple[int, int]:
        """The first and the last code that a sample may have."""
        grid = self.grid
        smallest, largest = _whole_range(self.arrow_type, grid.decimals)
        first, last = -((grid.origin - smallest) // grid.step), (largest - grid.origin) // grid.step
        low, high = (-math.inf, math.inf) if self.map is None else self.map.limits
        first = first if math.isinf(low) else max(first, math.ceil(low))
        last = last if math.isinf(high) else min(last, math.ceil(high) - 1)
        return max(min(first, LARGEST), -LARGEST), max(min(last, LARGEST), -LARGEST)

    @property
    def words(self) -> str:
        start = self.grid.origin / 10**self.grid.decimals
        counted = f" counted from {start:.12g}" if start % self.grid.width else ""
        return f"multiples of {self.grid.width:.12g}{counted}"

    @property
    def steps_in_words(self) -> str:
        return self.words

    @property
    def counted(self) -> str:
        return f"mass per step of {self.grid.width:.12g}"

    @property
    def drawn_step(self) -> float | None:
        return self.grid.width

    def own_json(self) -> dict[str, Any]:
        return {"grid": self.grid.to_json()}

    @classmethod
    def own_from_json(cls, name: str, value: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG003
        return {"grid": Grid.from_json(value.get("grid"))}


def whole_grid(facts: Facts) -> Grid:
    """The grid of whole numbers or dates."""
    grid = facts.finder.grid()
    if grid is None or grid.count > LARGEST:
        raise TableError(
            f"column {facts.name!r} spans more than 2^53 steps, from {facts.smallest:.6g} to {facts.largest:.6g}; if "
            "it holds identifiers, leave it out",
            f"--drop {facts.name}",
        )
    return grid


def _whole_range(type: pa.DataType, decimals: int) -> tuple[int, int]:
    """The whole numbers that are values of the type when they are divided by 10^decimals."""
    if pa.types.is_date32(type):
        return -(2**31), 2**31 - 1
    if is_number(type) and not pa.types.is_integer(type):
        largest = LARGEST - 1  # a grid knows the multiples of its step by float64
        if pa.types.is_decimal(type):
            largest = min(largest, (10**type.precision - 1) * 10**decimals // 10**type.scale)
        elif pa.types.is_float16(type):
            largest = min(largest, int(np.finfo(np.float16).max) * 10**decimals)
        return -largest, largest
    largest, unsigned = LARGEST_WHOLE, pa.types.is_unsigned_integer(type)
    if pa.types.is_integer(type):
        largest = min(largest, (2 ** (type.bit_width - (0 if unsigned else 1)) - 1) * 10**decimals)
    return 0 if unsigned else -largest - 1, largest
