"""Rows with weights. A fit depends only on these rows and on its seed.

If all columns are continuous, equal rows are merged and the rows are sorted by value. Then a row with weight 2 gives
bit for bit the same fit as two equal rows. A row with weight 0 changes nothing, and the order of the rows does not
matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cubicflow.tables.model import FlowEncoder, Numbers
from cubicflow.weights import Floats, effective_size


@dataclass(frozen=True)
class WeightedRows:
    """Rows in the flow's units, with weights.

    Attributes:
        x: (N, D).
        context: (N, C) or None.
        weights: (N,).
        log_det: (N,), log-det of the map from the data's units to x.
    """

    x: Floats
    context: Floats | None
    weights: Floats
    log_det: Floats

    def __len__(self) -> int:
        return len(self.x)


def merged_duplicates(rows: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the distinct rows of positive weight, sorted, and the sum of the weights of each.

    >>> merged_duplicates(np.array([[2.0], [1.0], [2.0], [3.0]]), np.array([1.0, 1.0, 2.0, 0.0]))
    (array([[1.],
           [2.]]), array([1., 3.]))
    """
    kept = weights > 0
    found, places = np.unique(rows[kept], axis=0, return_inverse=True)
    counts: Floats = np.bincount(places.reshape(-1), weights=weights[kept], minlength=len(found)).astype(np.float64)
    return found, counts


def encode(encoder: FlowEncoder, numbers: Numbers, weights: Floats, generator: np.random.Generator) -> WeightedRows:
    """Return the rows in the flow's units.

    Columns with steps are dequantised once. Equal rows then get different noise, so they are sorted but not merged.
    """
    given = encoder.context_inputs(numbers.context)
    columns = numbers.y if given is None else np.concatenate([numbers.y, given], axis=1)
    if encoder.noise_features:
        columns, weights = columns[weights > 0], weights[weights > 0]
        order = np.lexsort(columns.T[::-1])
        columns, weights = columns[order], weights[order]
    else:
        columns, weights = merged_duplicates(columns, weights)
    y, context = np.split(columns, [encoder.features], axis=1)
    x, log_det = encoder.to_flow(y, encoder.noise(len(y), generator))
    return WeightedRows(x, None if given is None else context, at_least_effective(weights), log_det)


def at_least_effective(weights: Floats) -> Floats:
    """Scale weights up so that they sum to at least Kish's effective number of rows; larger weights are not changed.

    Weights are numbers of rows. The scaling is for weights in other units, for example weights that sum to 1.

    >>> at_least_effective(np.array([0.25, 0.25, 0.25, 0.25])), at_least_effective(np.array([1.0, 3.0]))
    (array([1., 1., 1., 1.]), array([1., 3.]))
    """
    return weights * max(1.0, effective_size(weights) / float(weights.sum()))


def effective_weights(weights: Floats) -> Floats:
    """Scale weights so that they sum to Kish's effective number of rows.

    >>> effective_weights(np.array([0.25, 0.25, 0.25, 0.25])), effective_weights(np.array([8.0, 8.0]))
    (array([1., 1., 1., 1.]), array([1., 1.]))
    """
    return weights * (effective_size(weights) / float(weights.sum()))
