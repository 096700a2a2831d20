"""Weights of samples: the number of equal samples that they are worth, and samples drawn in proportion to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


def effective_size(weights: NDArray[np.float64] | Tensor) -> float:
    """Return Kish's effective sample size, (sum w)^2 / sum w^2; 0 if all weights are 0.

    >>> effective_size(np.array([1.0, 1.0, 2.0]))
    2.6666666666666665
    """
    largest = float(weights.max()) if len(weights) else 0.0
    if largest == 0:
        return 0.0
    relative = weights / largest  # so that squares do not underflow
    return float(relative.sum() ** 2 / (relative**2).sum())


def systematic(weights: NDArray[np.float64], n: int, offset: float | NDArray[np.float64]) -> NDArray[np.int64]:
    """Return n indices (..., n), drawn in proportion to weights (..., P) by systematic resampling.

    The count of each index is n times its share of the weight, rounded up or down.

    Args:
        offset: a uniform random number in [0, 1); for several rows of weights, one for each, (..., 1).

    >>> systematic(np.array([0.5, 0.25, 0.25]), 4, 0.3).tolist()
    [0, 0, 1, 2]
    """
    ends = np.cumsum(weights, axis=-1)
    marks = (np.arange(n) + offset) / n * ends[..., -1:]
    is_row = weights.ndim == 1
    found = np.searchsorted(ends, marks, "right") if is_row else (ends[..., None, :] <= marks[..., None]).sum(-1)
    chosen: NDArray[np.int64] = np.minimum(found, weights.shape[-1] - 1)  # rounding can put a mark beyond the last end
    return chosen
