"""Müller et al.'s quadratic spline: the integral of a piecewise-linear density.

In the unit bin a + b = 2, so f' = a tau + b t is linear and

    f = t q,  q = a tau + t        1 - f = tau qbar,  qbar = b t + tau
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from cubicflow.splines.bins import Bins, bins_from_slopes, floored_softmax
from cubicflow.splines.evaluation import Shape, UnitMap


def quadratic_bins(params: Tensor, num_bins: int, min_bin_width: float, min_bin_height: float) -> Bins:
    """Return the bins of the interval. params: K widths, then the densities at the K + 1 vertices.

    The floor on heights acts on the density: a share K x min_bin_height of the density is uniform. The area stays 1,
    and a bin of width w has a height of at least min_bin_height x w x K.
    """
    widths = floored_softmax(params[..., :num_bins], min_bin_width)
    vertices = F.softmax(params[..., num_bins:], dim=-1)  # exp up to a factor that cancels in vertices / area
    area = (widths * (vertices[..., :-1] + vertices[..., 1:])).sum(-1, keepdim=True) / 2
    uniform = num_bins * min_bin_height
    density = uniform + (1 - uniform) * vertices / area
    heights = widths * (density[..., :-1] + density[..., 1:]) / 2
    return bins_from_slopes(widths, heights, density)


def quadratic_circle(params: Tensor, num_bins: int, min_bin_width: float, min_bin_height: float) -> Bins:
    """Return the bins of the circle. params: as on the interval, but the last one is a rotation. The first vertex also
    serves as the last vertex."""
    both_ends = torch.cat([params[..., :-1], params[..., num_bins : num_bins + 1]], dim=-1)
    bins = quadratic_bins(both_ends, num_bins, min_bin_width, min_bin_height)
    return bins._replace(rotation=params[..., -1] / (2 * math.pi))


def quadratic_shape(t: Tensor, tau: Tensor, start: Tensor, end: Tensor) -> Shape:
    return Shape(q=start * tau + t, qbar=end * t + tau, slope=start * tau + end * t)


def quadratic_root(start: Tensor, end: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Return the root t, and 1 - t, of a t + (1 - a) t^2 = c.

    The discriminant a^2 + 4 (1 - a) c is written as a sum of nonnegative terms, so it cannot be negative. The
    denominator is a sum of nonnegative numbers, so it does not cancel.
    """
    discriminant = (start - 2 * c).square() + 4 * c * (1 - c)
    t = 2 * c / (start + discriminant.sqrt())
    return t, 1 - t


QUADRATIC = UnitMap(quadratic_shape, quadratic_root)
