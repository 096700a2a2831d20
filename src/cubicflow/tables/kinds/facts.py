"""What one pass over a column shows, before anything is decided about it; among it the step of its numbers.

A grid is kept in whole numbers, value(k) = (origin + step k) / 10^decimals, so that 0.23 comes back as 0.23 and not as
0.22999999999999998, and so that the step is found by a greatest common divisor, exactly.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats, epsilon_of, floats, is_date, is_text, plain_text, whole_numbers
from cubicflow.tables.table_error import TableError

Codes = NDArray[np.int64]

EPSILON = float(np.finfo(np.float64).eps)
MOST_DECIMALS = 12
DIGITS = 16  # of a decimal; float64 may not tell longer ones apart
LARGEST = 2**53  # whole numbers up to here are exact in float64
FEW = 8  # distinct values; fewer say nothing about a step coarser than their last decimal
CHANCE = 0.05  # of a step; rounding of this size would let any number pass for a multiple
ROUNDING = 8  # units in the last place, of the largest value, that arithmetic may have left: 0.1 + 0.2 is 0.3
MOST_WORDS = 1 << 14
MOST_LEVELS = 256
LARGEST_MAGNITUDE = 1e100  # its square is still a number


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
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Grid:
        keys = ("origin", "step", "decimals", "count")
        if not isinstance(value, dict) or not all(type(value.get(key)) is int for key in keys):
            raise TableError(f"a grid should be whole numbers {', '.join(keys)}, got {value!r}")
        grid = cls(**{key: value[key] for key in keys})
        fine = 0 < grid.step < LARGEST and 0 <= grid.decimals <= MOST_DECIMALS and 0 < grid.count <= LARGEST
        if not fine or abs(grid.origin) >= 2**63:
            raise TableError(f"there is no grid with {value}")
        return grid


class GridFinder:
    """Watches numbers go by, and knows the coarsest grid that holds them all; None once there is none."""

    def __init__(self, epsilon: float = EPSILON) -> None:
        self.epsilon = epsilon  # of the precision the numbers are kept in
        self.decimals = 0
        self.ends: tuple[int, ...] = ()  # the smallest and the largest, once there are any
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
        ends = int(whole[0]), int(whole[-1])
        before = tuple(end * scale for end in self.ends) or ends
        # differences of int64 can overflow; as uint64 they are right, since the values are sorted
        steps = np.unique(np.diff(whole.view(np.uint64)))
        self.divisor = math.gcd(self.divisor * scale, ends[0] - before[0], int(np.gcd.reduce(steps)))
        self.ends = min(*ends, *before), max(*ends, *before)

    def grid(self) -> Grid | None:
        """The grid of all that was seen; None where there is none, or but one value."""
        if self.lost or not self.divisor:
            return None
        step = self.divisor if len(self._distinct) >= FEW else 1
        smallest, largest = self.ends
        return Grid(smallest, step, self.decimals, (largest - smallest) // step + 1)


class Facts:
    """Distinct values (up to a limit), the grid of numbers, and what is wrong with them."""

    def __init__(self, name: str, type: pa.DataType) -> None:
        self.name, self.type = name, type
        self.rows = self.infinite = self.gaps = 0
        self.smallest, self.largest = np.inf, -np.inf
        self.most = MOST_WORDS if is_text(type) else MOST_LEVELS
        self.distinct: set[Any] = set()
        self.finder = GridFinder(epsilon_of(type))

    @property
    def few(self) -> bool:
        """Whether all distinct values are known."""
        return len(self.distinct) <= self.most

    def see_some(self, array: pa.Array) -> None:
        """A batch of the column, in which values may be missing."""
        missing = pc.is_null(array, nan_is_null=True)
        if gaps := int(pc.sum(missing).as_py() or 0):
            self.gaps += gaps
            array = array.filter(pc.invert(missing))
        if len(array):
            self.see(array)

    def see(self, array: pa.Array) -> None:
        """A batch of the column, without gaps."""
        self.rows += len(array)
        if is_text(self.type):
            array = plain_text(array)
        elif not pa.types.is_boolean(self.type):
            array = pa.array(self._see_numbers(array))
        if self.few:
            self.distinct.update(pc.unique(array)[: self.most + 1].to_pylist())

    def _see_numbers(self, array: pa.Array) -> NDArray[Any]:
        is_whole = pa.types.is_integer(self.type) or is_date(self.type)
        try:
            values: NDArray[Any] = whole_numbers(array) if is_whole else floats(array)
        except pa.ArrowInvalid:
            raise TableError(
                f"column {self.name!r} holds whole numbers beyond 2^63; if they are identifiers, leave the column out",
                f"--drop {self.name}",
            ) from None
        long = pa.types.is_decimal(self.type) and self.type.precision > DIGITS
        # arrow finds the distinct decimals of some widths only
        if long and len(pc.unique(array.cast(pa.decimal256(self.type.precision, self.type.scale)))) > len(
            np.unique(values)
        ):
            raise TableError(
                f"column {self.name!r} holds decimals that differ only beyond their 16th digit; if they are "
                "identifiers, leave the column out",
                f"--drop {self.name}",
            )
        finite = np.isfinite(values)
        self.infinite += int((~finite).sum())
        values = values[finite]
        if values.size:
            self.smallest = min(self.smallest, float(values.min()))
            self.largest = max(self.largest, float(values.max()))
            if is_whole:
                self.finder.see_whole(values)
            elif max(abs(self.smallest), abs(self.largest)) < LARGEST_MAGNITUDE:
                self.finder.see(values)
        return values

    def listed(self) -> list[Any]:
        """The distinct values, sorted."""
        return sorted(self.distinct)

    def check(self) -> None:
        """Refuse infinite and absurdly large numbers."""
        largest = max(-self.smallest, self.largest)  # -inf for words, which have no size
        if self.infinite:
            several = "s" if self.infinite > 1 else ""
            found = f"{self.infinite} infinite value{several}; replace them, remove those rows"
        elif largest >= LARGEST_MAGNITUDE:
            found = f"values as large as {largest:.3g}, most likely a mark of a missing value; remove those rows"
        else:
            return
        raise TableError(f"column {self.name!r} holds {found}, or leave the column out", f"--drop {self.name}")
