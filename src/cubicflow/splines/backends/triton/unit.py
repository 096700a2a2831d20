# mypy: ignore-errors
# ruff: noqa: N803, RET505, SIM109
"""The bin's own unit square: the slopes at its ends, the map f from [0, 1] onto itself, its derivatives and its root.

The modules ``bins.py``, ``cubic.py``, ``quadratic.py`` and ``rational_quadratic.py`` explain the formulas.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from cubicflow.splines import bins, rational_quadratic

# The records in ``families.py`` use these names.
STEFFEN, FREE, RATIONAL, QUADRATIC = (tl.constexpr(mode) for mode in range(4))

# Write these constants to the right of tensors: in some versions of the interpreter, a constant on the left turns the
# result into a constant.
LOG2E = tl.constexpr(math.log2(math.e))
LN2 = tl.constexpr(math.log(2))
LN2_HIGH = tl.constexpr(0.693359375)  # has 10 bits, so that its product with an exponent is exact
LN2_LOW = tl.constexpr(math.log(2) - 0.693359375)
MARGIN = tl.constexpr(bins.MARGIN)
RATIO_SPAN = tl.constexpr(3 - 2 * bins.MARGIN)
RATIO_SHIFT = tl.constexpr(bins.RATIO_SHIFT)
SOFTPLUS_ONE = tl.constexpr(rational_quadratic.SOFTPLUS_ONE)


# --- arithmetic -------------------------------------------------------------------------------------------------------
# Triton's float32 division and exponential are the hardware's fast versions. Where their errors would reach y or the
# log-slope in full, the functions below correct them. Elsewhere, and in all gradients, the fast versions are used.


@triton.jit
def divide(a, b):
    """Return a / b, correctly rounded."""
    if b.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)


@triton.jit
def exp_below(x, top):
    """Return exp(x - top) for x <= top.

    The hardware's exp2 is accurate to an ulp or two. But the product (x - top) log2(e) is rounded, and an argument of
    size n turns that rounding into an error of about n ulps. The rounding error is therefore computed and added back.
    """
    below = x - top
    if below.dtype == tl.float64:
        return tl.exp(below)
    else:
        # The result is 0 below -104. The clamp avoids -inf, for which the rounding error would be NaN.
        below = tl.maximum(below, -150.0, propagate_nan=tl.PropagateNan.ALL)
        scaled = below * LOG2E
        lost = tl.fma(below, tl.full(below.shape, LOG2E, below.dtype), -scaled)
        power = tl.exp2(scaled)
        return power + power * (lost * LN2)


@triton.jit
def sigmoids(x):
    """Return sigmoid(-|x|) and sigmoid(|x|), both accurate to a few ulps, even if tiny."""
    z = exp_below(-tl.abs(x), 0.0)
    larger = divide(tl.full(z.shape, 1.0, z.dtype), 1 + z)
    return z * larger, larger


@triton.jit
def exp_parts(x):
    """Return exp(x) for x <= 0 as a sum of two numbers, accurate to a fifth of an ulp. Both are 0 below the normal
    numbers of float32.

    The function uses only additions and multiplications, so it gives the same bits on every machine. The polynomial is
    near-minimax.
    """
    x = tl.maximum(x, -150.0, propagate_nan=tl.PropagateNan.ALL)
    n = tl.floor(x * LOG2E + 0.5)
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    p = r * 1.3926213466e-3 + 8.3632029716e-3
    p = p * r + 4.1666554438e-2
    p = p * r + 1.6666576846e-1
    p = p * r + 0.5
    s = r + r * r * p
    total = s + 1
    power = ((tl.maximum(n, -126.0).to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)
    power = tl.where(n < -126, 0.0, power)
    return total * power, (s - (total - 1)) * power


@triton.jit
def exact_sigmoids(x):
    """Return sigmoid(-|x|), accurate to about an ulp, and sigmoid(|x|).

    The smaller number decides on which side of a knot a point falls. The four roundings of ``sigmoids`` would be too
    imprecise for that, so their errors are computed and added back.
    """
    if x.dtype == tl.float64:
        return sigmoids(x)
    else:
        top, top_rest = exp_parts(-tl.abs(x))
        bottom = top + 1
        bottom_rest = (top - (bottom - 1)) + top_rest
        smaller = divide(top, bottom)
        rest = tl.fma(-smaller, bottom, top) + (top_rest - smaller * bottom_rest)
        larger = divide(tl.full(top.shape, 1.0, top.dtype), bottom)
        return smaller + rest * larger, larger


# --- slopes at a bin's two ends, in units of its secant ---------------------------------------------------------------
# `beyond` is the bin on the other side of the knot. `edge` is true if there is no such bin.


@triton.jit
def slope_ratio(logit):
    """Return r(logit), as in ``bins.slope_ratio``, and its derivative."""
    shifted = logit - RATIO_SHIFT
    smaller, larger = sigmoids(shifted)
    return tl.where(shifted > 0, larger, smaller) * RATIO_SPAN + MARGIN, smaller * larger * RATIO_SPAN


@triton.jit
def softplus_slope(logit):
    """Return the slope of a rational-quadratic spline at a knot, and the slope's derivative by the logit."""
    shifted = logit + SOFTPLUS_ONE
    z = exp_below(-tl.abs(shifted), 0.0)
    one_plus = 1 + z
    log1p = tl.log(one_plus) + (z - (one_plus - 1)) / one_plus
    larger = 1 / one_plus
    rate = tl.where(shifted > 0, larger, z * larger)
    return (tl.maximum(shifted, 0.0) + log1p) * (1 - MARGIN) + MARGIN, rate * (1 - MARGIN)


