"""Turn unconstrained parameters into bins: floored softmax, edge slopes, Steffen's interior slopes."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# The edge slopes are r(p) x secant, where r is strictly inside (MARGIN, 3 - MARGIN). At r = 0 the log-slope would be
# infinite. At r = 3 a one-bin spline could have a stationary point inside its bin.
MARGIN = 1e-3
RATIO_SHIFT = math.log((2 - MARGIN) / (1 - MARGIN))  # makes r(0) = 1


class Bins(NamedTuple):
    """The bins of a monotone piecewise map of the unit interval. Fields have shape (..., K).

    ``start`` and ``end`` are the slopes at a bin's two ends, in units of the bin's secant ``heights / widths``. Only a
    map of the circle has a ``rotation``. The rotation has shape (...), is measured in turns, and is added to outputs.
    """

    widths: Tensor
    heights: Tensor
    start: Tensor
    end: Tensor
    rotation: Tensor | None = None


def floored_softmax(logits: Tensor, floor: float) -> Tensor:
    """Return a softmax over the last axis, rescaled so that every entry is at least ``floor`` and the sum stays 1."""
    return floor + (1 - floor * logits.shape[-1]) * F.softmax(logits, dim=-1)


def slope_ratio(logits: Tensor) -> Tensor:
    """Return r(logits): a strictly increasing function onto (MARGIN, 3 - MARGIN) with r(0) = 1."""
    return MARGIN + (3 - 2 * MARGIN) * torch.sigmoid(logits - RATIO_SHIFT)


def bins_from_slopes(widths: Tensor, heights: Tensor, slopes: Tensor) -> Bins:
    """Return the bins with the given slopes at their K + 1 knots."""
    secants = heights / widths
    return Bins(widths, heights, slopes[..., :-1] / secants, slopes[..., 1:] / secants)


def steffen_slopes(widths: Tensor, heights: Tensor) -> Tensor:
    """Return Steffen's (1990) slopes at the K - 1 interior knots of an increasing sequence.

    Steffen's slope is the slope of the parabola through three neighbouring knots, limited to twice the smaller secant.
    A slope of at most 3 x secant at both ends of a bin keeps the cubic between them monotone. The limit 2 x secant also
    avoids the flat spots that 3 x secant would allow.
    """
    secants = heights / widths
    left, right = secants[..., :-1], secants[..., 1:]
    width_left, width_right = widths[..., :-1], widths[..., 1:]
    parabola = (left * width_right + right * width_left) / (width_left + width_right)
    return torch.minimum(parabola, 2 * torch.minimum(left, right))


def free_slopes(logits: Tensor, widths: Tensor, heights: Tensor) -> Tensor:
    """Return one trainable slope for each of the K - 1 interior knots: r(logits) x the smaller adjacent secant."""
    secants = heights / widths
    return slope_ratio(logits) * torch.minimum(secants[..., :-1], secants[..., 1:])


def periodic_bins(bins: Bins, seam: Tensor, params: Tensor) -> Bins:
    """Return bins of the circle: the slope at both ends is ``seam`` (..., 1), and the last param is a rotation in
    radians."""
    secants = bins.heights / bins.widths
    return Bins(
        widths=bins.widths,
        heights=bins.heights,
        start=torch.cat([seam / secants[..., :1], bins.start[..., 1:]], dim=-1),
        end=torch.cat([bins.end[..., :-1], seam / secants[..., -1:]], dim=-1),
        rotation=params[..., -1] / (2 * math.pi),
    )
