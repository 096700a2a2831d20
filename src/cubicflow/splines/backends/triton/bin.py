# mypy: ignore-errors
# ruff: noqa: N803, N806, RET505, RUF005, SIM102, SIM108
"""One element in its bin: the map, its log-slope and their gradients, as functions of one number per element.

Everything here is seen from the end of the interval that the element is nearer to: ``near`` and ``far`` are its
distances from that end and from the other, ``flipped`` says that the near end is the upper one, and bins, sums and
slopes are counted from it. So small numbers are never computed as one minus large ones, and there is one case instead
of two. Both kernels end in these functions; what they differ in is how they find the bin.

The formulas are those of ``evaluate.py``, ``bins.py``, ``cubic.py`` and ``rational_quadratic.py``, with logarithms of
quotients in place of differences of logarithms: an element takes two.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from cubicflow.splines.bins import MARGIN as _MARGIN

STEFFEN, FREE, RATIONAL = (tl.constexpr(mode) for mode in range(3))

LOG2E = tl.constexpr(math.log2(math.e))
LN2 = tl.constexpr(math.log(2))
MARGIN = tl.constexpr(_MARGIN)
RATIO_SPAN = tl.constexpr(3 - 2 * _MARGIN)
RATIO_SHIFT = tl.constexpr(math.log((2 - _MARGIN) / (1 - _MARGIN)))
SOFTPLUS_ONE = tl.constexpr(math.log(math.e - 1))


# --- arithmetic --------------------------------------------------------------------------------------------------------
# Triton's float32 division and exponential are the hardware's fast ones. Where an error reaches y or the log-slope
# undiminished they are made good; elsewhere, and in all gradients, they are good enough.


@triton.jit
def divide(a, b):
    """Correctly rounded."""
    if b.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)


@triton.jit
def exp_below(x, top):
    """exp(x - top) for x <= top. The hardware's exp2 is good to an ulp or two, but (x - top) log2(e) is rounded, to an
    error of as many ulps as it is large: what the product lost is put back."""
    below = x - top
    scaled = below * LOG2E
    if below.dtype == tl.float64:
        return tl.exp2(scaled)
    else:
        lost = tl.fma(below, tl.full(below.shape, LOG2E, below.dtype), -scaled)
        power = tl.exp2(scaled)
        return tl.where(power > 0, power + power * (lost * LN2), power)  # lost is NaN for -inf


@triton.jit
def sigmoids(x):
    """sigmoid(-|x|) and sigmoid(|x|), both to full relative precision."""
    z = exp_below(-tl.abs(x), 0.0)
    larger = divide(tl.full(z.shape, 1.0, z.dtype), 1 + z)
    return z * larger, larger


@triton.jit
def locate_ends(x, REAL: tl.constexpr):
    """(near, far, flipped). NaN stays NaN."""
    if REAL:
        near, far = sigmoids(x)
        return near, far, x > 0
    else:
        low = tl.where(x < 0, 0.0, tl.where(x > 1, 1.0, x)).to(x.dtype)
        high = 1 - low
        flipped = low > high
        return tl.where(flipped, high, low), tl.where(flipped, low, high), flipped


@triton.jit
def search_position(near, flipped):
    """What knots are compared with, by <=. At a knot the upper bin is taken: seen from above that is <, so there the
    position is moved one float down, which multiplying by 1 - epsilon / 2 does."""
    if near.dtype == tl.float64:
        return tl.where(flipped, near * (1 - 2.0**-53), near)
    else:
        return tl.where(flipped, near * (1 - 2.0**-24), near)


# --- slopes at a bin's two ends, in units of its secant ---------------------------------------------------------------
# A knot is seen from inside the bin: `beyond` is the bin on its other side, and `edge` says that there is none.


@triton.jit
def slope_ratio(logit):
    """r(logit) of the design, and its derivative."""
    shifted = logit - RATIO_SHIFT
    smaller, larger = sigmoids(shifted)
    return MARGIN + RATIO_SPAN * tl.where(shifted > 0, larger, smaller), RATIO_SPAN * smaller * larger


@triton.jit
def softplus_slope(logit):
    """The rational-quadratic's slope at a knot, and its derivative."""
    shifted = logit + SOFTPLUS_ONE
    z = exp_below(-tl.abs(shifted), 0.0)
    one_plus = 1 + z
    log1p = tl.log(one_plus) + (z - (one_plus - 1)) / one_plus
    larger = 1 / one_plus
    rate = tl.where(shifted > 0, larger, z * larger)
    return MARGIN + (1 - MARGIN) * (tl.maximum(shifted, 0.0) + log1p), (1 - MARGIN) * rate