@triton.jit
def end_slope(edge, logit, width_beyond, height_beyond, width, height, SLOPES):
    """Return the slope at one end of a bin, in units of the bin's secant."""
    if SLOPES == RATIONAL:
        slope, _ = softplus_slope(logit)
        return divide(slope * width, height)
    elif SLOPES == QUADRATIC:  # here logit is the density at the knot
        return divide(logit * width, height)
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
def end_slope_backward(grad, edge, logit, width_beyond, height_beyond, width, height, SLOPES):
    """Return the gradients of (logit, width_beyond, height_beyond, width, height)."""
    if SLOPES == RATIONAL or SLOPES == QUADRATIC:
        slope = logit
        if SLOPES == RATIONAL:
            slope, rate = softplus_slope(logit)
        grad_logit = grad * (width / height)
        if SLOPES == RATIONAL:
            grad_logit *= rate
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
            # All-zero params give equal secants. The gradient of min is then split in half, as in torch.
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
def shape(t, tau, start, end, SLOPES):
    """Return q, qbar and f'."""
    tt = t * t
    mixed = t * tau
    tautau = tau * tau
    if SLOPES == RATIONAL:
        scale = 1 / (tt + (start + end) * mixed + tautau)
        q = (start * tau + t) * scale
        qbar = (end * t + tau) * scale
        slope = (start * tautau + 2 * mixed + end * tt) * (scale * scale)
    elif SLOPES == QUADRATIC:
        q = start * tau + t
        qbar = end * t + tau
        slope = start * tau + end * t
    else:
        q = start * tautau + (3 - end) * mixed + tt
        qbar = end * tt + (3 - start) * mixed + tautau
        slope = start * tautau + 2 * (3 - start - end) * mixed + end * tt
        slope = tl.where(slope < 0, 0.0, slope).to(t.dtype)  # tl.maximum would drop NaN
    return q, qbar, slope


@triton.jit
def shape_derivatives(t, tau, start, end, q, qbar, slope, SLOPES):
    """Return df/dstart / t, df/dend / t, and the derivatives of f' with respect to start, end and t."""
    tt = t * t
    mixed = t * tau
    tautau = tau * tau
    if SLOPES == RATIONAL:
        scale = 1 / (tt + (start + end) * mixed + tautau)
        drop = 2 * slope * mixed
        f_start = tautau * qbar * scale
        f_end = -q * mixed * scale
        slope_start = (tautau * scale - drop) * scale
        slope_end = (tt * scale - drop) * scale
        numerator_t = 2 * (end * t - start * tau + (tau - t))
        denominator_t = 2 * (t - tau) + (start + end) * (tau - t)
        slope_t = (numerator_t * scale - 2 * slope * denominator_t) * scale
    elif SLOPES == QUADRATIC:  # f = t (start tau + t), because start + end = 2
        f_start = tau
        f_end = tl.zeros_like(t)
        slope_start = tau
        slope_end = t
        slope_t = end - start
    else:
        f_start = tautau
        f_end = -mixed
        slope_start = tautau - 2 * mixed
        slope_end = tt - 2 * mixed
        slope_t = 2 * (end * t - start * tau + (3 - start - end) * (tau - t))
    return f_start, f_end, slope_start, slope_end, slope_t


@triton.jit
def cubic_guess(start, end, target):
    """Return the first guess of the root. ``_first_guess`` in ``cubic.py`` explains the formula."""
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
def cubic_root(start, end, c, STEPS):
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
    return t + 0 * (start + end + c)  # bisection replaced NaN by a number; restore NaN


@triton.jit
def rational_root(start, end, c):
    """Return the root t of a rational-quadratic bin, and 1 - t. ``rational_quadratic_root`` explains the formula."""
    slope = start * (1 - c) + (2 - end) * c
    shifted = slope - 2 * c
    root = tl.sqrt(shifted * shifted + 4 * c * (1 - c))
    rising = slope >= 0
    t = tl.where(rising, 2 * c, root - slope) / tl.where(rising, slope + root, 2 * (1 - slope))
    return t, tl.where(t > 0.5, 2 * (1 - c) / (2 - slope + root), 1 - t)


@triton.jit
def quadratic_root(start, c):
    shifted = start - 2 * c
    return divide(2 * c, start + tl.sqrt(shifted * shifted + 4 * c * (1 - c)))


@triton.jit
def solve(start, end, c_low, c_high, SLOPES, STEPS):
    """Return (t, 1 - t) with f(t) = c_low, solved from the nearer end of the bin."""
    mirrored = c_low > c_high
    near_slope = tl.where(mirrored, end, start)
    far_slope = tl.where(mirrored, start, end)
    c = tl.where(mirrored, c_high, c_low)
    if SLOPES == RATIONAL:
        root, rest = rational_root(near_slope, far_slope, c)
    else:
        root = quadratic_root(near_slope, c) if SLOPES == QUADRATIC else cubic_root(near_slope, far_slope, c, STEPS)
        rest = 1 - root
    return tl.where(mirrored, rest, root), tl.where(mirrored, root, rest)
