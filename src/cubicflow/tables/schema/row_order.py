"""The order of rows: a note that rows sorted by time are taken as exchangeable.

A model of rows ignores their order. If the rows are sorted by a date, random test rows lie between training rows, and
slow changes make them easier to predict.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.schema.split import BY_TIME, as_numbers

FEWEST = 10  # rows; fewer are often sorted by chance


class OrderOfRows:
    """An accumulator of a column's values that tells whether they are sorted."""

    def __init__(self) -> None:
        self.rises = self.falls = False
        self.rows = 0
        self._last: Floats = np.empty(0)

    def update(self, values: pa.Array) -> None:
        """Add values of one type, some of which may be missing."""
        found = as_numbers(values.drop_null())
        steps = np.diff(np.concatenate([self._last, found]))
        self.rises |= bool((steps > 0).any())
        self.falls |= bool((steps < 0).any())
        self.rows += len(found)
        self._last = found[-1:] if len(found) else self._last

    @property
    def in_order(self) -> bool:
        """Whether the values are sorted, up or down, and not all equal."""
        return self.rows >= FEWEST and self.rises != self.falls


def remark_on_order(orders: dict[str, OrderOfRows]) -> list[str]:
    """Return a note if the rows are sorted by a column of dates.

    >>> order = OrderOfRows()
    >>> order.update(pa.array(np.arange(20)).cast(pa.int32()).cast(pa.date32()))
    >>> remark_on_order({"day": order})[0].split(";")[0]
    "rows are sorted by 'day'"
    """
    found = [name for name, order in orders.items() if order.in_order]
    if not found:
        return []
    exchangeable = "the model ignores their order, so test rows lie between training rows in time"
    honest = f"for a test on the latest rows, split by {BY_TIME}{found[0]}"
    return [f"rows are sorted by {found[0]!r}; {exchangeable}; {honest}"]
