"""Facts of a column, such as the grid of its numbers. One pass collects the facts before the column's kind is decided.

A grid is stored in whole numbers: value(k) = (origin + step k) / 10^decimals. So 0.23 decodes to 0.23 instead of
0.22999999999999998, and the step is an exact greatest common divisor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cubicflow.saved import Range
from cubicflow.tables.arrow_types import Floats, epsilon_of, floats, is_date, is_text, plain_text, whole_numbers
from cubicflow.tables.table_error import TableError

Codes = NDArray[np.int64]

EPSILON = float(np.finfo(np.float64).eps)
MOST_DECIMALS = 12
DIGITS = 16  # significant digits; float64 cannot distinguish some longer decimals
LARGEST = 2**53  # whole numbers up to this one are exact in float64
FEW = 8  # distinct values; with fewer, the step is one unit of the last decimal
CHANCE = 0.05  # steps; with a larger rounding error, too many numbers would pass as multiples of the step
ROUNDING = 8  # units in the last place of the largest value; the rounding error of arithmetic such as 0.1 + 0.2
MOST_WORDS = 1 << 14  # most distinct values of text to count
MOST_LEVELS = 256  # most distinct values of other types to count
MOST_COMPARED = 1 << 20  # whole numbers that are compared with each other; more rows are taken to differ like these
LARGEST_MAGNITUDE = 1e100  # the square of this number does not overflow float64


@dataclass(frozen=True)
class Grid:
    """Evenly spaced values: value(k) = (origin + step k) / 10^decimals. The data lies in k = 0 ... count - 1."""

    origin: Annotated[int, Range(1 - 2**63, 2**63 - 1)]
    step: Annotated[int, Range(1, LARGEST - 1)]
    decimals: Annotated[int, Range(0, MOST_DECIMALS)]
    count: Annotated[int, Range(1, LARGEST)]

    @property
    def width(self) -> float:
        """The step in the units of the data."""
        return self.step / 10.0**self.decimals

    def codes(self, values: Floats, epsilon: float = EPSILON) -> tuple[Codes, NDArray[np.bool_]]:
        """Return the nearest k of every value, and whether value(k) equals the value up to rounding.

        ``epsilon`` is the machine epsilon of the type that the values are stored in.
        """
        scaled = values * 10.0**self.decimals
        whole = np.rint(scaled)
        near = np.abs(whole - scaled) <= np.clip(ROUNDING * epsilon * np.abs(scaled), 1e-6, CHANCE)
        within = np.abs(scaled) < LARGEST
        offset = np.where(within, whole, 0).astype(np.int64) - self.origin
        return offset // self.step, near & within & (offset % self.step == 0)

    def values(self, codes: Codes) -> Floats:
        return (self.origin + self.step * codes) / 10.0**self.decimals


class GridFinder:
    """A finder of the coarsest grid that holds all numbers of a column, fed batch by batch."""

    def __init__(self, epsilon: float = EPSILON) -> None:
        self.epsilon = epsilon  # machine epsilon of the type that the numbers are stored in
        self.decimals = 0
        self.ends: tuple[int, ...] = ()  # smallest and largest number times 10^decimals; empty before the first number
        self.divisor = 0  # common divisor of all differences times 10^decimals
        self.no_grid = False  # whether no grid holds the numbers
        self._distinct: set[float] = set()

    def see(self, values: Floats) -> None:
        """Add a batch of numbers."""
        if self.no_grid or not values.size:
            return
        values = np.unique(values)
        written = self.epsilon * np.abs(values)  # error of storing a decimal in this precision
        computed = ROUNDING * float(written.max())  # error of arithmetic in this precision
        for decimals in range(self.decimals, MOST_DECIMALS + 1):
            scaled = values * 10.0**decimals
            if np.abs(scaled).max() >= LARGEST or written.max() * 10.0**decimals > CHANCE:
                break
            whole = np.rint(scaled)
            error = np.abs(whole / 10.0**decimals - values)
            if (error <= written).all() or (computed * 10.0**decimals <= CHANCE and (error <= computed).all()):
                self._take(whole.astype(np.int64), decimals)
                return
        self.no_grid = True

    def see_whole(self, values: Codes) -> None:
        """Add a batch of whole numbers. Whole numbers always lie on a grid."""
        if values.size:
            self._take(np.unique(values), self.decimals)

    def _take(self, whole: Codes, decimals: int) -> None:
        if len(self._distinct) < FEW:
            self._distinct.update((whole[:FEW] / 10.0**decimals).tolist())
        scale = 10 ** (decimals - self.decimals)
        self.decimals = decimals
        ends = int(whole[0]), int(whole[-1])
        before = tuple(end * scale for end in self.ends) or ends
        # Differences of int64 can overflow. Sorted values have differences below 2^64, so uint64 is exact.
        steps = np.unique(np.diff(whole.view(np.uint64)))
        self.divisor = math.gcd(self.divisor * scale, ends[0] - before[0], int(np.gcd.reduce(steps)))
        self.ends = min(*ends, *before), max(*ends, *before)

    def grid(self) -> Grid | None:
        """Return the grid of all numbers so far; None if no grid holds them, or if they are all equal."""
        if self.no_grid or not self.divisor:
            return None
        step = self.divisor if len(self._distinct) >= FEW else 1
        smallest, largest = self.ends
        return Grid(smallest, step, self.decimals, (largest - smallest) // step + 1)


class Facts:
    """Facts of a column: distinct values up to a limit, range, missing values, infinite values, and the grid of
    numbers."""

    def __init__(self, name: str, type: pa.DataType) -> None:
        self.name, self.type = name, type
        self.rows = self.infinite = self.gaps = 0
        self.smallest, self.largest = np.inf, -np.inf
        self.all_whole, self.closest_to_0 = not is_text(type), np.inf  # whether every number is whole; the smallest one
        self.max_distinct = MOST_WORDS if is_text(type) else MOST_LEVELS
        self.distinct: set[Any] = set()
        self.finder = GridFinder(epsilon_of(type))
        # The whole numbers so far, sorted and without equal ones; None after a value repeats.
        self._differing: Codes | None = np.empty(0, np.int64) if pa.types.is_integer(type) else None

    @property
    def all_distinct_known(self) -> bool:
        """Whether ``distinct`` holds every distinct value: their number does not exceed ``max_distinct``."""
        return len(self.distinct) <= self.max_distinct

    def see_some(self, array: pa.Array) -> None:
        """Add a batch of the column that may have missing values."""
        missing = pc.is_null(array, nan_is_null=True)
        if gaps := int(pc.sum(missing).as_py() or 0):
            self.gaps += gaps
            array = array.filter(pc.invert(missing))
        if len(array):
            self.see(array)

    def see(self, array: pa.Array) -> None:
        """Add a batch of the column without missing values."""
        self.rows += len(array)
        if is_text(self.type):
            array = plain_text(array)
        elif not pa.types.is_boolean(self.type):
            array = pa.array(self._see_numbers(array))
        if self.all_distinct_known:
            self.distinct.update(pc.unique(array)[: self.max_distinct + 1].to_pylist())

    def _see_numbers(self, array: pa.Array) -> NDArray[Any]:
        is_whole = pa.types.is_integer(self.type) or is_date(self.type)
        try:
            values: NDArray[Any] = whole_numbers(array) if is_whole else floats(array)
        except pa.ArrowInvalid:
            raise TableError(
                f"column {self.name!r} holds whole numbers beyond 2^63; if they are identifiers, leave the column out",
                drop=[self.name],
            ) from None
        long = pa.types.is_decimal(self.type) and self.type.precision > DIGITS
        # cast to decimal256, because pc.unique does not take every decimal type
        if long and len(pc.unique(array.cast(pa.decimal256(self.type.precision, self.type.scale)))) > len(
            np.unique(values)
        ):
            raise TableError(
                f"column {self.name!r} holds decimals that differ only beyond their 16th digit; if they are "
                "identifiers, leave the column out",
                drop=[self.name],
            )
        finite = np.isfinite(values)
        self.infinite += int((~finite).sum())
        values = values[finite]
        if values.size:
            self.smallest = min(self.smallest, float(values.min()))
            self.largest = max(self.largest, float(values.max()))
            self.closest_to_0 = min(self.closest_to_0, float(np.abs(values.astype(np.float64)).min()))
            self.all_whole = self.all_whole and (is_whole or bool((values == np.floor(values)).all()))
            if is_whole:
                self.finder.see_whole(values)
                self._compare(values)
            elif max(abs(self.smallest), abs(self.largest)) < LARGEST_MAGNITUDE:
                self.finder.see(values)
        return values

    def _compare(self, values: Codes) -> None:
        """Find whether a whole number repeats, in this batch or an earlier one."""
        if self._differing is None or len(self._differing) >= MOST_COMPARED:
            return
        differing = np.union1d(self._differing, values)
        whole = len(differing) == len(self._differing) + len(values)
        self._differing = differing if whole else None

    @property
    def never_repeats(self) -> bool:
        """Whether all values differ: texts, or whole numbers. Other types do not count."""
        if is_text(self.type):
            return self.all_distinct_known and len(self.distinct) == self.rows
        return self._differing is not None

    @property
    def too_large_for_steps(self) -> bool:
        """Whether the numbers are whole, and float64 has steps of 1 for some and not for others.

        All numbers from 2^53 on are whole in float64, so a column of them alone may be a real measurement.
        """
        return self.all_whole and self.closest_to_0 < LARGEST <= max(-self.smallest, self.largest)

    def sorted_distinct(self) -> list[Any]:
        """Return the distinct values in ascending order."""
        return sorted(self.distinct)

    def check(self) -> None:
        """Raise TableError if the column holds infinite or absurdly large numbers."""
        largest = max(-self.smallest, self.largest)  # -inf for text
        if self.infinite:
            plural = "s" if self.infinite > 1 else ""
            found = f"{self.infinite} infinite value{plural}; replace them, remove those rows"
        elif largest >= LARGEST_MAGNITUDE:
            found = f"values as large as {largest:.3g}, which probably mark missing values; remove those rows"
        else:
            return
        raise TableError(f"column {self.name!r} holds {found}, or leave the column out", drop=[self.name])
