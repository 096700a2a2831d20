"""What a sample of a column may be: a value that its type can hold, within the column's limits."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from cubicflow.tables.arrow_types import is_number
from cubicflow.tables.column import Column
from cubicflow.tables.grid import LARGEST

LARGEST_WHOLE = 2**63 - 1


def code_range(column: Column) -> tuple[int, int]:
    """The first and the last code of a gridded column."""
    grid = column.grid
    assert grid is not None  # noqa: S101 - gridded kinds have one
    smallest, largest = _whole_range(column.arrow_type, grid.decimals)
    first, last = -((grid.origin - smallest) // grid.step), (largest - grid.origin) // grid.step
    low, high = (-math.inf, math.inf) if column.map is None else column.map.limits
    first = first if math.isinf(low) else max(first, math.ceil(low))
    last = last if math.isinf(high) else min(last, math.ceil(high) - 1)
    return max(min(first, LARGEST), -LARGEST), max(min(last, LARGEST), -LARGEST)


def value_range(column: Column, digits: int | None) -> tuple[float, float]:
    """The smallest and the largest value of a real column with so many digits after the point; None for all digits.

    Both lie strictly within the limits, and both are numbers of the column's type, so that neither rounding to the
    digits nor to the type can carry what lies between them to a limit.
    """
    low, high = (-math.inf, math.inf) if column.map is None else column.map.limits
    return _first_above(low, column.arrow_type, digits), -_first_above(-high, column.arrow_type, digits)


def decimal_range(type: pa.DataType) -> tuple[Decimal, Decimal]:
    """The smallest and the largest value of a decimal type, which has a fixed number of digits."""
    most = f"{10**type.precision - 1}e-{type.scale}"
    return Decimal(f"-{most}"), Decimal(most)


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
