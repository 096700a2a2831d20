"""Sixteen points in the unit cube, the same for every row and every machine, at which a probability is averaged."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from cubicflow.tables.splits import scramble

COUNT = 16
TRIES = 32


@cache
def offsets(features: int) -> NDArray[np.float64]:
    """(16, features) offsets in (0, 1): a Latin hypercube.

    In every column each sixteenth of the interval holds one point, at its middle: exact to second order for a density
    that varies in one column. The order in a column is the one of 32 hashed permutations that is least correlated with
    the columns before it, so that pairs of columns are spread over the square as well.
    """
    middles = (np.arange(COUNT) + 0.5) / COUNT
    columns: list[NDArray[np.float64]] = []
    for i in range(features):
        seeds = np.arange(TRIES * COUNT, dtype=np.uint64).reshape(TRIES, COUNT) + np.uint64(i * TRIES * COUNT)
        candidates = middles[np.argsort(scramble(seeds), axis=1)]
        if columns:
            others = np.stack(columns[-4 * COUNT :], axis=1) - 0.5
            correlation = np.abs((candidates - 0.5) @ others).max(axis=1)
            columns.append(candidates[correlation.argmin()])
        else:
            columns.append(middles)
    result = np.stack(columns, axis=1) if columns else np.empty((COUNT, 0))
    result.setflags(write=False)
    return result
