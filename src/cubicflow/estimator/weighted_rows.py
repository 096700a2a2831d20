"""Rows and how often each occurs: the one thing a fit may depend on, beside its seed.

Where all columns have densities, equal rows become one and rows stand in the order of their values. Then a weight of 2
and a row that occurs twice are the same input, a weight of 0 is a row left out, and the order of rows is forgotten: not
nearly, but bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cubicflow.tables.encoder import Numbers, TableEncoder

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class WeightedRows:
    """Rows on the flow's own scale: ``x`` (N, D), ``context`` (N, C) or None, ``weights`` (N,), and ``log_det`` (N,) of
    the map from the data's units to x."""

    x: Floats
    context: Floats | None
    weights: Floats
    log_det: Floats

    def __len__(self) -> int:
        return len(self.x)


def distinct(rows: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """The distinct rows of positive weight, sorted, and the sum of each one's weights.

    >>> distinct(np.array([[2.0], [1.0], [2.0], [3.0]]), np.array([1.0, 1.0, 2.0, 0.0]))
    (array([[1.],
           [2.]]), array([1., 3.]))
    """
    kept = weights > 0
    found, places = np.unique(rows[kept], axis=0, return_inverse=True)
    counts: Floats = np.bincount(places.reshape(-1), weights=weights[kept], minlength=len(found)).astype(np.float64)
    return found, counts


def encode(encoder: TableEncoder, numbers: Numbers, weights: Floats, generator: np.random.Generator) -> WeightedRows:
    """Rows for a flow. Columns with masses are dequantised once: equal rows meet different noise and stay apart."""
    columns = numbers.y if numbers.context is None else np.concatenate([numbers.y, numbers.context], axis=1)
    if encoder.mass_features:
        columns, weights = columns[weights > 0], weights[weights > 0]
        order = np.lexsort(columns.T[::-1])
        columns, weights = columns[order], weights[order]
    else:
        columns, weights = distinct(columns, weights)
    y, context = np.split(columns, [encoder.features], axis=1)
    noise = encoder.noise(len(y), generator) if encoder.mass_features else None
    x, log_det = encoder.to_flow(y, noise)
    return WeightedRows(x, context if encoder.context_features else None, at_least_as_many(weights), log_det)


def at_least_as_many(weights: Floats) -> Floats:
    """Weights count rows. Some sum to 1 instead: they are raised to count the equal rows that would say as much (Kish).

    >>> at_least_as_many(np.array([0.25, 0.25, 0.25, 0.25])), at_least_as_many(np.array([1.0, 3.0]))
    (array([1., 1., 1., 1.]), array([1., 3.]))
    """
    return weights * max(1.0, _to_worth(weights))


def as_many_as_worth(weights: Floats) -> Floats:
    """Weights that sum to the number of equal rows that would say as much (Kish), whatever their unit.

    >>> as_many_as_worth(np.array([0.25, 0.25, 0.25, 0.25])), as_many_as_worth(np.array([8.0, 8.0]))
    (array([1., 1., 1., 1.]), array([1., 1.]))
    """
    return weights * _to_worth(weights)


def _to_worth(weights: Floats) -> float:
    return float(weights.sum() / np.square(weights).sum())
