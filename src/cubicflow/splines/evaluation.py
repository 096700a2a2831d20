"""Evaluate any family of splines, forward or inverse, on the unit interval, the real line or the circle.

A family describes one bin in the bin's own unit square, as an increasing map f from [0, 1] onto [0, 1]. Let t be the
position in the bin and tau = 1 - t. The family gives q and qbar as sums of positive terms:

    f(t) = t q(t)        1 - f(t) = tau qbar(t)

The real line needs only these two factors. In the first bin g = u x secant x q, so log g = log u + log(secant q) holds
for arbitrarily small u. The last bin is the mirror image of the first. Nothing is clipped and nothing saturates.

Every coordinate is a pair (low, high): the distances from both ends of the interval. A small distance is never computed
as one minus a large distance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from cubicflow.splines.bins import Bins


class Shape(NamedTuple):
    """A bin's unit map at one point: f = t q, 1 - f = tau qbar, and f'."""

    q: Tensor
    qbar: Tensor
    slope: Tensor


class UnitMap(NamedTuple):
    """The map of one bin onto the unit square, and its inverse.

    shape: (t, tau, start, end) -> Shape.
    root:  (start, end, c) -> t and 1 - t with f(t) = c, for c <= 1/2; differentiable in all three. If no slope is many
           times the secant, c <= 1/2 keeps t away from 1, and the subtraction 1 - t is precise.
    """

    shape: Callable[[Tensor, Tensor, Tensor, Tensor], Shape]
    root: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


class BinResult(NamedTuple):
    """The result of sending elements through their bins. Every field has the shape of the output."""

    low: Tensor  # the output's distance from the lower end of the interval
    high: Tensor  # the output's distance from the upper end of the interval
    log_slope: Tensor  # the log-slope of the evaluated map; for the inverse, minus the log-slope of the forward map
    log_ratio_low: Tensor  # log(low_out / low_in), exact in the first bin and meaningless elsewhere
    log_ratio_high: Tensor  # log(high_out / high_in), exact in the last bin and meaningless elsewhere
    first: Tensor  # whether the element is in the first bin
    last: Tensor  # whether the element is in the last bin
    near_low: Tensor  # whether the output is nearer to the lower end of its bin than to the upper


def evaluate_unit(x: Tensor, bins: Bins, unit_map: UnitMap, inverse: bool) -> tuple[Tensor, Tensor]:
    """Evaluate the spline on [0, 1]. Outside, y is clamped and the log-slope is -inf."""
    clamped = x.clamp(0, 1)
    result = evaluate_in_bins(clamped, 1 - clamped, bins, unit_map, inverse)
    y = torch.where(result.low <= result.high, result.low, 1 - result.high)
    return y, mask_outside(result.log_slope, (x < 0) | (x > 1))


def evaluate_real(x: Tensor, bins: Bins, unit_map: UnitMap, inverse: bool) -> tuple[Tensor, Tensor]:
    """Evaluate logit . spline . sigmoid on the whole real line, without a saturated sigmoid."""
    log_low, log_high = F.logsigmoid(x), F.logsigmoid(-x)
    result = evaluate_in_bins(torch.sigmoid(x), torch.sigmoid(-x), bins, unit_map, inverse)
    # In the edge bins log(out) may be log(0). The 1 keeps NaN out of the gradients of the branch that is not taken.
    log_inner_low = torch.where(result.first, 1, result.low).log()
    log_inner_high = torch.where(result.last, 1, result.high).log()
    ratio_low = torch.where(result.first, result.log_ratio_low, log_inner_low - log_low)
    ratio_high = torch.where(result.last, result.log_ratio_high, log_inner_high - log_high)
    out_low = torch.where(result.first, log_low + result.log_ratio_low, log_inner_low)
    out_high = torch.where(result.last, log_high + result.log_ratio_high, log_inner_high)
    return out_low - out_high, result.log_slope - ratio_low - ratio_high


def evaluate_circle(x: Tensor, bins: Bins, unit_map: UnitMap, inverse: bool) -> tuple[Tensor, Tensor]:
    """Evaluate the spline on the circle of circumference 1, then rotate. The inverse undoes the rotation first.

    Inputs are taken modulo 1. Outputs are in [0, 1], whose ends are one point.
    """
    rotation = 0.0 if bins.rotation is None else bins.rotation
    turned = torch.remainder(x - rotation if inverse else x, 1)
    result = evaluate_in_bins(turned, 1 - turned, bins, unit_map, inverse)
    y = torch.where(result.low <= result.high, result.low, 1 - result.high)
    return y if inverse else torch.remainder(y + rotation, 1), result.log_slope


def mask_outside(log_slope: Tensor, outside: Tensor) -> Tensor:
    """Return ``log_slope`` with -inf where ``outside`` is true. NaN compares as not outside, so NaN stays NaN."""
    return torch.where(outside, -torch.inf, log_slope)


def evaluate_in_bins(
    low: Tensor, high: Tensor, bins: Bins, unit_map: UnitMap, inverse: bool, knots: tuple[Knots, Knots] | None = None
) -> BinResult:
    """Send points, given by their distances from both ends, through their bins.

    ``knots`` are those of x and of y, for callers that know them more precisely than as sums of the bins. Their origin
    is arbitrary: only ``low - before`` and ``high - after`` are used.
    """
    x_knots, y_knots = knots or (Knots.of(bins.widths), Knots.of(bins.heights))
    source, target = (y_knots, x_knots) if inverse else (x_knots, y_knots)

    shape = torch.broadcast_shapes(low.shape, bins.widths.shape[:-1])
    low, high = low.expand(shape), high.expand(shape)
    from_low = low <= high  # measure from the nearer end: the subtraction below is then precise
    index = locate(source, torch.where(from_low, low, -high), from_low)

    size_in, size_out = index.pick(source.sizes), index.pick(target.sizes)
    start, end = index.pick(bins.start), index.pick(bins.end)
    above, below = low - index.pick(source.before), high - index.pick(source.after)
    if knots is not None:
        from_low = above <= below  # given knots are exact, so both differences round once and the smaller is precise
    near = torch.where(from_low, above, below) / size_in
    # before[k] + sizes[k] and before[k + 1] round differently, so a point one ulp short of a knot may land up to
    # epsilon / size_in outside its bin. That is far enough to make a small end slope negative. The value is therefore
    # clamped to the bin. The gradient ignores the clamp.
    near = near + (near.clamp(0, 1) - near).detach()
    far = 1 - near
    in_low, in_high = torch.where(from_low, near, far), torch.where(from_low, far, near)

    if inverse:
        in_low, in_high = solve(unit_map, start, end, in_low, in_high)
    form = unit_map.shape(in_low, in_high, start, end)
    if inverse:
        out_low, out_high = in_low, in_high
        secant = size_in / size_out
    else:
        out_low, out_high = in_low * form.q, in_high * form.qbar
        secant = size_out / size_in
    sign = -1 if inverse else 1
    return BinResult(
        low=index.pick(target.before) + size_out * out_low,
        high=index.pick(target.after) + size_out * out_high,
        log_slope=sign * (secant * form.slope).log(),
        log_ratio_low=sign * (secant * form.q).log(),
        log_ratio_high=sign * (secant * form.qbar).log(),
        first=index.bin == 0,
        last=index.bin == index.num_bins - 1,
        near_low=out_low <= out_high,
    )


def solve(unit_map: UnitMap, start: Tensor, end: Tensor, c_low: Tensor, c_high: Tensor) -> tuple[Tensor, Tensor]:
    """Return (t, 1 - t) with f(t) = c_low, solved from the nearer end of the bin, so that small roots keep their
    relative precision. Seen from the other end, the map has its two slopes swapped."""
    mirrored = c_low > c_high
    root, rest = unit_map.root(
        torch.where(mirrored, end, start), torch.where(mirrored, start, end), torch.where(mirrored, c_high, c_low)
    )
    return torch.where(mirrored, rest, root), torch.where(mirrored, root, rest)


class Knots(NamedTuple):
    """The knots of x or of y: the sizes of the bins between them, and for each bin the sums of all sizes before and
    after it."""

    sizes: Tensor
    before: Tensor
    after: Tensor

    @classmethod
    def of(cls, sizes: Tensor) -> Knots:
        """Return the knots between bins of these sizes."""
        # Each sum starts at its own end. One minus the other sum would lose all relative precision near an end.
        before = F.pad(prefix_sums(sizes)[..., :-1], (1, 0))
        after = F.pad(prefix_sums(sizes.flip(-1))[..., :-1], (1, 0)).flip(-1)
        return cls(sizes, before, after)


def prefix_sums(sizes: Tensor) -> Tensor:
    """Return cumulative sums over the last axis, computed by doubling.

    Each sum is a tree of log2(K) additions on every device, so the knots of 128 bins are about as precise as the knots
    of a few bins. Sequential addition would be off by up to K / 2 roundings.
    """
    distance = 1
    while distance < sizes.shape[-1]:
        sizes = sizes + F.pad(sizes[..., :-distance], (distance, 0))
        distance *= 2
    return sizes


class BinIndex:
    """The spline and the bin of each element, as an index into tables that are never expanded to the elements.

    ``row`` is the number of the spline. A table of shape (*splines, K) is read at row * K + bin. A spline shared by a
    whole batch therefore costs memory for the batch plus memory for the spline, not for their product.
    """

    def __init__(self, row: Tensor, bin: Tensor, num_bins: int) -> None:
        self.bin = bin
        self.num_bins = num_bins
        self._row = row
        self._flat = row * num_bins + bin

    def moved_to(self, bin: Tensor) -> BinIndex:
        """Return the index of other bins of the same splines."""
        return BinIndex(self._row, bin, self.num_bins)

    def pick(self, table: Tensor) -> Tensor:
        """Return each element's entry of a table of shape (*splines, K)."""
        return table.reshape(-1).gather(0, self._flat.reshape(-1)).reshape(self._flat.shape)


