"""The spline of a column: the distribution function F of a number on [0, 1], and masses F(b) - F(a) of intervals.

The model, its scores, its samples and every answer evaluate a column's spline here and nowhere else.

The difference F(b) - F(a) of two rounded numbers has an absolute error of about 1e-16. A mass of 1e-12 would keep four
digits, and in float32 none. Here no large numbers are subtracted:

1. An interval is given by its distances from both ends of [0, 1] and by its width, three separate numbers. It is
   measured from the nearer end. From the upper end, the spline is the mirrored one.
2. Inside one bin F is a cubic and its slope a quadratic. Simpson's rule gives the mean slope over the interval exactly,
   as a sum of positive terms. The mass is the width times that mean.
3. An interval that crosses knots is the rest of its first bin, the whole bins between, and the beginning of its last
   bin: again a sum of positive terms. The two pieces beside a single knot add up to the width, so a rounding error of
   the knot moves probability from one piece to the other and does not change the sum.

A ``closed`` spline belongs to a circle of circumference 1 that is cut open at 0: it has the same slope at both ends.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from cubicflow.nets.tracing import constant_tensor
from cubicflow.splines import cubic_spline
from cubicflow.splines.bins import Bins
from cubicflow.splines.cubic import CUBIC, cubic_bins, cubic_circle, cubic_shape
from cubicflow.splines.evaluation import BinIndex, Knots, evaluate_unit, locate
from cubicflow.tables.arrow_types import Floats

LEAST_BIN = 1e-3  # smallest width and height of a bin, as in cubic_spline
MOST_FLOORED = 0.1  # largest share of the unit interval that these floors may take
WIDE = 0.02  # width on [0, 1]; training takes the mean density of a narrower interval by Gauss's two-point rule
GAUSS = 0.5 / math.sqrt(3)  # distance of Gauss's points from the middle of an interval, in widths
NARROW = 1e-3  # width of an interval, relative to the distance from the nearer end; narrower ones take the mean slope
NARROW_IF_ROUNDED = 1e-7  # the same ratio, where seven digits of a mass suffice
SAME = 1e-14  # relative difference of places that are equal up to roundings, such as the ends of neighbours


# --- the forms that the model uses: one number or interval per row and column ---


def log_densities(cells: Tensor, params: Tensor, *, points: bool, closed: bool, fast: bool) -> Tensor:
    """Return log densities on [0, 1] of points, or log mean densities of intervals, (N, I).

    Args:
        cells, params: the cells (N, I, 4), and the params (N, I, P) of a spline for each.
        points: whether the cells are points.
        fast: whether the densities of intervals may have errors that do not matter in training.
    """
    _, low, high, log_width = cells.unbind(2)
    if points:
        return log_slopes(low, high, params, closed=closed)
    if fast:
        return _fast_log_mean_density(low, high, log_width, params, closed=closed)
    # The width follows from the distances. If the interval is too narrow for its distances, the log_size replaces the
    # log width: the density is nearly constant there. The log_size is slightly smaller, by the probability of unseen
    # values.
    between, least = 1 - low - high, math.sqrt(torch.finfo(cells.dtype).eps)
    log_width = torch.where(between > least, between.clamp(min=least).log(), log_width)
    return log_mean_density(low, high, log_width, params, closed=closed)


def _fast_log_mean_density(low: Tensor, high: Tensor, log_width: Tensor, params: Tensor, *, closed: bool) -> Tensor:
    """Return :func:`log_mean_density` approximately, by the fast spline kernels.

    The mean density of a wide interval follows from the spline's values at both ends, and that of a narrow interval
    from the slopes at two points inside.
    """
    width = log_width.exp()
    middle = torch.where(low <= high, low + width / 2, 1 - high - width / 2)
    offsets = width[..., None] * constant_tensor([-0.5, -GAUSS, GAUSS, 0.5], width.device, width.dtype)
    points = (middle[..., None] + offsets).clamp(0, 1)  # (N, I, 4)
    values, log_slopes = unit_spline(points, params[:, :, None], closed=closed)
    across = (values[..., 3] - values[..., 0]).clamp(min=1e-12) / width.clamp(min=WIDE)
    narrow = torch.logaddexp(log_slopes[..., 1], log_slopes[..., 2]) - math.log(2)
    return torch.where(width > WIDE, across.log(), narrow)


def place_of(share: Tensor, params: Tensor, *, closed: bool) -> Tensor:
    """Return the place on [0, 1] below which a ``share`` of the probability lies: the inverse of F."""
    return unit_spline(share, params, closed=closed, inverse=True)[0]


def middle_of(low: Tensor, high: Tensor) -> Tensor:
    """Return the middle of an interval, given its distances from 0 and from 1."""
    return (1 + low - high) / 2


# --- slopes and masses ---


def log_slopes(low: Tensor, high: Tensor, params: Tensor, *, closed: bool) -> Tensor:
    """Return log F' at points, given their distances from 0 and from 1."""
    return unit_spline(middle_of(low, high).clamp(0, 1), params, closed=closed)[1]


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
    slope = _mean_slope(torch.where(mirrored, high, low), log_width.exp(), bins)
    return slope.clamp(min=torch.finfo(slope.dtype).tiny).log()


