"""A flow of the columns of a table of numbers.

A real number is mapped to the flow's numbers as it is. A step has an integer code; uniform noise u in (0, 1) makes
code + u continuous, and the column's map takes code + u to the real line. Given u, the log density of a row in the
data's own units is exact: the flow's log_prob(x) + log_det. The probability of a step is the integral over u of that
density, approximated by the mean over sixteen fixed offsets. No random numbers are involved: a row has one score.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.flows import Flow, Mixture, TabularConfig, tabular
from cubicflow.nets.rng import seeded
from cubicflow.seeds import scramble
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.laws.cells import find_atoms
from cubicflow.tables.laws.independent import IndependentColumns
from cubicflow.tables.model.table_model import Encoder, OlderRunError, Scored, TableModel, check_drawn, checked_scores
from cubicflow.tables.schema import Schema
from cubicflow.tables.schema.plain_rows import Numbers, plain_numbers
from cubicflow.tables.table_error import TableError

if TYPE_CHECKING:
    from cubicflow.tables.schema.inference import Inferred

ROWS_AT_ONCE = 1 << 12
POINTS = 257  # grid points for the integral over a column
RANGE_ROWS = 1 << 12  # drawn rows that the range of such an integral is found from
OFFSETS = 16  # offsets of a row over which its probability is averaged
TRIES = 32  # permutations compared for each column
MARGINAL_ROWS = 10_000  # training rows that the marginals are learned from
# Runs on tables are short, so the learning rate is above the 5e-4 that suits hundreds of thousands of steps.
SUITED_TRAINING: dict[str, Any] = {"learning_rate": 1e-3}


class FlowEncoder(Encoder):
    """The conversion between a table of numbers with this schema and the matrices of a flow.

    Context columns are of any kind. Raises TableError for a modelled column that is not a number. ``independent`` are
    the marginals of the columns, a baseline for scores; None if they are not known.

    >>> from cubicflow.tables import infer
    >>> from cubicflow.tables.read.table import in_memory
    >>> table = in_memory(pa.table({"place": [i / 7 for i in range(40)], "size": range(40)}))
    >>> encoder = FlowEncoder(infer(table).schema)
    >>> encoder.features, encoder.decode(encoder.numbers(np.zeros((1, 2)))).column("size").to_pylist()
    (2, [19])
    """

    def __init__(self, schema: Schema, independent: IndependentColumns | None = None) -> None:
        super().__init__(schema)
        self.independent = independent
        check_numbers(self.columns)
        self.maps = [column.needed_map for column in self.columns]
        self.has_steps = np.array([column.counts_mass for column in self.columns])
        self.noise_features = int(self.has_steps.sum())
        self.context_features = sum(_features(column, np.zeros(1)).shape[1] for column in schema.context)

    def numbers_of(self, column: Column, array: pa.Array) -> Floats:
        """Return the plain numbers of a column's values. Raises TableError for a value that the column cannot hold."""
        return column.encode(array)

    def inputs(self, y: Floats, noise: Floats | None = None) -> Floats:
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
    if column.turn is not None:
        low, high = column.turn
        angle = 2 * np.pi * (middle - low) / (high - low)
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return column.needed_map.forward(middle)[0][:, None]


# --- the model ---


