"""Gregory and Delbourgo's rational-quadratic spline, as in neural spline flows, with every knot's slope trainable.

In the unit bin, with D = t^2 + (a + b) t tau + tau^2 > 0:

    f = t q,  q = (a tau + t) / D        1 - f = tau qbar,  qbar = (b t + tau) / D
    f' = (a tau^2 + 2 t tau + b t^2) / D^2
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from cubicflow.splines.bins import MARGIN, Bins, bins_from_slopes, closed_bins, floored_softmax
from cubicflow.splines.evaluation import Shape, UnitMap

SOFTPLUS_ONE = math.log(math.e - 1)  # softplus of it is 1


def rational_quadratic_bins(params: Tensor, num_bins: int, min_bin_width: float, min_bin_height: float) -> Bins:
    """params: K widths, K heights, K + 1 slopes."""
    widths = floored_softmax(params[..., :num_bins], min_bin_width)
    heights = floored_softmax(params[..., num_bins : 2 * num_bins], min_bin_height)
    # torch's softplus is the identity above its threshold, 20 by default, where float64 still sees the step.
    slopes = MARGIN + (1 - MARGIN) * F.softplus(params[..., 2 * num_bins :] + SOFTPLUS_ONE, threshold=40)
    return bins_from_slopes(widths, heights, slopes)


def rational_quadratic_ring(params: Tensor, num_bins: int, min_bin_width: float, min_bin_height: float) -> Bins:
    """params: as on the interval, but for the last one, which is a rotation; the first slope is that of the seam."""
    bins = rational_quadratic_bins(params, num_bins, min_bin_width, min_bin_height)
    return closed_bins(bins, bins.start[..., :1] * (bins.heights / bins.widths)[..., :1], params)


def rational_quadratic_shape(t: Tensor, tau: Tensor, start: Tensor, end: Tensor) -> Shape:
    tt, mixed, tautau = t * t, t * tau, tau * tau
    denominator = tt + (start + end) * mixed + tautau
    return Shape(
        q=(start * tau + t) / denominator,
        qbar=(end * t + tau) / denominator,
        slope=(start * tautau + 2 * mixed + end * tt) / (denominator * denominator),
    )


def rational_quadratic_root(start: Tensor, end: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """(1 - B) t^2 + B t = c with B = a - c (a + b - 2).

    The discriminant B^2 + 4 c (1 - B) is (B - 2c)^2 + 4 c (1 - c), a sum of squares. Of the quadratic's two forms each
    branch takes the one that adds numbers of one sign; the branch that is not taken is given a harmless denominator.

    An end slope of many secants may put t so near to 1 that one minus it would be noise. Seen from the other end B is
    2 - B, c is 1 - c and the discriminant is the same; t > 1/2 >= c only where 2 - B > 0, since B >= 2 would mean
    t <= c / (B - c) <= 1/3.
    """
    slope = start * (1 - c) + (2 - end) * c
    root = ((slope - 2 * c).square() + 4 * c * (1 - c)).sqrt()
    rising = slope >= 0
    from_low = 2 * c / torch.where(rising, slope + root, 1)
    from_high = (root - slope) / torch.where(rising, 1, 2 * (1 - slope))
    t = torch.where(rising, from_low, from_high)
    beyond = t > 0.5
    rest = torch.where(beyond, 2 * (1 - c) / torch.where(beyond, 2 - slope + root, 1), 1 - t)
    return torch.where(beyond, 1 - rest, t), rest  # the gradient of t, too, would be noise there


RATIONAL_QUADRATIC = UnitMap(rational_quadratic_shape, rational_quadratic_root)
