"""Weights of samples: the number of equal samples that they are worth, draws in proportion to them, and quantiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float64]


def effective_size(weights: Floats | Tensor) -> float:
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
    return _places(ends, (np.arange(n) + offset) / n * ends[..., -1:], "right")


def weighted_quantiles(
    values: NDArray[np.float64], weights: NDArray[np.float64], marks: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return for each mark the smallest value (..., P) such that it and all smaller values have at least that weight.

    A quantile is one of the values. A mark beyond the total weight gives the largest value.

    Args:
        marks: weights (L,) or (..., L): levels, multiplied by the total weight.

    >>> weighted_quantiles(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.5])).tolist()
    [1.0, 2.0, 3.0]
    """
    order = np.argsort(values, axis=-1, kind="stable")
    ends = np.cumsum(np.take_along_axis(weights, order, -1), axis=-1)
    places = _places(ends, marks * (1 - values.shape[-1] * np.finfo(np.float64).eps), "left")  # rounding of the sums
    found: NDArray[np.float64] = np.take_along_axis(np.take_along_axis(values, order, -1), places, -1)
    return found


def _places(ends: NDArray[np.float64], marks: NDArray[np.float64], side: Literal["left", "right"]) -> NDArray[np.int64]:
    """Return where marks (..., L) belong among cumulated weights (..., P), as ``np.searchsorted`` does for one row."""
    if ends.ndim == 1:
        found = np.searchsorted(ends, marks, side)
    else:
        compare = np.less if side == "left" else np.less_equal
        found = compare(ends[..., None, :], marks[..., None]).sum(-1)
    places: NDArray[np.int64] = np.minimum(found, ends.shape[-1] - 1)  # rounding can put a mark beyond the last end
    return places
