"""Müller et al.'s linear spline: bins of equal width, heights by softmax. The spline is continuous but not C1."""

from __future__ import annotations

import torch
from torch import Tensor

from cubicflow.splines.bins import Bins, floored_softmax
from cubicflow.splines.evaluation import Shape, UnitMap


def linear_bins(params: Tensor, num_bins: int, min_bin_width: float, min_bin_height: float) -> Bins:
    """Return bins of equal width. params: K heights."""
    heights = floored_softmax(params, min_bin_height)
    ones = torch.ones_like(heights)
    return Bins(ones / num_bins, heights, ones, ones)


def linear_shape(t: Tensor, tau: Tensor, start: Tensor, end: Tensor) -> Shape:
    ones = 1 + 0 * t  # NaN where t is NaN
    return Shape(ones, ones, ones)


def linear_root(start: Tensor, end: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    return c, 1 - c


LINEAR = UnitMap(linear_shape, linear_root)
