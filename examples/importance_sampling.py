"""A flow as an importance sampler: estimate an integral with a known value from samples with exact densities.

    python examples/importance_sampling.py             # prints its figures, writes importance_sampling.png
    python examples/importance_sampling.py --quick     # a short training: seconds, and worse figures

The integrand is the camel function on the unit cube, two narrow humps far apart. It is a usual test of integrators in
particle physics, and integrators that adapt each axis alone fail on it. The flow learns the integrand from its own
weighted samples, without data. The estimate is unbiased for any flow: a bad fit only raises the variance.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor

import cubicflow as cf
from cubicflow.training import fit, importance_weighted

DIMENSIONS, WIDTH, CENTRES = 4, 0.1, (1 / 3, 2 / 3)


def log_camel(x: Tensor) -> Tensor:
    """Return the log of the mean of two Gaussian humps. Each hump has the integral 1 over all of space."""
    humps = torch.stack([-((x - centre) / WIDTH).square().sum(-1) for centre in CENTRES])
    return humps.logsumexp(0) - math.log(2) - DIMENSIONS * math.log(WIDTH * math.sqrt(math.pi))


def true_integral() -> float:
    """Return the exact integral over the cube. Humps are products; each factor is a difference of error functions."""
    one_axis = [(math.erf((1 - centre) / WIDTH) + math.erf(centre / WIDTH)) / 2 for centre in CENTRES]
    return sum(axis**DIMENSIONS for axis in one_axis) / 2


def estimate(log_weights: Tensor) -> dict[str, float]:
    """Return the integral, its standard error, and the effective sample size."""
    weights = log_weights.double().exp()
    return {
        "estimate": float(weights.mean()),
        "error": float(weights.std() / len(weights) ** 0.5),
        "effective": float(weights.sum() ** 2 / weights.square().sum()),
    }


def main(*, quick: bool = False, picture: Path = Path("importance_sampling.png")) -> dict[str, dict[str, float]]:
    torch.manual_seed(0)
    n, steps = (20_000, 60) if quick else (200_000, 3_000)
    flow = cf.flows.plane(DIMENSIONS, num_layers=4, num_bins=32, octaves=2)  # on the cube, from uniform noise
    loss = importance_weighted(log_camel)
    fit(flow, None, loss=loss, steps=steps, batch_size=1_024, validation_fraction=0, progress=False)

    with torch.no_grad():
        x, log_density = flow.sample_and_log_prob(n, batch_size=20_000)
    uniform = torch.rand(n, DIMENSIONS)
    log_weights = {"plain Monte Carlo": log_camel(uniform), "flow": log_camel(x) - log_density}
    found = {name: estimate(values) for name, values in log_weights.items()}
    truth = true_integral()
    print(f"true value {truth:.6f}, {n:,} samples each")
    for name, row in found.items():
        print(f"{name:<18} {row['estimate']:.6f} ± {row['error']:.6f}, worth {row['effective'] / n:.1%} of its samples")
    gain = (found["plain Monte Carlo"]["error"] / found["flow"]["error"]) ** 2
    print(f"plain Monte Carlo would need {gain:.0f} times the samples; training the flow took {steps * 1_024:,}")

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
    left.hist2d(*x[:, :2].T.numpy(), bins=100, range=[[0, 1]] * 2, cmap="gray_r")
    left.set(title="the flow's samples, two of four axes", aspect="equal", xticks=[0, 1], yticks=[0, 1])
    for name, values in log_weights.items():
        right.hist(values.clamp(min=-20).numpy() / math.log(10), bins=90, range=(-9, 3), histtype="step", label=name)
    right.set(title="weights (samples, log scale)", xlabel="log10 of integrand / density of the sampler", yscale="log")
    right.legend(frameon=False)
    figure.savefig(picture, dpi=110)
    plt.close(figure)
    return {**found, "truth": {"estimate": truth}}


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
