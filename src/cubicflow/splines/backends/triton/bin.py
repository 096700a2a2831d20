# mypy: ignore-errors
# ruff: noqa: N803, RET505, RUF005
"""One element in its bin: the map, its log-slope and their gradients. Every argument holds one number per element.

All positions are measured from the near end of the interval: the end that is nearer to the element. ``near`` and
``far`` are the element's distances from the near end and from the other end. ``flipped`` is true if the near end is the
upper end. Bins, sums and slopes are counted from the near end. Small numbers are then never computed as one minus large
numbers, and there is one case instead of two. All kernels call these functions; the kernels differ in how they find the
bin.

The formulas are those of ``evaluation.py``, with logarithms of quotients instead of differences of logarithms. An
element therefore needs two logarithms.

`source` is the input axis and `target` the output axis. Each is a tuple (before, after, size, down, up): the sums of
all sizes before and after the element's bin, the size of the bin, and the sizes of the bins one down and one up. `ends`
is the result of locate_ends. `logits` are the slope parameters of the bin's two ends.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cubicflow.splines.backends.triton.unit import (
    divide,
    end_slope,
    end_slope_backward,
    exact_sigmoids,
    shape,
    shape_derivatives,
    solve,
)

# The records in ``domains.py`` use these names.
REAL_LINE, UNIT_INTERVAL = (tl.constexpr(number) for number in range(2))


@triton.jit
def locate_ends(x, DOMAIN):
    """Return (near, far, flipped). NaN stays NaN."""
    if DOMAIN == REAL_LINE:
        near, far = exact_sigmoids(x)
        return near, far, x > 0
    else:
        low = tl.where(x < 0, 0.0, tl.where(x > 1, 1.0, x)).to(x.dtype)
        high = 1 - low
        flipped = low > high
        return tl.where(flipped, high, low), tl.where(flipped, low, high), flipped


@triton.jit
def search_position(near, flipped):
    """Return the position that knots are compared with, by knot <= position.

    A point at a knot belongs to the upper bin. Counted from the upper end, the comparison must be knot < position.
    There the position is therefore moved down by one float, by a multiplication with 1 - epsilon / 2.
    """
    if near.dtype == tl.float64:
        return tl.where(flipped, near * (1 - 2.0**-53), near)
    else:
        return tl.where(flipped, near * (1 - 2.0**-24), near)


@triton.jit
def softmax_scale(total, K, FLOOR):
    """Return the factor of the exponentials: a size is factor x exponential + floor."""
    return divide(tl.full(total.shape, 1 - K * FLOOR, total.dtype), total)


@triton.jit
def bin_sizes(bin, scale, floor, raw, K):
    """Turn (before, after, size, down, up) from sums of exponentials into sizes."""
    before, after, size, down, up = raw
    index = bin.to(scale.dtype)
    return (
        scale * before + index * floor,
        scale * after + (K - 1 - index) * floor,
        scale * size + floor,
        scale * down + floor,
        scale * up + floor,
    )


@triton.jit
def place_in_bin(near, before, size):
    """Return (t, 1 - t). The start of a bin and the end of the bin before it round differently, so t is clamped to
    [0, 1]. Gradients ignore the clamp."""
    t = divide(near - before, size)
    t = tl.where(t < 0, 0.0, tl.where(t > 1, 1.0, t)).to(near.dtype)
    return t, 1 - t


@triton.jit
def evaluate_in_bin(near, bin, source, target, logits, K, INVERSE, SLOPES, STEPS):
    """Return (t, 1 - t), the slopes at the bin's ends in units of the secant, and (q, qbar, f') as in ``unit.py``."""
    widths, heights = (target, source) if INVERSE else (source, target)
    start = end_slope(bin == 0, logits[0], widths[3], heights[3], widths[2], heights[2], SLOPES)
    end = end_slope(bin == K - 1, logits[1], widths[4], heights[4], widths[2], heights[2], SLOPES)
    t, tau = place_in_bin(near, source[0], source[2])
    if INVERSE:
        t, tau = solve(start, end, t, tau, SLOPES, STEPS)
    return (t, tau, start, end) + shape(t, tau, start, end, SLOPES)


@triton.jit
def place_output(t, tau, q, qbar, target, INVERSE):
    """Return the output's distances from the near end and from the other end."""
    if INVERSE:
        return target[0] + target[2] * t, target[1] + target[2] * tau
    else:
        return target[0] + target[2] * (t * q), target[1] + target[2] * (tau * qbar)


@triton.jit
def evaluate(x, ends, bin, source, target, logits, K, INVERSE, DOMAIN, SLOPES, STEPS):
    """Return (y, log_slope)."""
    near, far, flipped = ends
    t, tau, _, _, q, qbar, slope = evaluate_in_bin(near, bin, source, target, logits, K, INVERSE, SLOPES, STEPS)
    secant = divide(source[2], target[2]) if INVERSE else divide(target[2], source[2])
    low, high = place_output(t, tau, q, qbar, target, INVERSE)
    if DOMAIN == REAL_LINE:
        # In the first bin low / near follows from the secant and q, and in the last bin high / far follows from the
        # secant and qbar. The distances themselves are not needed; near may be 0.
        first = bin == 0
        if K == 1:
            q += 0 * secant  # the secant of a single bin is 1 or NaN; keep NaN
            gain = divide(qbar, q) if INVERSE else divide(q, qbar)
            rate = divide(q * qbar, slope) if INVERSE else divide(slope, q * qbar)
        elif INVERSE:
            far_gain = divide(far, high)
            gain = divide(tl.where(first, far_gain, low), tl.where(first, secant * q, high))
            rate = divide(tl.where(first, q, near), tl.where(first, slope, secant * slope * low)) * far_gain
        else:
            far_gain = divide(far, high)
            gain = tl.where(first, secant * q * far_gain, divide(low, high))
            rate = divide(tl.where(first, slope, secant * slope * near), tl.where(first, q, low)) * far_gain
        log_odds = tl.log(gain) + tl.where(first, -tl.abs(x), 0.0)  # log(near / far)
        y = tl.where(flipped, -log_odds, log_odds)
        log_slope = tl.log(rate)
    else:
        lower = tl.where(flipped, high, low)
        upper = tl.where(flipped, low, high)
        y = tl.where(lower <= upper, lower, 1 - upper)
        log_slope = tl.log(secant * slope)
        log_slope = tl.where((x < 0) | (x > 1), float("-inf"), -log_slope if INVERSE else log_slope)
    return y, log_slope


