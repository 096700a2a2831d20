"""Gregory and Delbourgo's rational-quadratic spline, as in neural spline flows. The slope at every knot is trainable.

In the unit bin, with D = t^2 + (a + b) t tau + tau^2 > 0:

    f = t q,  q = (a tau + t) / D        1 - f = tau qbar,  qbar = (b t + tau) / D
    f' = (a tau^2 + 2 t tau + b t^2) / D^2
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from cubicflow.splines.bins import MARGIN, Bins, bins_from_slopes, floored_softmax, periodic_bins
from cubicflow.splines.evaluation import Shape, UnitMap

SOFTPLUS_ONE = math.log(math.e - 1)  # softplus(SOFTPLUS_ONE) = 1


def rational_quadratic_bins(params: Tensor, num_bins: int, min_bin_width: float, min_bin_height: float) -> Bins:
    """Return the bins of the interval. params: K widths, K heights, K + 1 slopes."""
    widths = floored_softmax(params[..., :num_bins], min_bin_width)
    heights = floored_softmax(params[..., num_bins : 2 * num_bins], min_bin_height)
    # Above its threshold torch's softplus is the identity. With the default threshold of 20, softplus has a jump that
    # is visible in float64.
    slopes = MARGIN + (1 - MARGIN) * F.softplus(params[..., 2 * num_bins :] + SOFTPLUS_ONE, threshold=40)
    return bins_from_slopes(widths, heights, slopes)


def rational_quadratic_circle(params: Tensor, num_bins: int, min_bin_width: float, min_bin_height: float) -> Bins:
    """Return the bins of the circle. params: as on the interval, but the last one is a rotation. The first slope param
    is the slope at the seam."""
    bins = rational_quadratic_bins(params, num_bins, min_bin_width, min_bin_height)
    return periodic_bins(bins, bins.start[..., :1] * (bins.heights / bins.widths)[..., :1], params)


def rational_quadratic_shape(t: Tensor, tau: Tensor, start: Tensor, end: Tensor) -> Shape:
    tt, mixed, tautau = t * t, t * tau, tau * tau
    denominator = tt + (start + end) * mixed + tautau
    return Shape(
        q=(start * tau + t) / denominator,
        qbar=(end * t + tau) / denominator,
        slope=(start * tautau + 2 * mixed + end * tt) / (denominator * denominator),
    )


def rational_quadratic_root(start: Tensor, end: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Return t and 1 - t, where (1 - B) t^2 + B t = c with B = a - c (a + b - 2).

    The discriminant B^2 + 4 c (1 - B) equals (B - 2c)^2 + 4 c (1 - c), a sum of nonnegative terms. Each branch uses the
    form of the quadratic formula that adds numbers of one sign. The branch that is not taken gets the denominator 1.

    If an end slope is many times the secant, t may be so near to 1 that the subtraction 1 - t would leave only rounding
    errors. For t > 1/2 the root is therefore computed from the other end, where B becomes 2 - B, c becomes 1 - c and
    the discriminant is the same. The denominator is positive there: t > 1/2 >= c implies 2 - B > 0, because B >= 2
    would imply t <= c / (B - c) <= 1/3.
    """
    slope = start * (1 - c) + (2 - end) * c
    root = ((slope - 2 * c).square() + 4 * c * (1 - c)).sqrt()
    rising = slope >= 0
    from_low = 2 * c / torch.where(rising, slope + root, 1)
    from_high = (root - slope) / torch.where(rising, 1, 2 * (1 - slope))
    t = torch.where(rising, from_low, from_high)
    beyond = t > 0.5
    rest = torch.where(beyond, 2 * (1 - c) / torch.where(beyond, 2 - slope + root, 1), 1 - t)
    return torch.where(beyond, 1 - rest, t), rest  # beyond 1/2 the gradient of t itself would be imprecise


RATIONAL_QUADRATIC = UnitMap(rational_quadratic_shape, rational_quadratic_root)
