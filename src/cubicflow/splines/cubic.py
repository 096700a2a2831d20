"""The monotone cubic spline, with Steffen's interior slopes or with one parameter for each interior slope.

In the unit bin, the end slopes a and b are in units of the secant, 0 <= a, b <= 3. With tau = 1 - t:

    f      = t q,       q    = a tau^2 + (3 - b) t tau + t^2
    1 - f  = tau qbar,  qbar = b t^2 + (3 - a) t tau + tau^2
    f'     = a tau^2 + 2 (3 - a - b) t tau + b t^2

These are the cubic's Bernstein forms. Every coefficient of q and qbar is nonnegative, so neither sum cancels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cubicflow.splines.bins import (
    Bins,
    bins_from_slopes,
    floored_softmax,
    free_slopes,
    periodic_bins,
    slope_ratio,
    steffen_slopes,
)
from cubicflow.splines.calls import calls
from cubicflow.splines.evaluation import Shape, UnitMap

# From the first guess below, 5 steps converge in float64 for every a, b in [1e-7, 3 - 1e-3] and c in [4e-18, 1/2]. The
# sixth step is a reserve. Convergence is quadratic, so float32 needs two steps fewer; the kernels use that.
NEWTON_STEPS = 6
FLOAT32_NEWTON_STEPS = NEWTON_STEPS - 2


def cubic_bins(
    params: Tensor, num_bins: int, min_bin_width: float, min_bin_height: float, slopes: str = "steffen"
) -> Bins:
    """Return the bins of the interval. params: K widths, K heights, then the two edge slopes or, with
    ``slopes="free"``, all K + 1 slopes in knot order."""
    k = num_bins
    widths = floored_softmax(params[..., :k], min_bin_width)
    heights = floored_softmax(params[..., k : 2 * k], min_bin_height)
    secants = heights / widths
    if slopes == "steffen":
        interior = steffen_slopes(widths, heights)
    else:
        interior = free_slopes(params[..., 2 * k + 1 : -1], widths, heights)
    lower = slope_ratio(params[..., 2 * k : 2 * k + 1]) * secants[..., :1]
    upper = slope_ratio(params[..., -1:]) * secants[..., -1:]
    return bins_from_slopes(widths, heights, torch.cat([lower, interior, upper], dim=-1))


def cubic_circle(
    params: Tensor, num_bins: int, min_bin_width: float, min_bin_height: float, slopes: str = "steffen"
) -> Bins:
    """Return the bins of the circle. params: as on the interval, but the last one is a rotation.

    The first slope param gives the slope at the seam: r(.) x the smaller of the two secants beside the seam. Both bins
    therefore stay monotone.
    """
    bins = cubic_bins(params, num_bins, min_bin_width, min_bin_height, slopes)
    secants = bins.heights / bins.widths
    return periodic_bins(bins, bins.start[..., :1] * torch.minimum(secants[..., :1], secants[..., -1:]), params)


def cubic_shape(t: Tensor, tau: Tensor, start: Tensor, end: Tensor) -> Shape:
    tt, mixed, tautau = t * t, t * tau, tau * tau
    return Shape(
        q=start * tautau + (3 - end) * mixed + tt,
        qbar=end * tt + (3 - start) * mixed + tautau,
        # The slope is positive for start, end < 3. If both are 3 it is 0 at t = 1/2, and rounding may make it negative.
        slope=(start * tautau + 2 * (3 - start - end) * mixed + end * tt).clamp(min=0),
    )


def solve_unit_cubic(start: Tensor, end: Tensor, c: Tensor) -> Tensor:
    """Return t in [0, 1] with f(t) = c, for c in [0, 1/2], by bracketed Newton steps from a closed-form first guess.

    The number of steps is fixed and no step branches on data. A Newton step that leaves the bracket, or is NaN, is
    replaced by bisection. A step onto the bracket's end is accepted: converged steps land there.
    """
    target = c.clamp(min=0)  # rounding may put a point one ulp below its bin
    t = _first_guess(start, end, target)
    low, high = torch.zeros_like(t), torch.ones_like(t)
    for _ in range(NEWTON_STEPS):
        form = cubic_shape(t, 1 - t, start, end)
        residual = t * form.q - target
        low = torch.where(residual <= 0, t, low)
        high = torch.where(residual >= 0, t, high)
        newton = t - residual / form.slope
        t = torch.where((newton >= low) & (newton <= high), newton, (low + high) / 2)
    return t + 0 * (start + end + c)  # bisection replaced NaN by a number; restore NaN


def _first_guess(start: Tensor, end: Tensor, target: Tensor) -> Tensor:
    """Return a first guess within a small factor of the root of a t + Q t^2 + L t^3 = c, for all coefficients.

    Newton is slow where the cubic term dominates: if f is near t^3, c / a lies far above the root; and if a and b are
    near 3, f has a plateau. The first guess therefore uses the cubic term:

    - L > 0 and Q >= 0: all terms are positive, so no single term can exceed c. The root is below both the quadratic
      part's root and (c / L)^(1/3), and within a factor of 3 of the smaller one.
    - L > 0 and Q < 0, with the inflection point i = -Q / 3L in the bin: f(i + d) = f(i) + m d + L d^3 with
      m = f'(i) >= 0. Dropping m overestimates |d|, so Newton descends a convex branch, and descends fast if m is small.
    - Otherwise f has no plateau before c <= 1/2, and the quadratic part's root, or c / a, is near enough.
    """
    cubic, quadratic = start + end - 2, 3 - 2 * start - end
    denominator = start + (start * start + 4 * quadratic.clamp(min=0) * target).sqrt()
    from_quadratic = (2 * target / denominator.clamp(min=torch.finfo(target.dtype).tiny)).clamp(max=1)

    has_inflection = (cubic > 0) & (-quadratic <= 3 * cubic)
    safe_cubic = torch.where(has_inflection, cubic, 1)
    inflection = (-quadratic / (3 * safe_cubic)).clamp(0, 1)
    rise = (target - inflection * cubic_shape(inflection, 1 - inflection, start, end).q) / safe_cubic
    from_cubic = (inflection + rise.sign() * rise.abs().pow(1 / 3)).clamp(0, 1)
    from_cubic = torch.where(quadratic >= 0, torch.minimum(from_quadratic, from_cubic), from_cubic)
    return torch.where(has_inflection, from_cubic, from_quadratic)


class CubicRoot(torch.autograd.Function):
    """The root, with gradients from the implicit function theorem instead of the solver's steps.

    f(t; a, b) = c gives dt = (dc - f_a da - f_b db) / f'(t), with f_a = t tau^2 and f_b = -t^2 tau. The backward
    consists of differentiable operations on the root, so derivatives of every order are correct.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(start: Tensor, end: Tensor, c: Tensor) -> Tensor:
        return solve_unit_cubic(start, end, c)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
        start, end, _ = inputs
        ctx.save_for_backward(start, end, output)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[no-untyped-def]
        start, end, t = ctx.saved_tensors
        tau = 1 - t
        scaled = grad / cubic_shape(t, tau, start, end).slope
        return -scaled * t * tau * tau, scaled * t * t * tau, scaled


def cubic_root(start: Tensor, end: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Return the differentiable root t of f(t) = c, and 1 - t."""
    t = (reattached_root if calls.in_forward_mode() else CubicRoot.apply)(start, end, c)
    return t, 1 - t


def reattached_root(start: Tensor, end: Tensor, c: Tensor) -> Tensor:
    """Return the root with forward-mode derivatives, from plain operations. A ``jvp`` of ``CubicRoot`` would be wrong:
    torch runs a ``jvp`` without the tangents of outer levels, so nested forward mode would silently return 0.

    The loop takes Newton steps at the root. A step leaves the value unchanged and squares the error of the root's
    Taylor series, so n steps give correct derivatives up to order 2^n - 1. Three steps are correct up to order 7.
    """
    t = solve_unit_cubic(start.detach(), end.detach(), c.detach())
    for _ in range(3):
        form = cubic_shape(t, 1 - t, start, end)
        residual = t * form.q - c
        # Where the slope is 0 the derivative does not exist. The clamp keeps the value finite there.
        t = t - (residual - residual.detach()) / form.slope.clamp(min=torch.finfo(t.dtype).tiny)
    return t


CUBIC = UnitMap(cubic_shape, cubic_root)
