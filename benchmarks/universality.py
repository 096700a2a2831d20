"""Convergence of the splines to a fixed smooth monotone function as K grows: a picture and a fitted rate.

    python -m benchmarks.universality

The target is a piece of tanh, rescaled to run from (0, 0) to (1, 1). It is not symmetric: symmetry could raise the
order of convergence by accident. Nothing is trained. Each spline has K equal widths. Its heights come from the target's
values at the knots, and its edge or free slopes from the target's slopes; the quadratic spline takes its densities from
the target's slopes. The params follow by inverting softmax, sigmoid and softplus, so that the public functions are
tested. The error is the largest over 100,001 points. The rate is the least-squares slope of log error against log K
over K >= 16.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from cubicflow.splines import cubic_spline, linear_spline, quadratic_spline, rational_quadratic_spline

BINS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
MARGIN = 1e-3


def target(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the function and its derivative, which is at least 0.17."""
    low, high = math.tanh(-1.2), math.tanh(1.8)
    value = torch.tanh(3 * x - 1.2)
    return (value - low) / (high - low), 3 * (1 - value * value) / (high - low)


def softmax_logits(shares: Tensor) -> Tensor:
    """Return logits that the floored softmax turns into ``shares``."""
    k = shares.shape[-1]
    floor = min(1e-3, 0.1 / k)
    return ((shares - floor) / (1 - k * floor)).log()


def ratio_logits(ratios: Tensor) -> Tensor:
    """Return logits that give slopes of ``ratios`` x secant."""
    return torch.logit((ratios - MARGIN) / (3 - 2 * MARGIN)) + math.log((2 - MARGIN) / (1 - MARGIN))


def steffen(x: Tensor, k: int) -> Tensor:
    knots, slopes = knots_of(k)
    secants = knots.diff() * k
    ends = ratio_logits(torch.stack([slopes[0] / secants[0], slopes[-1] / secants[-1]]))
    return cubic_spline(x, torch.cat([torch.zeros(k).double(), softmax_logits(knots.diff()), ends]), domain="unit")[0]


def free(x: Tensor, k: int) -> Tensor:
    knots, slopes = knots_of(k)
    secants = knots.diff() * k
    smaller = torch.cat([secants[:1], torch.minimum(secants[:-1], secants[1:]), secants[-1:]])
    params = torch.cat([torch.zeros(k).double(), softmax_logits(knots.diff()), ratio_logits(slopes / smaller)])
    return cubic_spline(x, params, domain="unit", slopes="free")[0]


def quadratic(x: Tensor, k: int) -> Tensor:
    _, slopes = knots_of(k)
    floor = min(1e-3, 0.1 / k)
    vertices = (slopes - k * floor).log()
    return quadratic_spline(x, torch.cat([torch.zeros(k).double(), vertices]), domain="unit")[0]


def linear(x: Tensor, k: int) -> Tensor:
    return linear_spline(x, softmax_logits(knots_of(k)[0].diff()), domain="unit")[0]


def rational_quadratic(x: Tensor, k: int) -> Tensor:
    knots, slopes = knots_of(k)
    positive = (slopes - MARGIN) / (1 - MARGIN)
    logits = torch.log(torch.expm1(positive)) - math.log(math.e - 1)
    params = torch.cat([torch.zeros(k).double(), softmax_logits(knots.diff()), logits])
    return rational_quadratic_spline(x, params, domain="unit")[0]


def knots_of(k: int) -> tuple[Tensor, Tensor]:
    return target(torch.linspace(0, 1, k + 1, dtype=torch.float64))


FAMILIES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "linear": linear,
    "quadratic": quadratic,
    "cubic, steffen": steffen,
    "cubic, free": free,
    "rational-quadratic": rational_quadratic,
}


def fitted_rate(errors: dict[int, float]) -> float:
    """Return the order p of error ~ K^-p over K >= 16."""
    points = [(math.log(k), math.log(error)) for k, error in errors.items() if k >= 16]
    return -statistics.linear_regression(*zip(*points, strict=True)).slope


def draw(errors: dict[str, dict[int, float]], path: Path) -> None:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise SystemExit("the picture needs matplotlib: pip install 'cubicflow[bench]'") from error
    figure, axes = plt.subplots(figsize=(6, 4.2), layout="constrained")
    for (name, values), marker in zip(errors.items(), "vsoD^", strict=True):
        label = f"{name}: $K^{{-{fitted_rate(values):.2f}}}$"
        axes.loglog(list(values), list(values.values()), marker + "-", markersize=4, linewidth=1, label=label)
    axes.set(
        xlabel="bins K", ylabel="largest error on [0, 1]", title="Splines of K equal bins against a smooth function"
    )
    axes.set_xticks([2, 4, 8, 16, 32, 64, 128, 256], ["2", "4", "8", "16", "32", "64", "128", "256"])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, default=Path("results"), help="folder for the CSV and the picture")
    args = parser.parse_args()
    x = torch.linspace(0, 1, 100_001, dtype=torch.float64)
    truth, _ = target(x)
    errors = {name: {k: float((family(x, k) - truth).abs().max()) for k in BINS} for name, family in FAMILIES.items()}
    draw(errors, args.out / "universality.png")
    with (args.out / "universality.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["family", "K", "largest_error"])
        writer.writerows([name, k, f"{error:.6e}"] for name, values in errors.items() for k, error in values.items())
    print(f"{'family':<20}{'K=2':>10}{'K=16':>10}{'K=256':>10}  rate")
    for name, values in errors.items():
        print(f"{name:<20}{values[2]:>10.1e}{values[16]:>10.1e}{values[256]:>10.1e}  K^-{fitted_rate(values):.2f}")


if __name__ == "__main__":
    main()
