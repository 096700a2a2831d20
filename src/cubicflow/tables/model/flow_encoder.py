"""Conversion between rows of a table of numbers and the matrices of a flow, and the log likelihood of such rows.

A real number is mapped to the flow's numbers as it is. A step has an integer code; uniform noise u in (0, 1) makes
code + u continuous, and the column's map takes code + u to the real line. Given u, the log density of a row in the
data's own units is exact: the flow's log_prob(x) + log_det. The probability of a step is the integral over u of that
density, approximated by the mean over sixteen fixed offsets. No random numbers are involved: a row has one score.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from cubicflow.flows import Flow, Mixture
from cubicflow.seeds import scramble
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.kinds.circular import CircularColumn
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.model.plain_rows import Numbers, PlainRows
from cubicflow.tables.schema import Schema
from cubicflow.tables.table_error import TableError

ROWS_AT_ONCE = 1 << 12
OFFSETS = 16  # offsets of a row over which its probability is averaged
TRIES = 32  # permutations compared for each column


class FlowEncoder(PlainRows):
    """The conversion between a table of numbers with this schema and the matrices of a flow.

    Context columns are of any kind. Raises TableError for a modelled column that is not a number.

    >>> from cubicflow.tables import infer
    >>> from cubicflow.tables.read.table import in_memory
    >>> table = in_memory(pa.table({"place": [i / 7 for i in range(40)], "size": range(40)}))
    >>> encoder = FlowEncoder(infer(table).schema)
    >>> encoder.features, encoder.decode(encoder.numbers(np.zeros((1, 2)))).column("size").to_pylist()
    (2, [19])
    """

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        check_numbers(self.columns)
        self.maps = [column.needed_map for column in self.columns]
        self.has_steps = np.array([column.counts_mass for column in self.columns])
        self.noise_features = int(self.has_steps.sum())
        self.context_features = sum(_features(column, np.zeros(1)).shape[1] for column in schema.context)

    def numbers_of(self, column: Column, array: pa.Array) -> Floats:
        """Return the plain numbers of a column's values. Raises TableError for a value that the column cannot hold."""
        return column.encode(array)

    def inputs(self, y: Floats, noise: Floats | None = None) -> Floats:
        """Return the flow's inputs (N, D) for plain numbers. ``noise`` is as in :meth:`to_flow`."""
        return self.to_flow(y, noise)[0]

    def to_flow(self, y: Floats, noise: Floats | None = None) -> tuple[Floats, Floats]:
        """Return (x, log_det) of plain numbers. ``noise`` in (0, 1) is (N, M) or (M,) for the M columns with steps."""
        if noise is not None or self.noise_features:
            if noise is None or noise.shape[-1] != self.noise_features:
                raise ValueError(
                    f"noise must have {self.noise_features} columns, one for each column with steps; pass "
                    "encoder.noise(...)"
                )
            y = y.copy()
            y[:, self.has_steps] += noise
        x, log_det = np.empty_like(y), np.zeros(len(y))
        for i, map in enumerate(self.maps):
            x[:, i], slope = map.forward(y[:, i])
            log_det += slope
        return x, log_det

    def noise(self, rows: int, generator: np.random.Generator) -> Floats | None:
        """Return uniform noise for the columns with steps, never exactly 0 or 1; None without such columns."""
        if not self.noise_features:
            return None
        return (generator.integers(0, 1 << 32, (rows, self.noise_features)) + 0.5) / (1 << 32)

    def numbers(self, x: Floats) -> Floats:
        """Return the plain numbers (N, D) of outputs of the flow; codes are not rounded yet."""
        return np.stack([map.inverse(x[:, i].astype(np.float64)) for i, map in enumerate(self.maps)], axis=1)

    def context_inputs(self, context: Floats | None) -> Floats | None:
        """Return the features (N, C) of the context's plain numbers; None without context.

        A word has a feature of its own. A point on a circle has its cosine and its sine. A number has the middle of
        its step, mapped to the real line.
        """
        if context is None:
            return None
        return np.concatenate([_features(c, context[:, i]) for i, c in enumerate(self.schema.context)], axis=1)


def first_not_number(columns: Iterable[Column]) -> Column | None:
    """Return the first column that a flow cannot model: one of words, of levels, or of points on a circle."""
    return next((column for column in columns if column.is_list or column.is_circle), None)


def check_numbers(columns: Iterable[Column]) -> None:
    """Raise TableError for a column that a flow cannot model."""
    if (odd := first_not_number(columns)) is not None:
        raise TableError(
            f"column {odd.name!r} is {odd.kind}, but a flow models numbers on a line only; fit a model of columns",
            model="columns",
        )


def _features(column: Column, y: Floats) -> Floats:
    """Return the features (N, width) of a context column's plain numbers."""
    if column.is_list:
        return np.eye(len(column.labels))[y.astype(np.int64)]
    middle = y + 0.5 * column.counts_mass
    if isinstance(column, CircularColumn):
        low, high = column.turn
        angle = 2 * np.pi * (middle - low) / (high - low)
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return column.needed_map.forward(middle)[0][:, None]


# --- scores and samples ---


@torch.no_grad()
def log_likelihood(flow: Flow | Mixture, encoder: FlowEncoder, numbers: Numbers) -> Floats:
    """Return log p of every row given its context, in nats and in the data's own units."""
    places = offsets(encoder.noise_features) if encoder.noise_features else [None]
    result = np.empty(len(numbers.y))
    for start in range(0, len(result), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        context = None if numbers.context is None else encoder.context_inputs(numbers.context[rows])
        given = None if context is None else flow_tensor(flow, context)
        scores = []
        for place in places:
            x, log_det = encoder.to_flow(numbers.y[rows], place)
            log_prob = flow.log_prob(flow_tensor(flow, x), given)
            scores.append(log_prob.double().cpu().numpy() + log_det)
        with np.errstate(invalid="ignore"):  # callers check for NaN
            result[rows] = scores[0] if len(scores) == 1 else np.logaddexp.reduce(scores, axis=0) - math.log(OFFSETS)
    return result


def flow_tensor(flow: Flow | Mixture, numbers: Floats) -> Tensor:
    """Return numbers as a tensor of the flow's dtype, on its device."""
    weight = next(flow.parameters(), torch.empty(0))
    return torch.from_numpy(numbers).to(weight.device, weight.dtype)


@cache
def offsets(features: int) -> Floats:
    """Return (16, features) offsets in (0, 1): a Latin hypercube.

    In every column, each sixteenth of the interval holds one point, at its middle. The mean over the points is exact to
    second order for a density that varies in one column. The order of the points in a column is one of 32 hashed
    permutations, the one that is least correlated with earlier columns. So the points of two columns also cover the
    square evenly.
    """
    # The points are built here, not by a library: the scores of saved runs depend on them.
    middles = (np.arange(OFFSETS) + 0.5) / OFFSETS
    columns = [middles]
    for i in range(1, features):
        seeds = np.arange(TRIES * OFFSETS, dtype=np.uint64).reshape(TRIES, OFFSETS) + np.uint64(i * TRIES * OFFSETS)
        candidates = middles[np.argsort(scramble(seeds), axis=1)]
        others = np.stack(columns[-4 * OFFSETS :], axis=1) - 0.5
        correlation = np.abs((candidates - 0.5) @ others).max(axis=1)
        columns.append(candidates[correlation.argmin()])
    result = np.stack(columns, axis=1)
    result.setflags(write=False)
    return result
