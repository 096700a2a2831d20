"""Sampling from a fitted table: unconditionally, given context, under conditions, and within constraints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from cubicflow.arguments import whole_number
from cubicflow.tables.query.asked_table import AskedTable
from cubicflow.tables.query.conditions import Given, context_values, is_context
from cubicflow.tables.table_error import TableError

SAMPLE_ROWS = 1 << 14  # rows drawn at once


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
        """Draw ``n`` rows with the table's own columns, types and words.

        Args:
            n: the number of rows.
            given: a value for each context column. A model of columns also takes conditions on other columns,
                ``["cut=Ideal", "price>5000"]`` or a mapping.
            temperature: the factor of the standard deviation of a flow's base; a model of columns has no temperature.
            seed: the seed of the draws; by default a random one.
            complete: whether a model of columns draws rows without missing values.
            constraints: constraints that the rows meet, in addition to those of the fit.
        """
        options: dict[str, Any] = {"complete": complete, "constraints": constraints}
        return pa.Table.from_batches(self.sample_batches(n, given, temperature, seed, **options))

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
        """Yield the rows of :meth:`sample` in batches; a single empty batch for ``n = 0``.

        ``say`` is called with a line on the quality of rows under conditions.
        """
        n = whole_number("the number of samples", n, 0)
        if self.cells is not None and temperature != 1:
            raise TableError(
                f"a model of columns has no temperature, got {temperature:g}; leave the temperature out, or fit a flow",
                model="flow",
            )
        is_plain = is_context(given, self.schema)
        if not is_plain:
            self._asked_model()  # raises for a flow, whatever the constraints are
        if required := self.all_constraints(constraints):

            def draw(count: int, seed: int) -> Iterator[pa.RecordBatch]:
                if self.cells is None:
                    return self._plain_batches(count, given, temperature, seed)
                return self.conditioned_batches(count, given, seed, complete=complete, constraints=required, say=say)

            yield from self.constrained_batches(n, required, seed, draw, say)
        elif is_plain:
            yield from self._plain_batches(n, given, temperature, seed, complete=complete)
        else:
            yield from self.conditioned_batches(n, given, seed, complete=complete, say=say)

    def _plain_batches(
        self, n: int, given: Given, temperature: float, seed: int | None, *, complete: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows without conditions, given context alone."""
        given = context_values(given, self.schema)
        generator = self._seeded(seed)
        for start in range(0, max(n, 1), SAMPLE_ROWS):
            count = min(SAMPLE_ROWS, n - start)
            context, columns = self.encoder.context_from(given, count)
            yield self.encoder.decode(self._draw(count, context, generator, temperature, complete), columns)

    def decimals(self, given: Given = None) -> dict[str, int]:
        """Return the digits after the point with which columns are written as text.

        A context column whose given value has more digits is left out.
        """
        found = {column.name: column.decimals for column in self.schema.columns}
        written = {name: _digits_of(value) for name, value in context_values(given, self.schema).items()}
        return {name: digits for name, digits in found.items() if digits is not None and written.get(name, 0) <= digits}


def _digits_of(value: object) -> int:
    try:
        exponent = Decimal(str(value)).normalize().as_tuple().exponent
    except InvalidOperation:
        return 0
    return max(-exponent, 0) if isinstance(exponent, int) else 0