@triton.jit
def end_slope(edge, logit, width_beyond, height_beyond, width, height, SLOPES: tl.constexpr):
    if SLOPES == RATIONAL:
        slope, _ = softplus_slope(logit)
        return slope * (width / height)
    else:
        ratio, _ = slope_ratio(logit)
        secants = (height_beyond / width_beyond) * (width / height)
        if SLOPES == STEFFEN:
            parabola = (secants * width + width_beyond) / (width + width_beyond)
            inner = tl.minimum(parabola, 2 * tl.minimum(secants, 1.0))
        else:
            inner = ratio * tl.minimum(secants, 1.0)
        return tl.where(edge, ratio, inner)


@triton.jit
def end_slope_backward(grad, edge, logit, width_beyond, height_beyond, width, height, SLOPES: tl.constexpr):
    """Gradients of (logit, width_beyond, height_beyond, width, height)."""
    if SLOPES == RATIONAL:
        slope, rate = softplus_slope(logit)
        grad_slope = grad * (width / height)
        grad_logit = grad_slope * rate
        grad_width = grad * slope / height
        zero = tl.zeros_like(grad)
        return grad_logit, zero, zero, grad_width, -grad_width * (width / height)
    else:
        ratio, rate = slope_ratio(logit)
        secants = (height_beyond / width_beyond) * (width / height)
        inner = tl.where(edge, 0.0, grad).to(grad.dtype)
        if SLOPES == STEFFEN:
            both = 1 / (width + width_beyond)
            parabola = (secants * width + width_beyond) * both
            by_parabola = parabola <= 2 * tl.minimum(secants, 1.0)
            direct = tl.where(by_parabola, inner * both, 0.0).to(grad.dtype)
            by_secants = tl.where(by_parabola, direct * width, tl.where(secants < 1, 2 * inner, 0.0))
            grad_logit = tl.where(edge, grad * rate, 0.0).to(grad.dtype)
            grad_width = direct * (secants - parabola)
            grad_beyond = direct * (1 - parabola)
        else:
            smaller = tl.minimum(secants, 1.0)
            # At equal secants, where every spline starts, min has the gradient of either by half, as in torch.
            share = tl.where(secants < 1, 1.0, tl.where(secants > 1, 0.0, 0.5)).to(grad.dtype)
            by_secants = inner * ratio * share
            grad_logit = tl.where(edge, grad, grad * smaller) * rate
            grad_width = tl.zeros_like(grad)
            grad_beyond = tl.zeros_like(grad)
        scaled = by_secants * secants
        return (
            grad_logit,
            grad_beyond - scaled / width_beyond,
            scaled / height_beyond,
            grad_width + scaled / width,
            -scaled / height,
        )


# --- the unit map -----------------------------------------------------------------------------------------------------


@triton.jit
def shape(t, tau, start, end, SLOPES: tl.constexpr):
    """q, qbar and f'."""
    tt = t * t
    mixed = t * tau
    tautau = tau * tau
    if SLOPES == RATIONAL:
        scale = 1 / (tt + (start + end) * mixed + tautau)
        q = (start * tau + t) * scale
        qbar = (end * t + tau) * scale
        slope = (start * tautau + 2 * mixed + end * tt) * (scale * scale)
    else:
        q = start * tautau + (3 - end) * mixed + tt
        qbar = end * tt + (3 - start) * mixed + tautau
        slope = start * tautau + 2 * (3 - start - end) * mixed + end * tt
        slope = tl.where(slope < 0, 0.0, slope).to(t.dtype)  # not maximum, which drops NaN
    return q, qbar, slope


