"""The pictures of docs/mathematics.md.

python docs/figures/mathematics.py      # writes docs/images/{steffen,real_line,inverse}.png
"""

from __future__ import annotations

import csv
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from cubicflow.splines import cubic_interpolation, cubic_spline
from cubicflow.transforms import Compose, ElementMap, Elementwise, Logit, Sigmoid

DOCS = Path(__file__).parent.parent
IMAGES = DOCS / "images"


def steffen() -> None:
    """Draw an interpolant with the slopes of parabolas, which overshoot beside a step, and with Steffen's slopes."""
    x_knots = torch.tensor([0.0, 0.15, 0.3, 0.45, 0.55, 0.75, 1.0], dtype=torch.float64)
    y_knots = torch.tensor([0.0, 0.03, 0.05, 0.08, 0.85, 0.93, 1.0], dtype=torch.float64)
    x = torch.linspace(0, 1, 1001, dtype=torch.float64)
    widths, secants = x_knots.diff(), y_knots.diff() / x_knots.diff()
    parabolas = (secants[:-1] * widths[1:] + secants[1:] * widths[:-1]) / (widths[:-1] + widths[1:])
    ends = secants[:1], secants[-1:]
    unlimited = torch.cat([ends[0], parabolas, ends[1]])
    limited = torch.cat([ends[0], torch.minimum(parabolas, 2 * torch.minimum(secants[:-1], secants[1:])), ends[1]])
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for slopes, label, style in ((unlimited, "slopes of the parabolas", "C1--"), (limited, "Steffen's slopes", "C0-")):
        y, slope = hermite(x, x_knots, y_knots, slopes)
        left.plot(x, y, style, label=label, linewidth=1.3)
        right.plot(x, slope, style, label=label, linewidth=1.3)
    exact, _ = cubic_interpolation(x, x_knots, y_knots, limited)
    assert torch.allclose(exact, hermite(x, x_knots, y_knots, limited)[0], atol=1e-12)
    left.plot(x_knots, y_knots, "k.", label="knots")
    right.axhline(0, color="black", linewidth=0.6)
    left.set(title="the interpolant", xlabel="x")
    right.set(title="its slope: below 0 there is no inverse", xlabel="x")
    left.legend(frameon=False)
    save(figure, "steffen")


def hermite(x: Tensor, x_knots: Tensor, y_knots: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cubic through any knots with any slopes, monotone or not, and its slope, by the textbook formula."""
    k = torch.searchsorted(x_knots[1:-1], x, right=True)
    width = x_knots.diff()[k]
    t = (x - x_knots[k]) / width
    y0, y1, d0, d1 = y_knots[k], y_knots[k + 1], slopes[k] * width, slopes[k + 1] * width
    y = (1 + 2 * t) * (1 - t) ** 2 * y0 + t * (1 - t) ** 2 * d0 + t**2 * (3 - 2 * t) * y1 + t**2 * (t - 1) * d1
    slope = 6 * t * (1 - t) * (y1 - y0) + (1 - t) * (1 - 3 * t) * d0 + t * (3 * t - 2) * d1
    return y, slope / width


def real_line() -> None:
    """Draw round trips in float32, of the clipped map (sigmoid, spline, logit) and of the map without a clip."""
    params = torch.randn(22, generator=torch.Generator().manual_seed(3))
    x = torch.linspace(-40, 40, 4001)
    sandwich = Compose([Sigmoid(clip=1e-6), Elementwise(1, ElementMap(domain="unit")), Logit(clip=1e-6)])
    with torch.no_grad():
        sandwich.transforms[1].params.copy_(params[None])
        clipped = sandwich(x[:, None])[0]
        there_and_back = {
            "clipped at 1e-6": sandwich.inverse(clipped)[0][:, 0],
            "without a clip": cubic_spline(cubic_spline(x, params)[0], params, inverse=True)[0],
        }
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
        left.plot(x, clipped[:, 0], "C1--", label="clipped at 1e-6", linewidth=1.3)
        left.plot(x, cubic_spline(x, params)[0], "C0-", label="without a clip", linewidth=1.3)
        left.set(title="the map of one element, float32", xlabel="x", ylabel="y")
        left.legend(frameon=False)
        for (name, back), style in zip(there_and_back.items(), ("C1--", "C0-"), strict=True):
            worst = (back - x).abs()[: len(x) // 50 * 50].reshape(-1, 50).amax(1)  # largest of 50 neighbours
            right.semilogy(x[25 : len(worst) * 50 : 50], worst.clamp(min=1e-8), style, label=name, linewidth=1.3)
        right.set(title="there and back: largest |error|, float32", xlabel="x")
    save(figure, "real_line")


def inverse() -> None:
    """Draw the recorded backward errors of the inverses, one dot for each K and scale."""
    with (DOCS.parent / "results" / "spline_robustness.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    methods = {"nflows cubic": "C1", "closed form": "C2", "cubic, steffen": "C0", "cubic, free": "C4"}
    for axes, dtype in zip(panels, ("float32", "float64"), strict=True):
        for place, (method, colour) in enumerate(methods.items()):
            errors = [float(row["backward"]) for row in rows if (row["method"], row["dtype"]) == (method, dtype)]
            spread = torch.linspace(-0.25, 0.25, len(errors))
            axes.semilogy(place + spread, errors, ".", color=colour)
        axes.set_xticks(range(len(methods)), list(methods), fontsize=8)
        axes.set(title=f"backward error of the inverse, {dtype}")
        axes.grid(axis="y", alpha=0.3)
    panels[0].set_ylabel("epsilon × (1 + steepest secant nearby)")
    save(figure, "inverse")


def save(figure: plt.Figure, name: str) -> None:
    figure.savefig(IMAGES / f"{name}.png", dpi=90)
    plt.close(figure)


if __name__ == "__main__":
    steffen()
    real_line()
    inverse()
