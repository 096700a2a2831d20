"""The appendix: a monotone quadratic spline cannot interpolate arbitrary monotone knots, and a cubic spline can.

A C1 quadratic spline through K + 1 knots has one degree of freedom. In a bin with secant s, the slopes at both ends
average to s. So the slope at the first knot determines all others,

    d_{k+1} = 2 s_k - d_k,      d_k = c_k + (-1)^k d_0,      c_0 = 0,  c_{k+1} = 2 s_k - c_k

and the spline is monotone if and only if every d_k >= 0, because its derivative is linear in each bin. Even k need
d_0 >= -c_k, and odd k need d_0 <= c_k. If the largest -c_k of even k exceeds the smallest c_k of odd k, no d_0 is
possible, and no quadratic spline through the knots is monotone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from benchmarks.markdown import markdown_table
from numpy.typing import NDArray

from cubicflow.splines import cubic_interpolation, num_params
from paper.experiment import Request
from paper.figures import KnotPanel, through_knots
from paper.recipe_files import typed

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Settings:
    """The settings in the recipe of the appendix."""

    heights: Sequence[float]
    means: Sequence[float]
    stds: Sequence[float]
    weights: Sequence[float]
    range: Sequence[float]
    num_bins: int
    most_bins: int
    points: int
    parameter_counts: Sequence[int]


def run(request: Request) -> None:
    """Draw both splines through two sets of knots, and record their slopes, errors and numbers of parameters."""
    settings = typed(Settings, request.recipe, request.name)
    steps = np.array(settings.heights)
    thirds = np.linspace(0, 1, len(steps) + 1)
    three_bins, panel_three = _through("flat, steep, flat", thirds, np.append(0, steps.cumsum()), settings.points)

    mixture = _Mixture(settings)
    x_knots = mixture.quantile_knots(settings.num_bins)
    quantiles, panel_quantiles = _through("quantiles of two normals", x_knots, mixture.cdf(x_knots), settings.points)
    truth = mixture.cdf(panel_quantiles.x)
    quantiles["cubic_largest_error"] = float(np.abs(panel_quantiles.cubic - truth).max())
    quantiles["quadratic_largest_error"] = float(np.abs(panel_quantiles.quadratic - truth).max())
    by_bins = {k: mixture.quantile_knots(k) for k in range(2, settings.most_bins + 1)}
    quantiles["quadratic_smallest_slope_by_bins"] = {
        k: float(quadratic_slopes(np.diff(knots), np.diff(mixture.cdf(knots))).min()) for k, knots in by_bins.items()
    }

    counts = [
        {"bins": k, "cubic": num_params("cubic", k, "steffen"), "quadratic": num_params("quadratic", k, None)}
        for k in settings.parameter_counts
    ]
    request.draw("appendix.png", through_knots([panel_three, panel_quantiles]))
    request.write_csv("appendix.csv", counts)
    table = markdown_table(["K", "cubic", "quadratic"], [list(count.values()) for count in counts])
    request.write("appendix.md", f"{table}\n")
    request.record({"three_bins": three_bins, "quantiles": quantiles, "parameters": counts})
    for name, found in (("three bins", three_bins), ("quantiles", quantiles)):
        request.report(
            f"{name}: the best quadratic spline needs a slope of {found['quadratic_smallest_slope']:.3f}; "
            f"the cubic's smallest is {found['cubic_smallest_slope']:.3f}"
        )


def quadratic_slopes(widths: Floats, heights: Floats) -> Floats:
    """Return the slopes at K + 1 knots of the C1 quadratic spline whose smallest slope is as large as possible.

    If the smallest slope is negative, no quadratic spline through the knots is monotone.

    Proof: the smallest slope is min(a + d_0, b - d_0), with a the smallest c_k of even k and b the smallest c_k of odd
    k. The minimum is largest if both terms are equal, at d_0 = (b - a) / 2.

    >>> quadratic_slopes(np.ones(3), np.array([0.1, 1.0, 0.1])).round(2)
    array([-0.8,  1. ,  1. , -0.8])
    """
    constants = [0.0]
    for secant in heights / widths:
        constants.append(2 * secant - constants[-1])
    even, odd = np.array(constants[::2]), np.array(constants[1::2])
    first = (odd.min() - even.min()) / 2
    signs = np.resize([1.0, -1.0], len(constants))
    slopes: Floats = np.array(constants) + signs * first
    return slopes


def quadratic_through(x: Floats, x_knots: Floats, y_knots: Floats, slopes: Floats) -> tuple[Floats, Floats]:
    """Return the values and the derivative at x of the C1 quadratic spline with these slopes, monotone or not."""
    k = np.clip(np.searchsorted(x_knots, x, side="right") - 1, 0, len(x_knots) - 2)
    width = np.diff(x_knots)[k]
    t = (x - x_knots[k]) / width
    slope = slopes[k] * (1 - t) + slopes[k + 1] * t
    value: Floats = y_knots[k] + width * t * (slopes[k] + slope) / 2
    return value, slope


def _through(title: str, x_knots: Floats, y_knots: Floats, points: int) -> tuple[dict[str, Any], KnotPanel]:
    x = np.linspace(x_knots[0], x_knots[-1], points)
    knots = torch.from_numpy(x_knots), torch.from_numpy(y_knots)
    cubic, log_slope = (part.numpy() for part in cubic_interpolation(torch.from_numpy(x), *knots))
    miss = cubic_interpolation(knots[0], *knots)[0] - knots[1]
    needed = quadratic_slopes(np.diff(x_knots), np.diff(y_knots))
    quadratic, quadratic_slope = quadratic_through(x, x_knots, y_knots, needed)
    found = {
        "x_knots": x_knots.tolist(),
        "y_knots": y_knots.tolist(),
        "quadratic_slopes": needed.tolist(),
        "quadratic_smallest_slope": float(needed.min()),
        "quadratic_decreasing_share": float((quadratic_slope < 0).mean()),
        # The ends are left out, because Steffen's slope may be 0 there.
        "cubic_smallest_slope": float(np.exp(log_slope[1:-1]).min()),
        "cubic_largest_miss_of_a_knot": float(miss.abs().max()),
    }
    return found, KnotPanel(title, x, cubic, quadratic, x_knots, y_knots)


class _Mixture:
    """A mixture of normals, truncated to a range."""

    def __init__(self, settings: Settings) -> None:
        self.parts = list(zip(settings.weights, settings.means, settings.stds, strict=True))
        self.low, self.high = settings.range
        self.outside, inside = self._mass(self.low), self._mass(self.high)
        self.scale = inside - self.outside

    def cdf(self, x: Floats) -> Floats:
        return np.array([(self._mass(float(value)) - self.outside) / self.scale for value in x])

    def quantile_knots(self, bins: int) -> Floats:
        """Return the knots of ``bins`` bins of equal mass: quantiles, and both ends of the range."""
        inner = [self.quantile(i / bins) for i in range(1, bins)]
        return np.array([self.low, *inner, self.high])

    def quantile(self, p: float) -> float:
        """Return a quantile by bisection, which only needs an increasing cdf."""
        low, high = self.low, self.high
        while (middle := (low + high) / 2) not in (low, high):
            low, high = (middle, high) if self.cdf(np.array([middle]))[0] < p else (low, middle)
        return middle

    def _mass(self, x: float) -> float:
        return sum(weight * math.erfc((mean - x) / (std * math.sqrt(2))) / 2 for weight, mean, std in self.parts)
