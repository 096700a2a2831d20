"""Independent columns: each column's own marginal, from training rows alone, and what a row scores by them.

A model that knows nothing of how columns depend on one another scores as much. What a model scores above that, its
gain, is what it has learned about them. The marginals count what the model counts: a mass where the column has masses,
a density per unit elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cubicflow.splines import cubic_interpolation
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.kinds.column import Column
from cubicflow.tables.maps import CodeCounts, Histogram, histogram_of_codes, map_from_json
from cubicflow.tables.table_error import TableError

BINS = (1, 2, 4, 8, 16, 32, 64, 128)  # between the quantiles of a column with a density
ROWS_PER_BIN = 8  # at least
ROWS_BEYOND = 2.5  # the outermost quantiles leave so many rows beyond them, so that no single row makes a tail
NARROWEST = 1e-9  # of a bin, as a share of all of them: nearer quantiles are one value


@dataclass(frozen=True)
class QuantileCurve:
    """A density on the real line: the distribution function is the sigmoid of a monotone cubic through quantiles.

    ``places`` are quantiles, ``logits`` the logits of their probabilities. Beyond the outermost the cubic goes on as a
    straight line, so the tails are exponential and every value has a finite log density.

    >>> logistic = QuantileCurve((-1.0, 1.0), (-1.0, 1.0))
    >>> float(np.round(np.exp(logistic.log_density(np.zeros(1)))[0], 3))
    0.25
    """

    places: tuple[float, ...]
    logits: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("places", "logits"):
            values = np.asarray(getattr(self, name), dtype=np.float64)
            if values.ndim != 1 or not 2 <= len(values) <= BINS[-1] + 1 or not np.isfinite(values).all():
                raise ValueError(f"{name} should be at least two numbers")
            if not (np.diff(values) > 0).all():
                raise ValueError(f"{name} should increase")
        if len(self.places) != len(self.logits):
            raise ValueError("places and logits should be as many")

    @cached_property
    def _knots(self) -> tuple[Tensor, Tensor, Tensor]:
        places, logits = (torch.tensor(values, dtype=torch.float64) for values in (self.places, self.logits))
        secants = logits.diff() / places.diff()
        # Fritsch and Butland's harmonic mean is positive and at most twice either secant, so the cubic increases
        inner = 2 / (1 / secants[:-1] + 1 / secants[1:])
        return places, logits, torch.cat([secants[:1], inner, secants[-1:]])

    def log_density(self, values: Floats) -> Floats:
        """The log density of every value."""
        places, logits, slopes = self._knots
        x = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64))
        logit, log_slope = cubic_interpolation(x.clamp(places[0], places[-1]), places, logits, slopes, validate=False)
        for end, outside in ((0, x < places[0]), (-1, x > places[-1])):
            logit = torch.where(outside, logits[end] + slopes[end] * (x - places[end]), logit)
            log_slope = torch.where(outside, slopes[end].log(), log_slope)
        sigmoid = torch.nn.functional.logsigmoid
        result: Floats = (sigmoid(logit) + sigmoid(-logit) + log_slope).numpy()
        return result

    def to_json(self) -> dict[str, Any]:
        return {"type": "quantiles", "places": list(self.places), "logits": list(self.logits)}


def fit_quantile_curve(values: Floats, weights: Floats | None = None) -> QuantileCurve:
    """The curve of some values. How many bins it has is chosen by how well half of the values tell the other half.

    >>> rng = np.random.default_rng(0)
    >>> curve = fit_quantile_curve(rng.normal(size=4000))
    >>> float(np.round(-curve.log_density(rng.normal(size=4000)).mean(), 1))  # the entropy of a normal is 1.42
    1.4
    """
    weights = np.ones(len(values)) if weights is None else weights
    if not weights.sum():
        weights = np.ones(len(values))
    most = max(len(values) // ROWS_PER_BIN, 1)
    best, chosen = -math.inf, BINS[0]
    halves = [np.arange(len(values)) % 2 == i for i in range(2)]
    if all(weights[half].sum() for half in halves):
        for bins in (bins for bins in BINS if bins <= most):
            score = 0.0
            for half in halves:
                told = _curve(values[half], weights[half], bins).log_density(values[~half])
                score += float(weights[~half] @ told)
            if score > best:
                best, chosen = score, bins
    return _curve(values, weights, chosen)


def _curve(values: Floats, weights: Floats, bins: int) -> QuantileCurve:
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    effective = weights.sum() ** 2 / (weights**2).sum()
    reach = max(math.log(max(effective / ROWS_BEYOND - 1, 0.0) or 1.0), 1.0)
    logits = np.linspace(-reach, reach, bins + 1)
    shares = (np.cumsum(weights) - weights / 2) / weights.sum()
    places = np.interp(1 / (1 + np.exp(-logits)), shares, values)
    # quantiles that are one value, of a column that holds it often, become one knot
    gap = NARROWEST * (places[-1] - places[0])
    group = np.concatenate([[0], np.cumsum(np.diff(places) > gap)])
    members = np.bincount(group)
    places, logits = (np.bincount(group, weights=numbers) / members for numbers in (places, logits))
    if len(places) == 1:
        spread = float(np.sqrt(np.average((values - places[0]) ** 2, weights=weights))) or 1.0
        places, logits = np.array([places[0] - spread, places[0] + spread]), np.array([-reach, reach])
    return QuantileCurve(tuple(places.tolist()), tuple(logits.tolist()))


Marginal = Histogram | QuantileCurve


@dataclass(frozen=True)
class IndependentColumns:
    """The marginals of the columns that are modelled, in their order. A histogram gives the masses of codes, a curve
    the density on the scale of the column's own map.

    >>> import pyarrow as pa
    >>> from cubicflow.tables import TableEncoder, infer
    >>> from cubicflow.tables.source import MemoryTable
    >>> rows = pa.table({"word": ["a", "b", "b", "b"] * 25, "tame": [True, False] * 50})
    >>> encoder = TableEncoder(infer(MemoryTable(rows)).schema)
    >>> y = encoder.read(rows.to_batches()[0]).y
    >>> np.round(np.exp(IndependentColumns.learn(encoder.columns, y).log_prob(y[:2])), 1).tolist()
    [0.1, 0.4]
    """

    columns: tuple[Column, ...]
    marginals: tuple[Marginal, ...]

    @classmethod
    def learn(cls, columns: Sequence[Column], y: Floats, weights: Floats | None = None) -> IndependentColumns:
        """From the codes and values ``y`` (N, D) of training rows. A column whose map is a histogram of the training
        rows has its marginal already."""
        found = [_learn(column, y[:, i], weights) for i, column in enumerate(columns)]
        return cls(tuple(columns), tuple(found))

    def log_prob(self, y: Floats) -> Floats:
        """log p of every row (N, D) of codes and values, in nats and in the data's own units."""
        total = np.zeros(len(y))
        for i, (column, marginal) in enumerate(zip(self.columns, self.marginals, strict=True)):
            if isinstance(marginal, Histogram):
                total += marginal.log_mass(y[:, i])
            else:
                x, log_slope = column.needed_map.forward(y[:, i])
                total += marginal.log_density(x) + log_slope
        return total

    def to_json(self) -> list[dict[str, Any] | None]:
        """None stands for the histogram that is a column's own map."""
        pairs = zip(self.columns, self.marginals, strict=True)
        return [None if column.map == marginal else marginal.to_json() for column, marginal in pairs]

    @classmethod
    def from_json(cls, value: Any, columns: Sequence[Column]) -> IndependentColumns:
        """Trusts nothing."""
        if not isinstance(value, list) or len(value) != len(columns):
            raise TableError(f"there should be a marginal for each of {len(columns)} columns")
        found = tuple(_from_json(item, column) for item, column in zip(value, columns, strict=True))
        for marginal, column in zip(found, columns, strict=True):
            if isinstance(marginal, Histogram) != column.counts_mass:
                raise TableError(f"the marginal of column {column.name!r} does not count what the column counts")
        return cls(tuple(columns), found)


def _learn(column: Column, y: Floats, weights: Floats | None) -> Marginal:
    if isinstance(column.map, Histogram):
        return column.map
    if not column.counts_mass:
        return fit_quantile_curve(column.needed_map.forward(y)[0], weights)
    counts = CodeCounts()
    counts.see(y.astype(np.int64), weights)
    low, high = column.needed_map.limits
    first = None if math.isinf(low) else math.ceil(low)
    return histogram_of_codes(counts, first, None if math.isinf(high) else math.ceil(high) - 1)


def _from_json(value: Any, column: Column) -> Marginal:
    if value is None and isinstance(column.map, Histogram):
        return column.map
    if isinstance(value, dict) and value.get("type") == "quantiles":
        try:
            return QuantileCurve(*(tuple(map(float, value[key])) for key in ("places", "logits")))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise TableError(f"the marginal of column {column.name!r} is not described rightly: {error}") from None
    marginal = map_from_json(value)
    if not isinstance(marginal, Histogram):
        raise TableError(f"the marginal of column {column.name!r} is none")
    return marginal
