"""The probability of an interval under a cubic spline on [0, 1], with a small relative error even if tiny.

The spline is the distribution function F of a number on [0, 1]. The difference F(b) - F(a) of two rounded numbers has
an absolute error of about 1e-16. A mass of 1e-12 would keep four digits, and in float32 none. Here no large numbers are
subtracted:

1. An interval is given by its distances from both ends of [0, 1] and by its width, three separate numbers. It is
   measured from the nearer end. From the upper end, the spline is the mirrored one.
2. Inside one bin F is a cubic and its slope a quadratic. Simpson's rule gives the mean slope over the interval exactly,
   as a sum of positive terms. The mass is the width times that mean.
3. An interval that crosses knots is the rest of its first bin, the whole bins between, and the beginning of its last
   bin: again a sum of positive terms. The two pieces beside a single knot add up to the width, so a rounding error of
   the knot moves probability from one piece to the other and does not change the sum.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cubicflow.splines.cubic import cubic_shape
from cubicflow.splines.evaluation import Axis, BinIndex, locate
from cubicflow.tables.unit_spline import bins_of


def log_mean_density(low: Tensor, high: Tensor, log_width: Tensor, params: Tensor, *, closed: bool = False) -> Tensor:
    """Return log((F(b) - F(a)) / (b - a)), each element under a spline of its own.

    Args:
        low: a, the distance of the interval's lower end from 0; any shape.
        high: 1 - b, the distance of the interval's upper end from 1.
        log_width: log(b - a), given separately because a and b may not resolve it.
        params: those of :func:`cubicflow.splines.cubic_spline`: K widths, K heights and two edge slopes in the last
            axis.
        closed: whether the slope is the same at both ends; then the first edge slope is used for both.

    >>> low, width = torch.tensor(0.25, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64)
    >>> log_mean_density(low, 1 - low - width, width.log(), torch.zeros(18, dtype=torch.float64)).abs() < 1e-12
    tensor(True)
    """
    num_bins = (params.shape[-1] - 2) // 2
    mirrored = low > high
    from_above = torch.cat(
        [
            params[..., :num_bins].flip(-1),
            params[..., num_bins : 2 * num_bins].flip(-1),
            params[..., -2:-1] if closed else params[..., -1:],
            params[..., -2:-1],
        ],
        dim=-1,
    )
    bins = bins_of(torch.where(mirrored[..., None], from_above, params), closed=closed)
    a = torch.where(mirrored, high, low)
    width = log_width.exp()
    across, upwards = Axis.of(bins.widths), Axis.of(bins.heights)
    from_low = torch.ones_like(mirrored)
    first, last = (locate(across, place, from_low) for place in (a, a + width))
    after = _next(first)

    size, rise = first.pick(bins.widths), first.pick(bins.heights)
    start, end = first.pick(bins.start), first.pick(bins.end)
    t = ((a - first.pick(across.before)) / size).clamp(0, 1)
    span = torch.minimum(width / size, 1 - t)
    middle = cubic_shape(t + span / 2, 1 - t - span / 2, start, end).slope
    ends = cubic_shape(t, 1 - t, start, end).slope + cubic_shape(t + span, 1 - t - span, start, end).slope
    inside = rise / size * (ends + 4 * middle) / 6

    # The interval covers the share ``left`` of its first bin and the share ``begun`` of its last bin.
    left = torch.minimum((after.pick(across.before) - a).clamp(min=0), width) / size
    rest = rise * left * cubic_shape(1 - left, left, start, end).qbar
    size, rise = last.pick(bins.widths), last.pick(bins.heights)
    begun = ((width - (last.pick(across.before) - a)) / size).clamp(0, 1)
    beginning = rise * begun * cubic_shape(begun, 1 - begun, last.pick(bins.start), last.pick(bins.end)).q
    whole = torch.where(last.bin > first.bin + 1, last.pick(upwards.before) - after.pick(upwards.before), 0)
    # A width that underflows to 0 crosses no knot. The 1 keeps NaN gradients out of the branch that is not taken.
    crossing = first.bin != last.bin
    across_knots = (rest + whole + beginning) / torch.where(crossing, width, 1)
    return torch.where(crossing, across_knots, inside).clamp(min=torch.finfo(inside.dtype).tiny).log()


def _next(index: BinIndex) -> BinIndex:
    """Return the index of the next bin, or of the last bin again."""
    bin = (index.bin + 1).clamp(max=index.num_bins - 1)
    return index.moved_to(bin)
