"""Müller et al.'s linear spline: equal widths, heights by softmax. Continuous, but not C1."""

from __future__ import annotations

import torch
from torch import Tensor

from cubicflow.splines.bins import Bins, floored_softmax
from cubicflow.splines.evaluate import Family, Shape, with_rest
from cubicflow.splines.spec import SplineSpec


def linear_bins(params: Tensor, spec: SplineSpec) -> Bins:
    """params: K heights."""
    heights = floored_softmax(params, spec.min_bin_height)
    ones = torch.ones_like(heights)
    return Bins(ones / spec.num_bins, heights, ones, ones)


def linear_shape(t: Tensor, tau: Tensor, start: Tensor, end: Tensor) -> Shape:
    ones = 1 + 0 * t  # NaN where t is
    return Shape(ones, ones, ones)


def linear_root(start: Tensor, end: Tensor, c: Tensor) -> Tensor:
    return c


LINEAR = Family(linear_shape, with_rest(linear_root))
