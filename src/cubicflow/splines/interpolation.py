"""Monotone cubic interpolation of given knots, as in the paper's appendix."""

from __future__ import annotations

import torch
from torch import Tensor

from cubicflow.splines.bins import bins_from_slopes, steffen_slopes
from cubicflow.splines.cubic import CUBIC
from cubicflow.splines.evaluation import Knots, evaluate_in_bins, mask_outside
from cubicflow.splines.functions import check_inside
from cubicflow.splines.spec import check_floating


def cubic_interpolation(
    x: Tensor,
    x_knots: Tensor,
    y_knots: Tensor,
    slopes: Tensor | None = None,
    *,
    inverse: bool = False,
    validate: bool = True,
) -> tuple[Tensor, Tensor]:
    """Evaluate the monotone cubic through strictly increasing knots. Return ``(y, log_slope)``, element by element.

    Args:
        x: inputs. The shape broadcasts with ``x_knots[..., 0]``. With ``inverse``, values of y.
        x_knots, y_knots: K + 1 knots in the last axis, finite and strictly increasing.
        slopes: the slopes at the K + 1 knots, each between 0 and 3 times the adjacent secants. None takes Steffen's
            slopes, with Steffen's one-sided parabola at the two ends.
        inverse: evaluate the inverse map and its log-slope.
        validate: check the knots, the slopes and the domain. The check reads values; turn it off in compiled code.

    Outside the knots, without validation, y is clamped and log_slope is -inf.

    >>> x_knots, y_knots = torch.tensor([0.0, 1.0, 3.0]), torch.tensor([0.0, 2.0, 3.0])
    >>> y, log_slope = cubic_interpolation(torch.tensor([0.0, 1.0, 2.0, 3.0]), x_knots, y_knots)
    >>> y[[0, 1, 3]]
    tensor([0., 2., 3.])
    >>> back, _ = cubic_interpolation(y, x_knots, y_knots, inverse=True)
    >>> torch.allclose(back, torch.tensor([0.0, 1.0, 2.0, 3.0]))
    True
    """
    tensors = {"x": x, "x_knots": x_knots, "y_knots": y_knots, **({} if slopes is None else {"slopes": slopes})}
    dtype = torch.float32
    for name, tensor in tensors.items():
        check_floating(name, tensor)
        dtype = torch.promote_types(dtype, tensor.dtype)
    if x_knots.shape[-1:] != y_knots.shape[-1:] or x_knots.shape[-1:] < (2,):
        raise ValueError(
            "x_knots and y_knots need the same number of knots, at least 2, in their last axis; got shapes "
            f"{tuple(x_knots.shape)} and {tuple(y_knots.shape)}"
        )
    if slopes is not None and slopes.shape[-1:] != x_knots.shape[-1:]:
        raise ValueError(
            f"slopes needs one slope for each of the {x_knots.shape[-1]} knots in its last axis; got shape "
            f"{tuple(slopes.shape)}"
        )
    tables = list(tensors.values())[1:]
    try:
        torch.broadcast_shapes(x.shape, *(table.shape[:-1] for table in tables))
    except RuntimeError:
        raise ValueError(
            f"x of shape {tuple(x.shape)} does not broadcast with knots and slopes of shapes "
            f"{', '.join(str(tuple(table.shape)) for table in tables)}; the last axis of knots and slopes holds one "
            "spline, and all other axes must match those of x or be 1"
        ) from None
    x_knots, y_knots, *given = torch.broadcast_tensors(*(table.to(dtype) for table in tables))
    widths, heights = x_knots.diff(dim=-1), y_knots.diff(dim=-1)
    if validate:
        _check_knots("x_knots", x_knots, widths)
        _check_knots("y_knots", y_knots, heights)
    bins = bins_from_slopes(widths, heights, given[0] if given else steffen_slopes_with_ends(widths, heights))
    if validate and given:
        _check_slopes(torch.stack([bins.start, bins.end]))

    points = x.to(dtype)
    source = y_knots if inverse else x_knots
    low_end, high_end = source[..., 0], source[..., -1]
    if validate:
        check_inside(points, low_end, high_end)
    clamped = points.clamp(low_end, high_end)
    knots = Knots(widths, x_knots[..., :-1], -x_knots[..., 1:]), Knots(heights, y_knots[..., :-1], -y_knots[..., 1:])
    result = evaluate_in_bins(clamped, -clamped, bins, CUBIC, inverse, knots)
    y = torch.where(result.near_low, result.low, -result.high)  # from the nearer knot, hence exact at the knots
    return y.to(x.dtype), mask_outside(result.log_slope, (points < low_end) | (points > high_end))


def steffen_slopes_with_ends(widths: Tensor, heights: Tensor) -> Tensor:
    """Return Steffen's slopes at all K + 1 knots.

    At an end, the slope is that of the parabola through the three outermost knots, clamped between 0 and twice the
    outermost secant. A single bin is a straight line.
    """
    secants = heights / widths
    interior = steffen_slopes(widths, heights)
    lower = _end_slope(widths, secants)
    upper = _end_slope(widths.flip(-1), secants.flip(-1))
    return torch.cat([lower, interior, upper], dim=-1)


def _end_slope(widths: Tensor, secants: Tensor) -> Tensor:
    if widths.shape[-1] == 1:
        return secants
    share = widths[..., :1] / (widths[..., :1] + widths[..., 1:2])
    parabola = secants[..., :1] + share * (secants[..., :1] - secants[..., 1:2])
    return torch.minimum(parabola.clamp(min=0), 2 * secants[..., :1])


def _check_knots(name: str, knots: Tensor, steps: Tensor) -> None:
    if bool(((steps > 0) & (steps < torch.inf)).all()):
        return
    if not bool(knots.isfinite().all()):
        bad = int((~knots.isfinite()).sum())
        raise ValueError(f"{name} must be finite; {bad} of {knots.numel()} are NaN or infinite")
    if bool((steps <= 0).any()):
        raise ValueError(f"{name} must be strictly increasing; the smallest step is {float(steps.min()):g}")
    raise ValueError(f"the differences between {name} overflow {steps.dtype}; rescale {name}")


def _check_slopes(ratios: Tensor) -> None:
    # A slope computed as 3 x secant may exceed 3 by a few roundings; the cubic is then monotone up to rounding.
    limit = 3 * (1 + 8 * torch.finfo(ratios.dtype).eps)
    if not bool(((ratios >= 0) & (ratios <= limit)).all()):
        raise ValueError(
            "every slope must lie between 0 and 3 times the adjacent secants, or the cubic is not monotone; "
            f"found ratios from {float(ratios.min()):g} to {float(ratios.max()):g}"
        )