@triton.jit
def shape_derivatives(t, tau, start, end, q, slope, SLOPES: tl.constexpr):
    """df/dstart / t, df/dend / t, and the derivatives of f' in start, end and t."""
    tt = t * t
    mixed = t * tau
    tautau = tau * tau
    if SLOPES == RATIONAL:
        scale = 1 / (tt + (start + end) * mixed + tautau)
        drop = 2 * slope * mixed
        f_start = tau * (1 - t * q) * scale
        f_end = -q * mixed * scale
        slope_start = (tautau * scale - drop) * scale
        slope_end = (tt * scale - drop) * scale
        numerator_t = 2 * (end * t - start * tau + (tau - t))
        denominator_t = 2 * (t - tau) + (start + end) * (tau - t)
        slope_t = (numerator_t * scale - 2 * slope * denominator_t) * scale
    else:
        f_start = tautau
        f_end = -mixed
        slope_start = tautau - 2 * mixed
        slope_end = tt - 2 * mixed
        slope_t = 2 * (end * t - start * tau + (3 - start - end) * (tau - t))
    return f_start, f_end, slope_start, slope_end, slope_t


@triton.jit
def cubic_guess(start, end, target):
    """As in ``cubic.py``, which explains it."""
    cubic = start + end - 2
    quadratic = 3 - 2 * start - end
    denominator = start + tl.sqrt(start * start + 4 * tl.maximum(quadratic, 0.0) * target)
    from_quadratic = tl.minimum(2 * target / tl.maximum(denominator, 1e-30), 1.0)
    has_inflection = (cubic > 0) & (-quadratic <= 3 * cubic)
    safe_cubic = tl.where(has_inflection, cubic, 1.0).to(start.dtype)
    inflection = tl.minimum(tl.maximum(-quadratic / (3 * safe_cubic), 0.0), 1.0)
    q, _, _ = shape(inflection, 1 - inflection, start, end, STEFFEN)
    rise = (target - inflection * q) / safe_cubic
    size = tl.exp2(tl.log2(tl.maximum(tl.abs(rise), 1e-30)) * (1 / 3))
    from_cubic = tl.minimum(tl.maximum(inflection + tl.where(rise < 0, -size, size), 0.0), 1.0)
    from_cubic = tl.where(quadratic >= 0, tl.minimum(from_quadratic, from_cubic), from_cubic)
    return tl.where(has_inflection, from_cubic, from_quadratic)


@triton.jit
def cubic_root(start, end, c, STEPS: tl.constexpr):
    target = tl.where(c < 0, 0.0, c).to(c.dtype)
    t = cubic_guess(start, end, target)
    low = tl.zeros_like(t)
    high = low + 1
    for _step in tl.static_range(STEPS):
        q, _, slope = shape(t, 1 - t, start, end, STEFFEN)
        residual = t * q - target
        low = tl.where(residual <= 0, t, low)
        high = tl.where(residual >= 0, t, high)
        newton = t - residual / slope
        t = tl.where((newton >= low) & (newton <= high), newton, (low + high) * 0.5)
    return t + 0 * (start + end + c)  # the bracket has swallowed any NaN; give it back


@triton.jit
def rational_root(start, end, c):
    slope = start * (1 - c) + (2 - end) * c
    shifted = slope - 2 * c
    root = tl.sqrt(shifted * shifted + 4 * c * (1 - c))
    rising = slope >= 0
    return tl.where(rising, 2 * c, root - slope) / tl.where(rising, slope + root, 2 * (1 - slope))


@triton.jit
def solve(start, end, c_low, c_high, SLOPES: tl.constexpr, STEPS: tl.constexpr):
    """(t, 1 - t) with f(t) = c_low, found from the nearer end of the bin."""
    mirrored = c_low > c_high
    near_slope = tl.where(mirrored, end, start)
    far_slope = tl.where(mirrored, start, end)
    c = tl.where(mirrored, c_high, c_low)
    if SLOPES == RATIONAL:
        root = rational_root(near_slope, far_slope, c)
    else:
        root = cubic_root(near_slope, far_slope, c, STEPS)
    rest = 1 - root
    return tl.where(mirrored, rest, root), tl.where(mirrored, root, rest)


# --- the map ----------------------------------------------------------------------------------------------------------
# `source` is the axis of the input and `target` that of the output: for the bin its (before, after, size, down, up), the
# sums of all sizes before and after it, its own size, and the sizes of the bins one down and one up. `ends` is what
# locate_ends returns; `logits` are the slope parameters of the bin's two ends.


