"""What one pass over a column shows, before anything is decided about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cubicflow.tables.arrow_types import epsilon_of, is_date, is_text
from cubicflow.tables.errors import TableError
from cubicflow.tables.grid import GridFinder
from cubicflow.tables.values import floats, plain_text, whole_numbers

MOST_WORDS = 4096
MOST_LEVELS = 256
LARGEST_MAGNITUDE = 1e100  # its square is still a number


class Facts:
    """Distinct values (up to a limit), the grid of numbers, and what is wrong with them."""

    def __init__(self, name: str, type: pa.DataType) -> None:
        self.name = name
        self.type = type
        self.rows = 0
        self.infinite = 0
        self.smallest = np.inf
        self.largest = -np.inf
        self.most = MOST_WORDS if is_text(type) else MOST_LEVELS
        self.distinct: set[Any] = set()
        self.finder = GridFinder(epsilon_of(type))

    @property
    def few(self) -> bool:
        """Whether all distinct values are known."""
        return len(self.distinct) <= self.most

    def see(self, array: pa.Array) -> None:
        """A batch of the column, without gaps."""
        self.rows += len(array)
        if is_text(self.type):
            self._note(plain_text(array))
        elif pa.types.is_boolean(self.type):
            self._note(array)
        elif pa.types.is_integer(self.type) or is_date(self.type):
            self._see_whole(array)
        else:
            self._see_floats(array)

    def _see_whole(self, array: pa.Array) -> None:
        try:
            values = whole_numbers(array)
        except pa.ArrowInvalid:
            raise TableError(
                f"column {self.name!r} holds whole numbers beyond 2^63; if they are identifiers, leave the column out",
                f"--drop {self.name}",
            ) from None
        self.finder.see_whole(values)
        if values.size:
            self.smallest = min(self.smallest, float(values.min()))
            self.largest = max(self.largest, float(values.max()))
        self._note(pa.array(values))

    def _see_floats(self, array: pa.Array) -> None:
        values = floats(array)
        finite = np.isfinite(values)
        self.infinite += int((~finite).sum())
        values = values[finite]
        if values.size:
            self.smallest = min(self.smallest, float(values.min()))
            self.largest = max(self.largest, float(values.max()))
            if max(abs(self.smallest), abs(self.largest)) < LARGEST_MAGNITUDE:
                self.finder.see(values)
        self._note(pa.array(values))

    def _note(self, array: pa.Array) -> None:
        if self.few:
            self.distinct.update(pc.unique(array)[: self.most + 1].to_pylist())

    def check(self) -> None:
        """Refuse infinite and absurdly large numbers."""
        if self.infinite:
            raise TableError(
                f"column {self.name!r} holds {self.infinite} infinite value{'s' if self.infinite > 1 else ''}; replace "
                "them, remove those rows, or leave the column out",
                f"--drop {self.name}",
            )
        largest = max(-self.smallest, self.largest)  # -inf for words, which have no size
        if largest >= LARGEST_MAGNITUDE:
            raise TableError(
                f"column {self.name!r} holds values as large as {largest:.3g}, most likely a mark of a missing value; "
                "remove those rows, or leave the column out",
                f"--drop {self.name}",
            )
