"""Evaluate any family of splines, forward or inverse, on the unit interval or on the whole real line.

A family describes one bin in its own unit square, where it is an increasing f from [0, 1] onto [0, 1]. With t the
position in the bin and tau = 1 - t, a family writes

    f(t) = t q(t)        1 - f(t) = tau qbar(t)

as sums of positive terms. These two factors are all the real line needs: in the first bin g = u x secant x q, so that
log g = log u + log(secant q) however small u is; the last bin is its mirror image. Nothing is clipped and nothing
saturates.

Every coordinate is carried as a pair (low, high) of its distances from both ends of the interval, and what is small is
never computed as one minus what is large.
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
    root:  (start, end, c) -> t and 1 - t with f(t) = c, for c <= 1/2; differentiable in all three.
    """

    shape: Callable[[Tensor, Tensor, Tensor, Tensor], Shape]
    root: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def with_rest(root: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """A root and one minus it, which is precise where no slope is many times the secant: c <= 1/2 then keeps t away
    from 1."""

    def both(start: Tensor, end: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        t = root(start, end, c)
        return t, 1 - t

    return both


class Passage(NamedTuple):
    """What one element met on its way through its bin. Every field has the shape of the output."""

    low: Tensor  # the output's distance from the lower end of its interval
    high: Tensor  # and from the upper end
    log_slope: Tensor  # of the map actually evaluated: negative that of f for the inverse
    log_gain_low: Tensor  # log(low_out / low_in), exact in the first bin and meaningless elsewhere
    log_gain_high: Tensor  # log(high_out / high_in), exact in the last bin and meaningless elsewhere
    first: Tensor
    last: Tensor
    near_low: Tensor  # whether the output is nearer to the lower end of its bin than to the upper


def evaluate_unit(x: Tensor, bins: Bins, unit_map: UnitMap, inverse: bool) -> tuple[Tensor, Tensor]:
    """The spline on [0, 1]. Outside, y is clamped and the log-slope is -inf."""
    clamped = x.clamp(0, 1)
    path = pass_through(clamped, 1 - clamped, bins, unit_map, inverse)
    y = torch.where(path.low <= path.high, path.low, 1 - path.high)
    return y, mask_outside(path.log_slope, (x < 0) | (x > 1))


def evaluate_real(x: Tensor, bins: Bins, unit_map: UnitMap, inverse: bool) -> tuple[Tensor, Tensor]:
    """logit . spline . sigmoid on the whole real line, without ever forming a saturated sigmoid."""
    log_low, log_high = F.logsigmoid(x), F.logsigmoid(-x)
    path = pass_through(torch.sigmoid(x), torch.sigmoid(-x), bins, unit_map, inverse)
    # In the edge bins log(out) may be log(0): the 1 keeps the branch that is not taken free of NaN gradients.
    log_inner_low = torch.where(path.first, 1, path.low).log()
    log_inner_high = torch.where(path.last, 1, path.high).log()
    gain_low = torch.where(path.first, path.log_gain_low, log_inner_low - log_low)
    gain_high = torch.where(path.last, path.log_gain_high, log_inner_high - log_high)
    out_low = torch.where(path.first, log_low + path.log_gain_low, log_inner_low)
    out_high = torch.where(path.last, log_high + path.log_gain_high, log_inner_high)
    return out_low - out_high, path.log_slope - gain_low - gain_high


def evaluate_circle(x: Tensor, bins: Bins, unit_map: UnitMap, inverse: bool) -> tuple[Tensor, Tensor]:
    """The spline on the circle of circumference 1, then a rotation; the inverse undoes the rotation first. Inputs are
    taken modulo 1, and outputs are in [0, 1], whose ends are one point."""
    rotation = 0.0 if bins.rotation is None else bins.rotation
    turned = torch.remainder(x - rotation if inverse else x, 1)
    path = pass_through(turned, 1 - turned, bins, unit_map, inverse)
    y = torch.where(path.low <= path.high, path.low, 1 - path.high)
    return y if inverse else torch.remainder(y + rotation, 1), path.log_slope


def mask_outside(log_slope: Tensor, outside: Tensor) -> Tensor:
    """No density outside the domain; NaN is neither inside nor outside and stays."""
    return torch.where(outside, -torch.inf, log_slope)


def pass_through(
    low: Tensor, high: Tensor, bins: Bins, unit_map: UnitMap, inverse: bool, axes: tuple[Axis, Axis] | None = None
) -> Passage:
    """Send points, given by their distances from both ends, through the bins they fall into.

    ``axes`` are those of x and y, where the knots are known better than as sums of the bins. Their origins are free:
    ``low - before`` and ``high - after`` are all that matters.
    """
    x_axis, y_axis = axes or (Axis.of(bins.widths), Axis.of(bins.heights))
    source, target = (y_axis, x_axis) if inverse else (x_axis, y_axis)

    shape = torch.broadcast_shapes(low.shape, bins.widths.shape[:-1])
    low, high = low.expand(shape), high.expand(shape)
    from_low = low <= high  # measure from the nearer end: there the subtraction below loses nothing
    index = locate(source, torch.where(from_low, low, -high), from_low)

    size_in, size_out = index.pick(source.sizes), index.pick(target.sizes)
    start, end = index.pick(bins.start), index.pick(bins.end)
    above, below = low - index.pick(source.before), high - index.pick(source.after)
    if axes is not None:
        from_low = above <= below  # no sums, so both differences round once, and the smaller loses nothing
    near = torch.where(from_low, above, below) / size_in
    # before[k] + sizes[k] and before[k + 1] round differently, so a point an ulp short of a knot may come out beyond
    # its bin: by up to epsilon / size_in, enough for a small end slope to turn negative there. The value is kept in the
    # bin, and the gradient passes as if nothing had happened.
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
    return Passage(
        low=index.pick(target.before) + size_out * out_low,
        high=index.pick(target.after) + size_out * out_high,
        log_slope=sign * (secant * form.slope).log(),
        log_gain_low=sign * (secant * form.q).log(),
        log_gain_high=sign * (secant * form.qbar).log(),
        first=index.bin == 0,
        last=index.bin == index.num_bins - 1,
        near_low=out_low <= out_high,
    )


def solve(unit_map: UnitMap, start: Tensor, end: Tensor, c_low: Tensor, c_high: Tensor) -> tuple[Tensor, Tensor]:
    """(t, 1 - t) with f(t) = c_low, found from the nearer end of the bin: the map seen from the other end has its
    slopes swapped, and a small root keeps its relative precision."""
    mirrored = c_low > c_high
    root, rest = unit_map.root(
        torch.where(mirrored, end, start), torch.where(mirrored, start, end), torch.where(mirrored, c_high, c_low)
    )
    return torch.where(mirrored, rest, root), torch.where(mirrored, root, rest)


class Axis(NamedTuple):
    """The bins along one axis: their sizes, and the sums of all sizes before and after each."""

    sizes: Tensor
    before: Tensor
    after: Tensor

    @classmethod
    def of(cls, sizes: Tensor) -> Axis:
        # Both sums start at their own end. One minus the other sum would lose all relative precision near an end.
        before = F.pad(prefix_sums(sizes)[..., :-1], (1, 0))
        after = F.pad(prefix_sums(sizes.flip(-1))[..., :-1], (1, 0)).flip(-1)
        return cls(sizes, before, after)


def prefix_sums(sizes: Tensor) -> Tensor:
    """Cumulative sums by doubling: each is a tree of log2(K) additions, on every device, so the knots of 128 bins are
    as good as those of a few. Added one after the other they would be off by up to K / 2 roundings."""
    reach = 1
    while reach < sizes.shape[-1]:
        sizes = sizes + F.pad(sizes[..., :-reach], (reach, 0))
        reach *= 2
    return sizes


class BinIndex:
    """Which bin of which spline each element fell into, over tables that are never expanded to the elements.

    ``row`` numbers the splines; a table of shape (*splines, K) is read at row * K + bin. A spline shared by a whole
    batch so costs memory for the batch plus memory for the spline, not for their product.
    """

    def __init__(self, row: Tensor, bin: Tensor, num_bins: int) -> None:
        self.bin = bin
        self.num_bins = num_bins
        self._row = row
        self._flat = row * num_bins + bin

    def moved_to(self, bin: Tensor) -> BinIndex:
        """Other bins of the same splines."""
        return BinIndex(self._row, bin, self.num_bins)

    def pick(self, table: Tensor) -> Tensor:
        return table.reshape(-1).gather(0, self._flat.reshape(-1)).reshape(self._flat.shape)


def locate(axis: Axis, position: Tensor, from_low: Tensor) -> BinIndex:
    """Branch-free binary search. ``position`` is the distance from the low end, or minus that from the high end.

    NaN compares false with everything and so lands in bin 0, where it stays NaN.
    """
    *splines, num_bins = axis.sizes.shape
    row = torch.arange(axis.sizes[..., 0].numel(), device=position.device).reshape(splines).expand(position.shape)
    # Knot k opens bin k: at before[k] seen from the low end, and at after[k - 1] seen from the high end. Comparisons
    # have no gradient, so the search is kept out of the graph.
    position, opens_low, after = position.detach(), axis.before.detach(), axis.after.detach()
    opens_high = F.pad(-after[..., :-1], (1, 0))
    bin = torch.zeros_like(position, dtype=torch.int64)
    step = 1 << (num_bins - 1).bit_length()
    while step := step >> 1:
        index = BinIndex(row, (bin + step).clamp(max=num_bins - 1), num_bins)
        knot = torch.where(from_low, index.pick(opens_low), index.pick(opens_high))
        bin = torch.where((bin + step < num_bins) & (knot <= position), bin + step, bin)
    return BinIndex(row, bin, num_bins)