class FlowOfNumbers(TableModel):
    """A flow of a complete table of numbers."""

    name, phrase = "flow", "a flow"
    takes_gaps, takes_temperature, has_laws = False, True, False

    encoder: FlowEncoder
    network: Flow | Mixture

    def __init__(self, encoder: FlowEncoder, network: Flow | Mixture) -> None:
        super().__init__(encoder, network)
        shape = tuple(getattr(network, "shape", None) or ())
        if shape != (encoder.features,) or network.context_features != encoder.context_features:
            raise TableError(
                f"the table has {encoder.features} columns to model, but the flow has another shape; fit again"
            )

    @classmethod
    def check(cls, found: Inferred) -> None:
        check_numbers(found.schema.model)
        for column in found.schema.model:
            if not column.counts_mass and len(atoms := find_atoms(sampled(found, column))):
                raise TableError(
                    f"column {column.name!r} is {column.kind}, but {atoms[0]:g} repeats in it, and a flow gives no "
                    "single value a probability; fit a model of columns",
                    model="columns",
                )

    @classmethod
    def learn(
        cls, schema: Schema, numbers: Floats, train: NDArray[np.int64], seed: int, settings: Mapping[str, Any]
    ) -> Self:
        encoder = FlowEncoder(schema)
        if len(schema.model) > 1 or schema.context:  # a single column without context depends on nothing
            some = encoder.split(numbers[evenly_spaced(train, MARGINAL_ROWS)])
            encoder.independent = IndependentColumns.learn(encoder.columns, some.y, some.weights)
        return cls(encoder, suited_flow(encoder, len(train), seed, settings))

    @classmethod
    def setting_names(cls) -> set[str]:
        return {field.name for field in fields(TabularConfig)}

    @classmethod
    def suited_training(cls, rows: int) -> dict[str, Any]:  # noqa: ARG003
        return dict(SUITED_TRAINING)

    def score(self, numbers: Numbers, *, observed_only: bool = False) -> Scored:  # noqa: ARG002 - no value is missing
        known = self.encoder.independent
        log_p = checked_scores(log_likelihood(self.network, self.encoder, numbers))
        return Scored(log_p, baseline=None if known is None else known.log_prob(numbers.y))

    def draw(self, n: int, context: Floats | None, generator: torch.Generator, temperature: float = 1.0) -> Floats:
        options: dict[str, Any] = {"temperature": temperature, "generator": generator}
        features = self.encoder.context_inputs(context)
        if features is None:
            x = self.network.sample(n, **options)
        else:
            x = self.network.sample(1, flow_tensor(self.network, features), **options)[0]
        check_drawn(x)
        return self.encoder.numbers(x.double().cpu().numpy())

    def usual(self, column: Column) -> Floats:
        if column.turn is not None:
            return np.linspace(*column.turn, 97, endpoint=False)
        return np.zeros(1) if column.is_list else column.needed_map.inverse(np.linspace(-2.0, 2.0, 97))

    def to_json(self) -> dict[str, Any]:
        known = self.encoder.independent
        return {} if known is None else {"marginals": known.to_json()}

    def conditionals(self, numbers: Numbers) -> Floats | None:
        """The integrals over a column run over the range of drawn rows, and half as far again on both sides."""
        if self.encoder.noise_features or numbers.context is not None:
            return None
        drawn = self.network.sample(RANGE_ROWS, seed=0)
        low, high = float(drawn.min()), float(drawn.max())
        beyond = 0.0 if low >= 0 and high <= 1 else 0.5 * (high - low)
        found = column_densities(self.network, self.encoder.inputs(numbers.y), (low - beyond, high + beyond))
        slopes = [map.forward(numbers.y[:, i])[1] for i, map in enumerate(self.encoder.maps)]
        return found + np.stack(slopes, axis=1)

    def encoding(self) -> dict[str, Any]:
        features = self.encoder.noise_features
        return {"offsets": offsets(features).tolist()} if features else {}

    @classmethod
    def read_encoder(cls, schema: Schema, section: Mapping[str, Any]) -> FlowEncoder:
        if (odd := first_not_number(schema.model)) is not None:
            raise OlderRunError(
                f"this run is a flow, but its column {odd.name!r} is {odd.kind}, and this version has flows of numbers "
                "only; fit the table again, by a model of columns"
            )
        known = "marginals" in section
        return FlowEncoder(schema, IndependentColumns.from_json(section["marginals"], schema.model) if known else None)

    def resumed(self, before: Mapping[str, Any]) -> Self:
        """Return the model with the marginals of the original run: older versions stored none, and another machine may
        round differently."""
        return type(self)(self.read_encoder(self.schema, before), self.network)


def suited_settings(rows: int) -> dict[str, Any]:
    """Return default settings of :func:`cubicflow.flows.tabular` for this many training rows.

    >>> suited_settings(300)["hidden_features"], suited_settings(50_000)["hidden_features"]
    (32, 128)
    """
    width = 32 if rows < 2_000 else 64 if rows < 10_000 else 128 if rows < 200_000 else 256
    return {
        "num_layers": 5 if rows < 2_000 else 6 if rows < 200_000 else 10,
        "hidden_features": width,
        "num_bins": 8,
        "dropout": 0.2 if rows < 2_000 else 0.1 if rows < 10_000 else 0.0,
    }


def suited_flow(encoder: FlowEncoder, rows: int, seed: int, settings: Mapping[str, Any]) -> Flow:
    """Return a flow for the encoder's columns. The user's ``settings`` override the defaults for this many rows."""
    chosen = {**suited_settings(rows), **settings}
    with seeded(seed):
        return tabular(encoder.features, context_features=encoder.context_features, **chosen)


def sampled(found: Inferred, column: Column) -> Floats:
    """Return the plain numbers of a column in a sample of training rows, without missing values."""
    y = plain_numbers(column, found.sample.column(column.name).combine_chunks())
    return y[~np.isnan(y)]


def evenly_spaced(rows: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return at most ``most`` of the row numbers, evenly spaced."""
    return rows if len(rows) <= most else rows[np.arange(most) * len(rows) // most]


# --- scores ---


@torch.no_grad()
def column_densities(flow: Flow | Mixture, x: Floats, ends: tuple[float, float]) -> Floats:
    """Return log p(x_i | all other features) for rows (N, D), by the trapezoidal rule between two ends: (N, D).

    >>> import cubicflow as cf
    >>> flow = cf.flows.tabular(2, num_layers=1, hidden_features=8)
    >>> x = np.array([[0.5, -0.25]])
    >>> bool(np.isfinite(column_densities(flow, x, (-9.0, 9.0))).all())
    True
    """
    rows = flow_tensor(flow, x)
    grid = torch.linspace(*ends, POINTS, dtype=rows.dtype, device=rows.device)
    weights = torch.full((POINTS,), float(grid[1] - grid[0]), dtype=torch.float64, device=rows.device)
    weights[[0, -1]] /= 2
    log_p = flow.log_prob(rows)
    found = np.empty(x.shape)
    for i in range(x.shape[1]):
        moved = rows.repeat_interleave(POINTS, 0)
        moved[:, i] = grid.repeat(len(rows))
        values = flow.log_prob(moved, batch_size=1 << 13).reshape(len(rows), POINTS).double()
        total = torch.logsumexp(values + weights.log(), dim=1)
        found[:, i] = (log_p.double() - total).cpu().numpy()
    return found


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
