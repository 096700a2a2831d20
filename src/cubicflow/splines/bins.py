"""From unconstrained parameters to bins: floored softmax, edge slopes, Steffen's interior slopes."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# The edge slopes are r(p) x secant with r strictly inside (MARGIN, 3 - MARGIN): at 0 the log-slope would be infinite,
# and at 3 a one-bin spline could have a stationary point inside its bin.
MARGIN = 1e-3
RATIO_SHIFT = math.log((2 - MARGIN) / (1 - MARGIN))  # makes r(0) = 1


class Bins(NamedTuple):
    """A monotone piecewise map of the unit interval, bin by bin; every field has shape (..., K).

    ``start`` and ``end`` are the slopes at a bin's two ends in units of its secant ``heights / widths``. ``rotation``,
    of a map of the circle, has shape (...) and is added to its outputs, in turns.
    """

    widths: Tensor
    heights: Tensor
    start: Tensor
    end: Tensor
    rotation: Tensor | None = None


def floored_softmax(logits: Tensor, floor: float) -> Tensor:
    """Positive numbers that sum to 1, none below ``floor``."""
    return floor + (1 - floor * logits.shape[-1]) * F.softmax(logits, dim=-1)


def slope_ratio(logits: Tensor) -> Tensor:
    """r of the design: strictly increasing onto (MARGIN, 3 - MARGIN), with r(0) = 1."""
    return MARGIN + (3 - 2 * MARGIN) * torch.sigmoid(logits - RATIO_SHIFT)


def bins_from_slopes(widths: Tensor, heights: Tensor, slopes: Tensor) -> Bins:
    """Bins whose slopes at the K + 1 knots are given."""
    secants = heights / widths
    return Bins(widths, heights, slopes[..., :-1] / secants, slopes[..., 1:] / secants)


def steffen_slopes(widths: Tensor, heights: Tensor) -> Tensor:
    """Steffen's (1990) slopes at the K - 1 interior knots of an increasing sequence.

    The slope of the parabola through three neighbouring knots, but never more than twice the smaller secant: a slope of
    at most 3 x secant at both ends of a bin keeps the cubic between them monotone, and 2 x also keeps it C1 without the
    flat spots that 3 would allow.
    """
    secants = heights / widths
    left, right = secants[..., :-1], secants[..., 1:]
    width_left, width_right = widths[..., :-1], widths[..., 1:]
    parabola = (left * width_right + right * width_left) / (width_left + width_right)
    return torch.minimum(parabola, 2 * torch.minimum(left, right))


def free_slopes(logits: Tensor, widths: Tensor, heights: Tensor) -> Tensor:
    """One trainable slope for each of the K - 1 interior knots, within (0, 3) x the smaller secant beside it."""
    secants = heights / widths
    return slope_ratio(logits) * torch.minimum(secants[..., :-1], secants[..., 1:])


def closed_bins(bins: Bins, seam: Tensor, params: Tensor) -> Bins:
    """Bins of the circle: the slope ``seam`` (..., 1) at both ends, and a rotation by the last of the params, in
    radians."""
    secants = bins.heights / bins.widths
    return Bins(
        widths=bins.widths,
        heights=bins.heights,
        start=torch.cat([seam / secants[..., :1], bins.start[..., 1:]], dim=-1),
        end=torch.cat([bins.end[..., :-1], seam / secants[..., -1:]], dim=-1),
        rotation=params[..., -1] / (2 * math.pi),
    )
