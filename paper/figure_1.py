"""Figure 1: a random monotone cubic spline with K = 10 bins, and its derivative."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cubicflow.splines import cubic_spline, num_params
from cubicflow.splines.cubic import cubic_bins
from cubicflow.splines.spec import make_spec
from paper.experiment import Request
from paper.figures import spline_and_derivative
from paper.recipe_files import typed

STEP = 1e-9  # distance from a knot at which the one-sided slopes are computed


@dataclass(frozen=True)
class Settings:
    """The settings in the recipe of figure 1."""

    seed: int
    num_bins: int
    params_std: float
    points: int


def run(request: Request) -> None:
    """Draw a random spline, its knots and its derivative, and record numbers that check the figure.

    The numbers show that the spline increases, that its derivative has no jumps and integrates to 1, and that the
    inverse returns x.
    """
    settings = typed(Settings, request.recipe, request.name)
    seed = request.first_seed
    generator = torch.Generator().manual_seed(seed)
    size = num_params("cubic", settings.num_bins, "steffen")
    params = settings.params_std * torch.randn(size, generator=generator, dtype=torch.float64)
    x = torch.linspace(0, 1, settings.points, dtype=torch.float64)
    y, slope = _spline(x, params)
    back, _ = cubic_spline(y, params, inverse=True, domain="unit")

    x_knots, y_knots = _knots(params)
    left, right = (_spline(x_knots[1:-1] + step, params)[1] for step in (-STEP, STEP))
    results = {
        "params": params.tolist(),
        "x_knots": x_knots.tolist(),
        "y_knots": y_knots.tolist(),
        "smallest_slope": float(slope.min()),
        "largest_slope": float(slope.max()),
        "one_sided_step": STEP,
        "largest_relative_jump_of_slope": float(((right - left).abs() / slope.max()).max()),
        "integral_of_slope": float(torch.trapezoid(slope, x)),
        "largest_round_trip_error": float((back - x).abs().max()),
    }
    figure = spline_and_derivative(*(part.numpy() for part in (x, y, slope, x_knots, y_knots)))
    request.draw("figure-1.png", figure)
    rows = [{"x": a, "y": b, "slope": c} for a, b, c in zip(x.tolist(), y.tolist(), slope.tolist(), strict=True)]
    request.write_csv("figure-1.csv", rows[:: max(len(rows) // 1000, 1)])
    request.record(results)
    request.report(
        f"slopes from {results['smallest_slope']:.3g} to {results['largest_slope']:.3g}, "
        f"round trip to {results['largest_round_trip_error']:.1g}"
    )


def _spline(x: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
    y, log_slope = cubic_spline(x, params, domain="unit")
    return y, log_slope.exp()


def _knots(params: Tensor) -> tuple[Tensor, Tensor]:
    spec = make_spec(params[:1], params, family="cubic", inverse=False, domain="unit", slopes="steffen")
    bins = cubic_bins(params, spec.num_bins, spec.min_bin_width, spec.min_bin_height)
    zero = torch.zeros(1, dtype=params.dtype)
    return torch.cat([zero, bins.widths.cumsum(-1)]), torch.cat([zero, bins.heights.cumsum(-1)])
