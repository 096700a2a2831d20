"""Rows that a fitted table draws: plain ones, given context, under conditions, within constraints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from cubicflow.tables.asking.asked_table import AskedTable
from cubicflow.tables.asking.conditions import Given, context_values, is_context
from cubicflow.tables.table_error import TableError

SAMPLE_ROWS = 1 << 14


class SampledTable(AskedTable):
    """The part of :class:`~cubicflow.tables.FittedTable` that draws rows."""

    encoder: Any
    _draw: Any

    def sample(
        self,
        n: int,
        given: Given = None,
        temperature: float = 1.0,
        seed: int | None = None,
        *,
        complete: bool = False,
        constraints: Sequence[str] = (),
    ) -> pa.Table:
        """``n`` rows with the table's own columns, types and words. ``given`` holds a value for each context column. Of
        a model of columns it may hold conditions on any others, ``["cut=Ideal", "price>5000"]`` or a mapping, and
        ``complete`` draws rows without gaps; such a model has no temperature. Rows keep ``constraints`` too."""
        how: dict[str, Any] = {"complete": complete, "constraints": constraints}
        return pa.Table.from_batches(self.sample_batches(n, given, temperature, seed, **how))

    def sample_batches(
        self,
        n: int,
        given: Given = None,
        temperature: float = 1.0,
        seed: int | None = None,
        *,
        complete: bool = False,
        constraints: Sequence[str] = (),
        say: Callable[[str], None] = lambda _: None,
    ) -> Iterator[pa.RecordBatch]:
        """The same, piece by piece; one piece without rows where none are asked for. ``say`` is told how good rows are
        that meet conditions."""
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
            raise TableError(f"the number of samples should be a whole number, 0 or more, got {n!r}")
        if self.cells is not None and temperature != 1:
            raise TableError(
                f"this run is a model of columns, which has no noise and so no temperature, got {temperature:g}; leave "
                "the temperature out, or fit a flow",
                "--model flow",
            )
        if kept := self.all_constraints(constraints):

            def draw(count: int, seed: int) -> Iterator[pa.RecordBatch]:
                if self.cells is None:
                    return self._plain_batches(count, given, temperature, seed)
                return self.conditioned_batches(count, given, seed, complete=complete, constraints=kept, say=say)

            yield from self.constrained_batches(n, kept, seed, draw, say)
            return
        if not is_context(given, self.schema) and (self.cells is not None or not isinstance(given, Mapping)):
            yield from self.conditioned_batches(n, given, seed, complete=complete, say=say)
            return
        yield from self._plain_batches(n, given, temperature, seed, complete=complete)

    def _plain_batches(
        self, n: int, given: Given, temperature: float, seed: int | None, *, complete: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Rows given context alone."""
        given = context_values(given, self.schema)
        generator = self._seeded(seed)
        for start in range(0, max(n, 1), SAMPLE_ROWS):
            count = min(SAMPLE_ROWS, n - start)
            context, columns = self.encoder.context_from(given, count)
            yield self.encoder.decode(self._draw(count, context, generator, temperature, complete), columns)

    def decimals(self, given: Given = None) -> dict[str, int]:
        """The digits after the point with which columns are written as text; none where more of them were given."""
        found = {column.name: column.decimals for column in self.schema.columns}
        written = {name: _digits_of(value) for name, value in context_values(given, self.schema).items()}
        return {name: digits for name, digits in found.items() if digits is not None and written.get(name, 0) <= digits}


def _digits_of(value: object) -> int:
    try:
        exponent = Decimal(str(value)).normalize().as_tuple().exponent
    except InvalidOperation:
        return 0
    return max(-exponent, 0) if isinstance(exponent, int) else 0