@triton.jit
def softmax_scale(total, K: tl.constexpr, FLOOR: tl.constexpr):
    """What an exponential is multiplied by, before the floor is added."""
    return divide(tl.full(total.shape, 1 - K * FLOOR, total.dtype), total)


@triton.jit
def bin_sizes(bin, scale, floor, raw, after, K: tl.constexpr):
    """Exponentials to sizes: (before, after, size, down, up)."""
    before, size, down, up = raw
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
    """(t, 1 - t). The next bin's start and this one's end round differently: the value is kept in the bin, and gradients
    pass as if nothing had happened."""
    t = divide(near - before, size)
    t = tl.where(t < 0, 0.0, tl.where(t > 1, 1.0, t)).to(near.dtype)
    return t, 1 - t


@triton.jit
def bin_slopes(bin, source, target, logits, K: tl.constexpr, INVERSE: tl.constexpr, SLOPES: tl.constexpr):
    """(start, end)."""
    _, _, source_size, source_down, source_up = source
    _, _, target_size, target_down, target_up = target
    if INVERSE:
        start = end_slope(bin == 0, logits[0], target_down, source_down, target_size, source_size, SLOPES)
        end = end_slope(bin == K - 1, logits[1], target_up, source_up, target_size, source_size, SLOPES)
    else:
        start = end_slope(bin == 0, logits[0], source_down, target_down, source_size, target_size, SLOPES)
        end = end_slope(bin == K - 1, logits[1], source_up, target_up, source_size, target_size, SLOPES)
    return start, end


@triton.jit
def evaluate(
    x,
    ends,
    bin,
    source,
    target,
    logits,
    K: tl.constexpr,
    INVERSE: tl.constexpr,
    REAL: tl.constexpr,
    SLOPES: tl.constexpr,
    STEPS: tl.constexpr,
):
    """(y, log_slope)."""
    near, far, flipped = ends
    source_before, _, source_size, _, _ = source
    target_before, target_after, target_size, _, _ = target
    start, end = bin_slopes(bin, source, target, logits, K, INVERSE, SLOPES)
    t, tau = place_in_bin(near, source_before, source_size)
    if INVERSE:
        t, tau = solve(start, end, t, tau, SLOPES, STEPS)
    q, qbar, slope = shape(t, tau, start, end, SLOPES)
    if INVERSE:
        secant = divide(source_size, target_size)
        low = target_before + target_size * t
        high = target_after + target_size * tau
    else:
        secant = divide(target_size, source_size)
        low = target_before + target_size * (t * q)
        high = target_after + target_size * (tau * qbar)
    if REAL:
        # low / near is the edge's gain in the first bin, and there known without either, which may both be 0.
        first = bin == 0
        far_gain = divide(far, high)
        if INVERSE:
            gain = divide(tl.where(first, far_gain, low), tl.where(first, secant * q, high))
            rate = divide(tl.where(first, q, near), tl.where(first, slope, secant * slope * low))
        else:
            gain = tl.where(first, secant * q * far_gain, divide(low, high))
            rate = divide(tl.where(first, slope, secant * slope * near), tl.where(first, q, low))
        log_odds = tl.log(gain) + tl.where(first, -tl.abs(x), 0.0)  # log(near / far)
        y = tl.where(flipped, -log_odds, log_odds)
        log_slope = tl.log(rate * far_gain)
    else:
        lower = tl.where(flipped, high, low)
        upper = tl.where(flipped, low, high)
        y = tl.where(lower <= upper, lower, 1 - upper)
        log_slope = tl.log(secant * slope)
        log_slope = tl.where((x < 0) | (x > 1), float("-inf"), -log_slope if INVERSE else log_slope)
    return y, log_slope


