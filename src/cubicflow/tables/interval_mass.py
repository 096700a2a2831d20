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

import math

import numpy as np
import torch
from torch import Tensor

from cubicflow.splines.bins import Bins
from cubicflow.splines.cubic import cubic_shape
from cubicflow.splines.evaluation import Axis, BinIndex, locate
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.unit_spline import bins_of, reflected, unit_spline

NARROW = 0.01  # width of an interval, relative to the distance from the nearer end; narrower ones take the mean slope
DIGITS = 48  # binary digits of a place; two more places would be equal up to rounding


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
    mirrored = low > high
    bins = bins_of(torch.where(mirrored[..., None], reflected(params, closed=closed), params), closed=closed)
    return _log_mean_slope(torch.where(mirrored, high, low), log_width.exp(), bins)


def log_masses(low: Floats, high: Floats, log_width: Floats, params: Tensor | None, *, closed: bool) -> Tensor:
    """Return the log masses (N, J) of J intervals under each of N splines, in float64.

    Args:
        low, high, log_width: (J,), as in :func:`log_mean_density`.
        params: (N, P), or None for the identity; then N is 1.
        closed: as in :func:`log_mean_density`.

    An interval that is wide, compared with its distance from the nearer end, is a difference of the spline's values
    seen from that end: it loses few digits, and fast kernels compute the values.

    >>> low, high, log_width = np.array([0.0, 1.0]), np.array([0.5, 0.0]), np.array([math.log(0.5), -400.0])
    >>> log_masses(low, high, log_width, torch.zeros(1, 18, dtype=torch.float64), closed=False).tolist()
    [[-0.6931471805599453, -400.0]]
    """
    if params is None:
        return torch.from_numpy(log_width)[None]
    near, is_above = np.minimum(low, high), low > high
    with np.errstate(divide="ignore"):
        is_narrow = log_width < np.log(near) + math.log(NARROW)
    found = params.new_empty(len(params), len(low))
    for side in (False, True):
        own = (reflected(params, closed=closed) if side else params)[:, None]
        for narrow in (False, True):
            chosen = np.flatnonzero((is_above == side) & (is_narrow == narrow))
            if not len(chosen):
                continue
            if narrow:
                a, log_w = (torch.from_numpy(each[chosen]).to(params.device) for each in (near, log_width))
                each, widths = (part.expand(len(params), -1) for part in (a, log_w.exp()))
                masses = log_w + _log_mean_slope(each, widths, bins_of(own, closed=closed))
            else:
                ends = np.stack([near[chosen], near[chosen] + np.exp(log_width[chosen])])
                # Neighbouring intervals share an end, up to a few roundings.
                digits, exponents = np.frexp(np.minimum(ends, 1))
                ends = np.ldexp(np.round(digits * 2.0**DIGITS), exponents - DIGITS)
                places, index = np.unique(ends, return_inverse=True)
                at = torch.from_numpy(places).to(params.device)
                values = unit_spline(at.expand(len(params), -1), own, closed=closed)[0]
                start, end = (values[:, torch.from_numpy(each).to(params.device)] for each in index.reshape(2, -1))
                masses = (end - start).log()
            found[:, torch.from_numpy(chosen).to(params.device)] = masses
    return found


def places_inside(
    low: Tensor, high: Tensor, log_width: Tensor, params: Tensor | None, uniform: Tensor, *, closed: bool
) -> tuple[Tensor, Tensor]:
    """Return a place inside each interval (N,), as its distances from 0 and from 1.

    ``uniform`` (N,) is the share of the interval's mass between the end nearer to 0 or 1 and the place. ``params``
    (N, P) are a spline for each interval, or None for the identity.
    """
    is_above = low > high
    a = torch.where(is_above, high, low)
    end = (a + log_width.exp()).clamp(max=1)
    if params is None:
        place = a + uniform * (end - a)
    else:
        own = torch.where(is_above[:, None], reflected(params, closed=closed), params)
        before, after = unit_spline(torch.stack([a, end], dim=1), own[:, None], closed=closed)[0].unbind(1)
        inside = (before + uniform * (after - before)).clamp(0, 1)
        place = unit_spline(inside, own, closed=closed, inverse=True)[0].clamp(a, end)
    return torch.where(is_above, 1 - place, place), torch.where(is_above, place, 1 - place)


def _log_mean_slope(a: Tensor, width: Tensor, bins: Bins) -> Tensor:
    """Return the log of the mean slope of splines over [a, a + width], where a is at most 1/2."""
    across, upwards = Axis.of(bins.widths), Axis.of(bins.heights)
    from_low = torch.ones_like(a, dtype=torch.bool)
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
