"""Conversion between rows of a table and the matrices of a flow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.schema import Schema
from cubicflow.tables.table_error import TableError, some


class Numbers(NamedTuple):
    """Rows as plain numbers: codes and values ``y`` (N, D), and ``context`` (N, C) and ``weights`` (N,), or None."""

    y: Floats
    context: Floats | None
    weights: Floats | None


class Scored(NamedTuple):
    """Scores of rows, from one pass.

    Attributes:
        log_p: log p of each row given its context, (N,), in nats and in the data's units.
        terms: log p of every cell given the cells before it, (N, D) in the model's order; None for a flow.
        baseline: log p of each row under independent columns, (N,); None if it is not known.
        unseen: which values no training row had, (N, D) in the model's order; None for a flow, which refuses them.
    """

    log_p: Floats
    terms: Floats | None = None
    baseline: Floats | None = None
    unseen: NDArray[np.bool_] | None = None


class TableEncoder:
    """The conversion between a table with this schema and the matrices of a flow.

    A column with masses has integer codes. Noise u in (0, 1) makes code + u continuous, and the column's map takes
    code + u to the real line. A column with a density is mapped without noise. In both cases (x, log_det) is exact:
    given u, the log density of a row in the data's own units is the flow's log_prob(x) + log_det.

    >>> from cubicflow.tables import infer
    >>> from cubicflow.tables.read.table import in_memory
    >>> table = in_memory(pa.table({"word": ["a", "b"] * 20, "size": range(40)}))
    >>> encoder = TableEncoder(infer(table).schema)
    >>> encoder.features, encoder.decode(np.zeros((1, 2))).to_pylist()
    (2, [{'word': 'a', 'size': 19}])
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.columns = schema.model
        self.maps = [column.needed_map for column in self.columns]
        self.is_mass = np.array([column.counts_mass for column in self.columns])
        self.mass_features = int(self.is_mass.sum())  # number of columns that are dequantised
        self.features = len(self.columns)
        self.context_features = sum(column.context_width for column in schema.context)

    # --- rows to numbers ---

    def read(self, batch: pa.RecordBatch, *, weights: bool = False) -> Numbers:
        """Return a batch without missing values as plain numbers. Raises TableError for a value outside the schema."""
        for column in self.schema.of_role("constant"):
            column.encode(batch.column(column.name))  # raises for any value but the constant
        y = np.empty((len(batch), self.features))
        for i, column in enumerate(self.columns):
            y[:, i] = column.encode(batch.column(column.name))
        context = self.read_context(batch) if self.schema.context else None
        found = None
        if weights and (weights_column := self.schema.weights) is not None:
            found = weights_column.needed_map.forward(weights_column.encode(batch.column(weights_column.name)))[0]
            if (found < 0).any():
                raise TableError(f"column {weights_column.name!r} holds negative weights; weights must be 0 or more")
        return Numbers(y, context, found)

    def read_context(self, batch: pa.RecordBatch) -> Floats:
        """Return the context features (N, C) of a batch. The batch may lack other columns."""
        return np.concatenate([c.context(batch.column(c.name)) for c in self.schema.context], axis=1)

    def to_flow(self, y: Floats, noise: Floats | None = None) -> tuple[Floats, Floats]:
        """Return (x, log_det) of plain numbers. ``noise`` in (0, 1) is (N, M) or (M,) for the M columns with masses."""
        if noise is not None or self.mass_features:
            if noise is None or noise.shape[-1] != self.mass_features:
                raise ValueError(
                    f"noise must have {self.mass_features} columns, one for each column with masses; pass "
                    "encoder.noise(...)"
                )
            y = y.copy()
            y[:, self.is_mass] += noise
        x, log_det = np.empty_like(y), np.zeros(len(y))
        for i, map in enumerate(self.maps):
            x[:, i], slope = map.forward(y[:, i])
            log_det += slope
        return x, log_det

    def encode(
        self, batch: pa.RecordBatch, generator: np.random.Generator
    ) -> tuple[Floats, Floats | None, Floats | None]:
        """Return (x, context, weights) of a batch, with fresh noise."""
        y, context, weights = self.read(batch, weights=self.schema.weights is not None)
        return self.to_flow(y, self.noise(len(y), generator))[0], context, weights

    def training_inputs(self, y: Floats, context: Floats | None, noise: Floats) -> tuple[Floats, Floats | None]:
        """Return the flow's inputs and the context for plain numbers, as training uses them."""
        return self.to_flow(y, noise if self.mass_features else None)[0], context

    def noise(self, rows: int, generator: np.random.Generator) -> Floats:
        """Return uniform noise for the columns with masses, never exactly 0 or 1."""
        return (generator.integers(0, 1 << 32, (rows, self.mass_features)) + 0.5) / (1 << 32)

    # --- numbers to rows ---

    def decode(self, x: Floats, given: Mapping[str, pa.Array] | None = None) -> pa.RecordBatch:
        """Return samples (N, D) as rows with the table's own columns, types and words. ``given`` holds the context
        columns.
        """
        y = np.stack([map.inverse(x[:, i].astype(np.float64)) for i, map in enumerate(self.maps)], axis=1)
        return table_rows(self.schema, {**(given or {}), **self.decode_numbers(y)}, len(x))

    def decode_numbers(self, y: Floats) -> dict[str, pa.Array]:
        """Return codes and values (N, D) as the modelled columns of the table."""
        return {column.name: column.decode(y[:, i]) for i, column in enumerate(self.columns)}

    def context_from(self, given: Mapping[str, object], rows: int) -> tuple[Floats | None, dict[str, pa.Array]]:
        """Return the context features, and the context columns, of rows that share the values in ``given``."""
        text, arrays = given_columns(self.schema, given, rows)
        return (None, {}) if text is None else (np.repeat(self.read_context(text), rows, axis=0), arrays)


def table_rows(schema: Schema, arrays: Mapping[str, pa.Array], rows: int) -> pa.RecordBatch:
    """Return columns as a batch in the table's own order, with the constant columns of the schema added."""
    every = {**arrays, **{c.name: c.decode(np.zeros(rows)) for c in schema.of_role("constant")}}
    names = [column.name for column in schema.columns if column.name in every]
    return pa.RecordBatch.from_arrays([every[name] for name in names], names=names)


def given_columns(
    schema: Schema, given: Mapping[str, object], rows: int
) -> tuple[pa.RecordBatch | None, dict[str, pa.Array]]:
    """Return the values in ``given`` as one row of text, and as context columns of ``rows`` rows.

    The text is None for a schema without context.
    """
    wanted = check_given(schema, given)
    if not wanted:
        return None, {}
    text = pa.RecordBatch.from_pydict({name: [str(given[name])] for name in wanted})
    each = pa.array(np.zeros(rows, dtype=np.int64))
    return text, {column.name: column.given(text.column(column.name)).take(each) for column in schema.context}


def check_given(schema: Schema, given: Mapping[str, object]) -> list[str]:
    """Return the names of the context columns. Raises TableError unless ``given`` has exactly these names."""
    wanted = [column.name for column in schema.context]
    if missing := [name for name in wanted if name not in given]:
        raise TableError(f"the model is conditional: give a value for {some(missing)}", given={missing[0]: ...})
    if extra := [name for name in given if name not in wanted]:
        known = f"of its context columns {some(wanted)} only" if wanted else "of context columns only, and has none"
        raise TableError(
            f"{some(extra)} cannot be given: a flow takes values {known}; for conditions on any column, fit a model of "
            "columns",
            model="columns",
        )
    return wanted