@triton.jit
def evaluate_backward(
    x,
    ends,
    bin,
    source,
    target,
    logits,
    grad_y,
    grad_log_slope,
    K: tl.constexpr,
    INVERSE: tl.constexpr,
    REAL: tl.constexpr,
    SLOPES: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Gradients of x; of (before, size, down, up) of the source and of the target; and of the two logits.

    Sums after the bin count as one minus the rest, which is what they are, so they get none. The sums before the first
    bin are empty; their gradients there are 0 instead of infinite in the far tail.

    With G the output's distance from the near end, and G = (size) t (q, or 1 for the inverse) in the first bin, what
    divides by G multiplies by t: t / G is computed as one number that stays finite there.
    """
    near, far, flipped = ends
    source_before, _, source_size, source_down, source_up = source
    target_before, target_after, target_size, target_down, target_up = target
    start, end = bin_slopes(bin, source, target, logits, K, INVERSE, SLOPES)
    first = bin == 0
    zero = tl.zeros_like(near)
    t, tau = place_in_bin(near, source_before, source_size)
    if INVERSE:
        t, tau = solve(start, end, t, tau, SLOPES, STEPS)
    q, qbar, slope = shape(t, tau, start, end, SLOPES)
    f_start, f_end, slope_start, slope_end, slope_t = shape_derivatives(t, tau, start, end, q, slope, SLOPES)
    if INVERSE:
        low = target_before + target_size * t
        high = target_after + target_size * tau
        edge_size = target_size
    else:
        low = target_before + target_size * (t * q)
        high = target_after + target_size * (tau * qbar)
        edge_size = target_size * q
    grad_out = tl.where(flipped, -grad_y, grad_y)
    if REAL:
        grad_log = grad_log_slope
        by_low = (grad_out - grad_log) / tl.where(first, edge_size, low)
        by_high = (grad_out + grad_log) / high
        grad_low = tl.where(first, zero, by_low + by_high)
        grad_low_t = tl.where(first, by_low, by_low * t) + by_high * t
    else:
        outside = (x < 0) | (x > 1)
        grad_log = tl.where(outside, zero, grad_log_slope)
        grad_low = grad_out
        grad_low_t = grad_out * t

    per_slope = 1 / slope
    by_curve = grad_log * slope_t * per_slope
    by_start = grad_log * slope_start * per_slope
    by_end = grad_log * slope_end * per_slope
    if INVERSE:
        # low = before + size t with f(t) = c: dt = (dc - f_start dstart - f_end dend) / f'
        grad_t_t = (target_size * grad_low_t - by_curve * t) * per_slope
        grad_near = (target_size * grad_low - by_curve) * per_slope / source_size
        grad_target_size = grad_low_t + grad_log / target_size
        grad_source_size = -(q * grad_t_t + grad_log) / source_size
        grad_start = -f_start * grad_t_t - by_start
        grad_end = -f_end * grad_t_t - by_end
        edge_near = q * grad_t_t
    else:
        per_size = 1 / source_size
        by_curve *= per_size
        steep = target_size * slope
        grad_near = steep * per_size * grad_low + by_curve
        grad_target_size = q * grad_low_t + grad_log / target_size
        grad_source_size = -(steep * grad_low_t + grad_log) * per_size - by_curve * t
        grad_start = target_size * f_start * grad_low_t + by_start
        grad_end = target_size * f_end * grad_low_t + by_end
        edge_near = steep * grad_low_t + by_curve * near
    if REAL:
        grad_x = tl.where(first, edge_near, grad_near * near) * far + grad_log * (far - near)
    else:
        grad_x = tl.where(outside, zero, grad_near)
    grad_x = tl.where(flipped, -grad_x, grad_x)
    grad_source_before = tl.where(first, zero, -grad_near)
    grad_target_before = tl.where(first, zero, grad_low)

    if INVERSE:
        low_logit, target_low, source_low, target_at, source_at = end_slope_backward(
            grad_start, first, logits[0], target_down, source_down, target_size, source_size, SLOPES
        )
        high_logit, target_high, source_high, target_at_high, source_at_high = end_slope_backward(
            grad_end, bin == K - 1, logits[1], target_up, source_up, target_size, source_size, SLOPES
        )
    else:
        low_logit, source_low, target_low, source_at, target_at = end_slope_backward(
            grad_start, first, logits[0], source_down, target_down, source_size, target_size, SLOPES
        )
        high_logit, source_high, target_high, source_at_high, target_at_high = end_slope_backward(
            grad_end, bin == K - 1, logits[1], source_up, target_up, source_size, target_size, SLOPES
        )
    grad_source = (grad_source_before, grad_source_size + source_at + source_at_high, source_low, source_high)
    grad_target = (grad_target_before, grad_target_size + target_at + target_at_high, target_low, target_high)
    return grad_x, grad_source, grad_target, (low_logit, high_logit)
