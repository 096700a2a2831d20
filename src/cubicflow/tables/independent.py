"""Independent columns: a marginal for each column, learned from training rows alone, and the score of a row under them.

Independent columns are a baseline: a model scores higher only by learning how columns depend on one another. The
difference is the model's gain. The marginals have the same units as the model: a mass for a column with masses, a
density per unit for others.
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
from cubicflow.weights import effective_size

BINS = (1, 2, 4, 8, 16, 32, 64, 128)  # candidate numbers of bins for a column with a density
ROWS_PER_BIN = 8  # smallest mean number of rows in a bin
ROWS_BEYOND = 2.5  # rows beyond each outermost quantile, so that no single row decides a tail
NARROWEST = 1e-9  # narrowest bin, as a share of the range; closer quantiles are merged


@dataclass(frozen=True)
class QuantileCurve:
    """A density on the real line: the distribution function is the sigmoid of a monotone cubic through quantiles.

    ``places`` are quantiles, and ``logits`` are the logits of their probabilities. Beyond the outermost quantiles the
    cubic continues as a straight line, so the tails are exponential and every value has a finite log density.

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
            raise ValueError("places and logits should have the same length")

    @cached_property
    def _knots(self) -> tuple[Tensor, Tensor, Tensor]:
        places, logits = (torch.tensor(values, dtype=torch.float64) for values in (self.places, self.logits))
        secants = logits.diff() / places.diff()
        # The harmonic mean of Fritsch and Butland is positive and at most twice either secant, so the cubic increases.
        inner = 2 / (1 / secants[:-1] + 1 / secants[1:])
        return places, logits, torch.cat([secants[:1], inner, secants[-1:]])

    def log_density(self, values: Floats) -> Floats:
        """Return the log density of every value."""
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
    """Return the curve of some values. The number of bins is chosen by two-fold cross-validation.

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
                log_density = _curve(values[half], weights[half], bins).log_density(values[~half])
                score += float(weights[~half] @ log_density)
            if score > best:
                best, chosen = score, bins
    return _curve(values, weights, chosen)


def _curve(values: Floats, weights: Floats, bins: int) -> QuantileCurve:
    """Return the curve with this many bins, whose edges have evenly spaced logits."""
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    outermost = max(math.log(max(effective_size(weights) / ROWS_BEYOND - 1, 0.0) or 1.0), 1.0)
    logits = np.linspace(-outermost, outermost, bins + 1)
    shares = (np.cumsum(weights) - weights / 2) / weights.sum()
    places = np.interp(1 / (1 + np.exp(-logits)), shares, values)
    # Quantiles that are equal, because a value is frequent, become one knot.
    gap = NARROWEST * (places[-1] - places[0])
    group = np.concatenate([[0], np.cumsum(np.diff(places) > gap)])
    members = np.bincount(group)
    places, logits = (np.bincount(group, weights=numbers) / members for numbers in (places, logits))
    if len(places) == 1:
        spread = float(np.sqrt(np.average((values - places[0]) ** 2, weights=weights))) or 1.0
        places, logits = np.array([places[0] - spread, places[0] + spread]), np.array([-outermost, outermost])
    return QuantileCurve(tuple(places.tolist()), tuple(logits.tolist()))


Marginal = Histogram | QuantileCurve


@dataclass(frozen=True)
class IndependentColumns:
    """The marginals of the modelled columns, in their order.

    A histogram gives the masses of codes. A curve gives the density on the scale of the column's map.

    >>> import pyarrow as pa
    >>> from cubicflow.tables import TableEncoder, infer
    >>> from cubicflow.tables.read.table import in_memory
    >>> rows = pa.table({"word": ["a", "b", "b", "b"] * 25, "tame": [True, False] * 50})
    >>> encoder = TableEncoder(infer(in_memory(rows)).schema)
    >>> y = encoder.read(rows.to_batches()[0]).y
    >>> np.round(np.exp(IndependentColumns.learn(encoder.columns, y).log_prob(y[:2])), 1).tolist()
    [0.1, 0.4]
    """

    columns: tuple[Column, ...]
    marginals: tuple[Marginal, ...]

    @classmethod
    def learn(cls, columns: Sequence[Column], y: Floats, weights: Floats | None = None) -> IndependentColumns:
        """Return the marginals of codes and values ``y`` (N, D) of training rows.

        A column whose map is a histogram of the training rows uses that histogram.
        """
        found = [_learn(column, y[:, i], weights) for i, column in enumerate(columns)]
        return cls(tuple(columns), tuple(found))

    def log_prob(self, y: Floats) -> Floats:
        """Return log p of every row (N, D) of codes and values, in nats and in the data's own units."""
        total = np.zeros(len(y))
        for i, (column, marginal) in enumerate(zip(self.columns, self.marginals, strict=True)):
            if isinstance(marginal, Histogram):
                total += marginal.log_mass(y[:, i])
            else:
                x, log_slope = column.needed_map.forward(y[:, i])
                total += marginal.log_density(x) + log_slope
        return total

    def to_json(self) -> list[dict[str, Any] | None]:
        """Return the marginals for JSON; None means the histogram that is the column's own map."""
        pairs = zip(self.columns, self.marginals, strict=True)
        return [None if column.map == marginal else marginal.to_json() for column, marginal in pairs]

    @classmethod
    def from_json(cls, value: Any, columns: Sequence[Column]) -> IndependentColumns:
        """Return the marginals that :meth:`to_json` wrote. Raises TableError for anything invalid."""
        if not isinstance(value, list) or len(value) != len(columns):
            raise TableError(f"marginals should be a list with one entry for each of {len(columns)} columns")
        found = tuple(_from_json(item, column) for item, column in zip(value, columns, strict=True))
        for marginal, column in zip(found, columns, strict=True):
            if isinstance(marginal, Histogram) != column.counts_mass:
                wanted = "a histogram" if column.counts_mass else "quantiles"
                raise TableError(f"the marginal of column {column.name!r} should be {wanted}")
        return cls(tuple(columns), found)


def _learn(column: Column, y: Floats, weights: Floats | None) -> Marginal:
    if isinstance(column.map, Histogram):
        return column.map
    if not column.counts_mass:
        return fit_quantile_curve(column.needed_map.forward(y)[0], weights)
    counts = CodeCounts()
    counts.update(y.astype(np.int64), weights)
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
            raise TableError(f"invalid marginal of column {column.name!r}: {error}") from None
    marginal = map_from_json(value)
    if not isinstance(marginal, Histogram):
        raise TableError(f"the marginal of column {column.name!r} should be quantiles or a histogram")
    return marginal