def masses_of(
    low: Floats, high: Floats, log_width: Floats, params: Tensor | None, *, closed: bool, narrow: float = NARROW
) -> Tensor:
    """Return the masses (J, N) of J intervals under each of N splines, in float64.

    Args:
        low, high, log_width: as in :func:`log_mean_density`; (J,) for all splines, or (N, J).
        params: (N, P), or None for the identity; then the result is (J, 1) for all splines.
        closed: as in :func:`log_mean_density`.
        narrow: as NARROW.

    An interval that is wide, compared with its distance from an end, is a difference of the spline's values seen from
    that end: it loses few digits, and fast kernels compute the values.

    >>> low, high, log_width = np.array([0.0, 1.0]), np.array([0.5, 0.0]), np.array([math.log(0.5), -400.0])
    >>> masses_of(low, high, log_width, torch.zeros(1, 18, dtype=torch.float64), closed=False).log().tolist()
    [[-0.6931471805599453], [-400.0]]
    """
    if params is None:
        return torch.from_numpy(np.exp(np.atleast_2d(log_width)).T)
    if low.ndim == 2:
        a, b, log_w = (torch.from_numpy(each.T).to(params.device) for each in (low, high, log_width))
        return (log_w + log_mean_density(a, b, log_w, params.expand(len(a), -1, -1), closed=closed)).exp()
    width = np.exp(log_width)
    # An interval in the upper half is measured from the upper end if it is narrow, or a tail.
    is_above = (low > high) & ((width < narrow * low) | (high < width))
    near = np.where(is_above, high, low)
    is_part = (low > 0) | (high > 0)  # the mass of [0, 1] is 1
    is_narrow = width < narrow * near
    found = params.new_ones(len(low), len(params))
    for side in np.unique(is_above[is_part]):
        own = reflected(params, closed=closed) if side else params
        if len(chosen := np.flatnonzero(is_part & (is_above == side) & is_narrow)):
            a, w = (
                torch.from_numpy(part[chosen, None]).to(params.device).expand(-1, len(own)) for part in (near, width)
            )
            found[chosen] = w * _mean_slope(a, w, bins_of(own, closed=closed))
        if len(chosen := np.flatnonzero(is_part & (is_above == side) & ~is_narrow)):
            ends = np.minimum([near[chosen], near[chosen] + width[chosen]], 1)
            every = np.sort(ends, axis=None)
            places = every[np.append(True, np.diff(every) > SAME * every[1:])]
            start, end = np.searchsorted(places, ends, side="right") - 1
            at = torch.from_numpy(places[:, None]).to(params.device)
            values = unit_spline(at.expand(-1, len(own)), own, closed=closed)[0]
            found[chosen] = values[end] - values[start]
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
    elif not bool(((low > 0) | (high > 0)).any()):
        place = unit_spline(uniform, params, closed=closed, inverse=True)[0]
    else:
        own = torch.where(is_above[:, None], reflected(params, closed=closed), params)
        before, after = unit_spline(torch.stack([a, end], dim=1), own[:, None], closed=closed)[0].unbind(1)
        inside = (before + uniform * (after - before)).clamp(0, 1)
        place = unit_spline(inside, own, closed=closed, inverse=True)[0].clamp(a, end)
    return torch.where(is_above, 1 - place, place), torch.where(is_above, place, 1 - place)


def _mean_slope(a: Tensor, width: Tensor, bins: Bins) -> Tensor:
    """Return the mean slope of splines over [a, a + width], where a is at most 1/2."""
    across, upwards = Knots.of(bins.widths), Knots.of(bins.heights)
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
    return torch.where(crossing, across_knots, inside)


def _next(index: BinIndex) -> BinIndex:
    """Return the index of the next bin, or of the last bin again."""
    bin = (index.bin + 1).clamp(max=index.num_bins - 1)
    return index.moved_to(bin)


# --- the spline itself ---


def unit_spline(u: Tensor, params: Tensor, *, closed: bool, inverse: bool = False) -> tuple[Tensor, Tensor]:
    """Return a cubic spline on [0, 1] at u, and its log slope. A ``closed`` spline has the same slope at both ends.

    Args:
        u: numbers in [0, 1].
        params: (..., 2 K + 2): K widths, K heights and two edge slopes; a closed spline ignores the last.

    >>> params = torch.randn(18, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> _, log_slope = unit_spline(torch.tensor([0.0, 1.0], dtype=torch.float64), params.expand(2, -1), closed=True)
    >>> bool((log_slope[0] - log_slope[1]).abs() < 1e-12)
    True
    """
    if not closed:
        return cubic_spline(u, params, inverse=inverse, domain="unit")
    return evaluate_unit(u, bins_of(params, closed=True), CUBIC, inverse)


def reflected(params: Tensor, *, closed: bool) -> Tensor:
    """Return the params of the spline 1 - F(1 - u). It is F seen from the upper end of [0, 1]."""
    num_bins = (params.shape[-1] - 2) // 2
    widths, heights = params[..., :num_bins], params[..., num_bins : 2 * num_bins]
    ends = params[..., -2:-1] if closed else params[..., -1:]
    return torch.cat([widths.flip(-1), heights.flip(-1), ends, params[..., -2:-1]], dim=-1)


def bins_of(params: Tensor, *, closed: bool) -> Bins:
    """Return the bins of the spline with these params."""
    num_bins = (params.shape[-1] - 2) // 2
    floor = min(LEAST_BIN, MOST_FLOORED / num_bins)
    return (cubic_circle if closed else cubic_bins)(params, num_bins, floor, floor)