@triton.jit
def evaluate_backward(x, ends, bin, source, target, logits, grad_y, grad_log_slope, K, INVERSE, DOMAIN, SLOPES, STEPS):
    """Return the gradients of x, of the source's and the target's (before, after, size, down, up), and of both logits.

    On the real line the target's sum after the bin has its own gradient. The sum equals one minus the other sizes, so
    its gradient could be passed to the other sizes. But the gradient of a small sum is large. A large gradient of the
    other sizes would cancel under the softmax and leave roundings as large as the result. The sum before the first bin
    is empty. The gradient of this sum is set to 0, because it would be infinite in the far tail.

    Let G be the output's distance from the near end. In the first bin G = size x t x q (without q for the inverse).
    Terms that divide by G also multiply by t. The quotient t / G is computed as one number that stays finite there.
    """
    near, far, flipped = ends
    source_size, target_size = source[2], target[2]
    first = bin == 0
    zero = tl.zeros_like(near)
    t, tau, start, end, q, qbar, slope = evaluate_in_bin(near, bin, source, target, logits, K, INVERSE, SLOPES, STEPS)
    f_start, f_end, slope_start, slope_end, slope_t = shape_derivatives(t, tau, start, end, q, qbar, slope, SLOPES)
    low, high = place_output(t, tau, q, qbar, target, INVERSE)
    edge_size = target_size if INVERSE else target_size * q
    grad_out = tl.where(flipped, -grad_y, grad_y)
    if DOMAIN == REAL_LINE:
        grad_log = grad_log_slope
        by_low = (grad_out - grad_log) / tl.where(first, edge_size, low)
        by_high = (grad_out + grad_log) / high
        grad_low = tl.where(first, zero, by_low + by_high)
        of_low_t = tl.where(first, by_low, by_low * t)
        grad_low_t = of_low_t + by_high * t
        grad_target_before = tl.where(first, zero, by_low)
        grad_target_after = -by_high
        of_high = by_high * tau
    else:
        outside = (x < 0) | (x > 1)
        grad_log = tl.where(outside, zero, grad_log_slope)
        grad_low = grad_out
        grad_low_t = grad_out * t
        of_low_t = grad_low_t
        grad_target_before = tl.where(first, zero, grad_out)
        grad_target_after = zero
        of_high = zero

    per_slope = 1 / slope
    by_curve = grad_log * slope_t * per_slope
    by_start = grad_log * slope_start * per_slope
    by_end = grad_log * slope_end * per_slope
    if INVERSE:
        # low = before + size t with f(t) = c: dt = (dc - f_start dstart - f_end dend) / f'
        grad_t_t = (target_size * grad_low_t - by_curve * t) * per_slope
        grad_near = (target_size * grad_low - by_curve) * per_slope / source_size
        grad_target_size = (of_low_t - of_high) + grad_log / target_size
        grad_source_size = -(q * grad_t_t + grad_log) / source_size
        grad_start = -f_start * grad_t_t - by_start
        grad_end = -f_end * grad_t_t - by_end
        edge_near = q * grad_t_t
    else:
        per_size = 1 / source_size
        by_curve *= per_size
        steep = target_size * slope
        grad_near = steep * per_size * grad_low + by_curve
        grad_target_size = (q * of_low_t - qbar * of_high) + grad_log / target_size
        grad_source_size = -(steep * grad_low_t + grad_log) * per_size - by_curve * t
        grad_start = target_size * f_start * grad_low_t + by_start
        grad_end = target_size * f_end * grad_low_t + by_end
        edge_near = steep * grad_low_t + by_curve * near
    if DOMAIN == REAL_LINE:
        grad_x = tl.where(first, edge_near, grad_near * near) * far + grad_log * (far - near)
    else:
        grad_x = tl.where(outside, zero, grad_near)
    grad_x = tl.where(flipped, -grad_x, grad_x)
    grad_source_before = tl.where(first, zero, -grad_near)

    widths, heights = (target, source) if INVERSE else (source, target)
    low_logit, width_low, height_low, width_at_low, height_at_low = end_slope_backward(
        grad_start, first, logits[0], widths[3], heights[3], widths[2], heights[2], SLOPES
    )
    high_logit, width_high, height_high, width_at_high, height_at_high = end_slope_backward(
        grad_end, bin == K - 1, logits[1], widths[4], heights[4], widths[2], heights[2], SLOPES
    )
    of_widths = (width_low, width_high, width_at_low + width_at_high)
    of_heights = (height_low, height_high, height_at_low + height_at_high)
    of_source, of_target = (of_heights, of_widths) if INVERSE else (of_widths, of_heights)
    grad_source = (grad_source_before, zero, grad_source_size + of_source[2], of_source[0], of_source[1])
    grad_target = (grad_target_before, grad_target_after, grad_target_size + of_target[2], of_target[0], of_target[1])
    return grad_x, grad_source, grad_target, (low_logit, high_logit)
