"""A table with its missing values filled: the same rows and columns, and a column that lists the filled columns of each
row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cubicflow.arguments import whole_number
from cubicflow.seeds import derive_seed, fresh_seed
from cubicflow.tables.arrow_types import Floats, is_text, read_text, wider, without_views
from cubicflow.tables.query.impute import fill_gaps
from cubicflow.tables.read.table import Table, in_memory
from cubicflow.tables.schema.plain_rows import with_gaps
from cubicflow.tables.table_error import TableError

if TYPE_CHECKING:
    from cubicflow.tables.fitted import FittedTable

FILLED = "filled"  # name of the added column
ROWS = 1 << 12  # rows per batch


@dataclass
class FilledTable:
    """A table whose missing values are filled ``draws`` times.

    ``batches(k)`` yields the rows with the k-th draw. ``counts`` is the number of filled cells of each column. ``left``
    is the number of missing values in each column that the model does not fill.
    """

    fitted: FittedTable
    table: Table
    draws: int = 1
    most_likely: bool = False
    seed: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        if not self.fitted.model.takes_gaps:
            raise TableError(
                f"this run is {self.fitted.model.phrase}, which does not model missing values; to fill them, fit a "
                "model of columns",
                model="columns",
            )
        whole_number("the number of draws", self.draws, 1)
        self.fitted.schema.check(self.table)
        if FILLED in self.table.names:
            raise TableError(
                f"{self.table.name}: the table has a column {FILLED!r}, but the output needs that name for the list of "
                "filled cells; rename the column"
            )
        schema = self.fitted.schema
        self._columns = {column.name: column for column in (*schema.model, *schema.of_role("constant"))}
        self._read = self.table.spooled(self.table.names)
        self._types = {name: self._type(name) for name in self.table.names}
        self._entropy = fresh_seed() if self.seed is None else self.seed
        try:
            self._filled = [self._fill(k, batch) for k, batch in enumerate(self._read.batches(rows=ROWS))]
        except TableError as error:
            raise error.about(self.table.name) from None

    def lines(self) -> list[str]:
        """Return what was filled, and what was not, in words."""
        filled, left = (", ".join(f"{n:,} in {name!r}" for name, n in c.items()) for c in (self.counts, self.left))
        lines = [f"filled {sum(self.counts.values()):,} missing values{f' ({filled})' if filled else ''}"]
        if left:
            lines.append(f"note: missing values of columns that are not modelled were not filled: {left}")
        return lines

    def _fill(self, piece: int, batch: pa.RecordBatch) -> tuple[NDArray[np.int64], Floats]:
        """Return the indices of the rows with missing values, and the filled rows as plain numbers (draws, n, D)."""
        model = self.fitted.model.laws()
        numbers = model.encoder.read(batch)
        self._count(batch)
        rows = np.flatnonzero(np.isnan(numbers.y).any(axis=1))
        # one seed for the whole table, a separate stream for each batch
        generator = self.fitted.generator(derive_seed(self._entropy, piece) >> 1)
        context = None if numbers.context is None else numbers.context[rows]
        how = self.fitted.constraints, self.draws, self.most_likely
        return rows, fill_gaps(model, numbers.y[rows], context, generator, *how)

    def _count(self, batch: pa.RecordBatch) -> None:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if missing := int(pc.sum(pc.is_null(column, nan_is_null=True)).as_py() or 0):
                (self.counts if name in self._columns else self.left)[name] += missing

    def batches(self, draw: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the table, with missing values filled by one draw. An empty table yields one empty
        batch."""
        if not self._filled:
            yield pa.RecordBatch.from_pylist([], pa.schema([*self._types.items(), (FILLED, pa.string())]))
        for batch, (rows, y) in zip(self._read.batches(rows=ROWS), self._filled, strict=True):
            yield self._with(batch, rows, y[draw])

    def _with(self, batch: pa.RecordBatch, rows: Any, y: Floats) -> pa.RecordBatch:
        typed = [self._typed(name, batch.column(name)) for name in batch.schema.names]
        names = np.full(len(batch), "", dtype=object)
        places = {column.name: i for i, column in enumerate(self.fitted.schema.model)}
        for j, name in enumerate(batch.schema.names):
            gap = pc.is_null(typed[j], nan_is_null=True).to_numpy(zero_copy_only=False)
            if not gap.any() or name not in self._columns:
                continue
            numbers = np.zeros(len(batch))  # a constant has the number 0
            if name in places:
                numbers[:] = np.nan
                numbers[rows] = y[:, places[name]]
            values = with_gaps(self._columns[name], numbers)
            typed[j] = pc.if_else(pa.array(gap), _cast(values, typed[j].type), typed[j])
            names[gap] = [f"{before},{name}" if before else name for before in names[gap]]
        arrays = [*typed, pa.array(names, type=pa.string())]
        return pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names, FILLED])

    def _typed(self, name: str, array: pa.Array) -> pa.Array:
        """Return text parsed as the inferred type of its column, so that numbers are written without quotes."""
        if self._read.is_text and not is_text(self._types[name]):
            return read_text(array, self._types[name])
        return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array

    def _type(self, name: str) -> pa.DataType:
        """Return the type of a column of the output. The fitted type is wider where all values of a text are whole
        numbers or days, and the values to fill are not."""
        type = self._read.types[name]
        known = {c.name: c.arrow_type for c in self.fitted.schema.columns if c.role != "dropped"}
        if pa.types.is_null(type):
            return known.get(name, pa.string())
        return wider(type, known[name]) if self._read.is_text and name in known else type


def _cast(values: pa.Array, type: pa.DataType) -> pa.Array:
    """Cast drawn values to a type of the same family. Missing values may have turned whole numbers into floats."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(type, safe=False)


def impute_rows(fitted: FittedTable, rows: pa.Table | pa.RecordBatch, **how: Any) -> list[pa.Table]:
    """Return one filled table per draw for a table in memory. ``how`` are the arguments of :class:`FilledTable`."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    # a column without values has the null type: cast it to the fitted type
    fitted_types = {c.name: pa.string() if is_text(c.arrow_type) else c.arrow_type for c in fitted.schema.columns}
    types = ((each.name, each.type) for each in without_views(table.schema))
    known = [(name, fitted_types.get(name, type) if pa.types.is_null(type) else type) for name, type in types]
    table = table.cast(pa.schema(known))
    source = in_memory(table, "the table")
    filled = FilledTable(fitted, source, **how)
    return [pa.Table.from_batches(filled.batches(k)) for k in range(filled.draws)]


def names_of_draws(output: str, draws: int) -> list[str]:
    """Return the file names of several draws: ``filled-01.csv``, ``filled-02.csv``, ...

    >>> names_of_draws("filled.csv", 2), names_of_draws("filled.csv", 1)
    (['filled-01.csv', 'filled-02.csv'], ['filled.csv'])
    """
    if draws == 1:
        return [output]
    path, width = Path(output), max(len(str(draws)), 2)
    return [str(path.with_name(f"{path.stem}-{k:0{width}d}{path.suffix}")) for k in range(1, draws + 1)]