def locate(knots: Knots, position: Tensor, from_low: Tensor) -> BinIndex:
    """Find each element's bin by a branch-free binary search.

    ``position`` is the distance from the low end, or minus the distance from the high end. NaN compares false with
    everything, so NaN lands in bin 0 and stays NaN.
    """
    *splines, num_bins = knots.sizes.shape
    row = torch.arange(knots.sizes[..., 0].numel(), device=position.device).reshape(splines).expand(position.shape)
    # Bin k starts at before[k], measured from the low end, and at after[k - 1], measured from the high end. Comparisons
    # have no gradient, so the search is detached from the graph.
    position, opens_low, after = position.detach(), knots.before.detach(), knots.after.detach()
    opens_high = F.pad(-after[..., :-1], (1, 0))
    bin = torch.zeros_like(position, dtype=torch.int64)
    step = 1 << (int(num_bins) - 1).bit_length()  # torch.jit.trace makes sizes tensors
    while step := step >> 1:
        index = BinIndex(row, (bin + step).clamp(max=num_bins - 1), num_bins)
        knot = torch.where(from_low, index.pick(opens_low), index.pick(opens_high))
        bin = torch.where((bin + step < num_bins) & (knot <= position), bin + step, bin)
    return BinIndex(row, bin, num_bins)
