"""Evaluate splines on both backends, with parameters and inputs of all sizes. Results must be finite and in bounds."""

from __future__ import annotations

import math

import torch
from tests.helpers.counts import Counts
from torch import Tensor

from cubicflow.splines import cubic_spline

ROWS = 1 << 16
BINS = (1, 2, 3, 8, 32, 128)
SCALES = (0.0, 0.1, 1.0, 5.0, 30.0)
EXTREME = (0.0, -0.0, 1e-30, -1e-30, 1e-7, 0.5, 1.0, 13.0, 88.0, 200.0, 1e4, 1e30)


def inputs(generator: torch.Generator, domain: str, dtype: torch.dtype) -> Tensor:
    """Draw inputs of all sizes, including the extreme ones."""
    if domain == "unit":
        u = torch.rand(ROWS, generator=generator, dtype=torch.float64)
        x = torch.where(u < 0.5, (2 * u) ** 8, 1 - (2 - 2 * u) ** 8)
        x[:3] = torch.tensor([0.0, 0.5, 1.0])
        return x.to(dtype)
    size = torch.exp(math.log(1e-8) + torch.rand(ROWS, generator=generator) * math.log(1e12))
    x = size * torch.where(torch.rand(ROWS, generator=generator) < 0.5, -1.0, 1.0)
    both = torch.tensor([*EXTREME, *(-value for value in EXTREME)])
    x[: len(both)] = both
    return x.to(dtype)


def attack(evaluations: int, seed: int = 0) -> Counts:
    """Run at least ``evaluations`` evaluations, counted by backend."""
    counts, generator = Counts(), torch.Generator().manual_seed(seed)
    cases = [
        (backend, domain, dtype, bins, scale, slopes, inverse)
        for bins in BINS
        for scale in SCALES
        for slopes in ("steffen", "free")
        for domain in ("real", "unit")
        for dtype in (torch.float32, torch.float64)
        for inverse in (False, True)
        for backend in ("native", "native", "native", "native", "native", "native", "native", "reference")
    ]
    while counts.total() < evaluations:
        for backend, domain, dtype, bins, scale, slopes, inverse in cases:
            if counts.total() >= evaluations:
                break
            width = 2 * bins + 2 if slopes == "steffen" else 3 * bins + 1
            params = scale * torch.randn(1, width, generator=generator, dtype=torch.float64).to(dtype)
            x = inputs(generator, domain, dtype)
            y, log_slope = cubic_spline(x, params, inverse=inverse, domain=domain, slopes=slopes, backend=backend)
            bad = ~(torch.isfinite(y) & torch.isfinite(log_slope))
            if domain == "unit":
                bad |= (y < 0) | (y > 1)
            falls = _falls(x, y, log_slope)
            if bad.any() or len(falls):
                what, where = ("not finite or out of bounds", x[bad]) if bad.any() else ("decreases", falls)
                case = f"{backend}, {domain}, {dtype}, {bins} bins, scale {scale}, {slopes}, {inverse=}"
                counts.fail(f"{case}: {what} at {where[:3].tolist()}")
            counts[f"by {backend}"] += len(x)
    return counts


def _falls(x: Tensor, y: Tensor, log_slope: Tensor) -> Tensor:
    """Return the inputs where the outputs decrease by more than rounding explains.

    The spline rounds its argument on the unit interval, so inputs on the real line are rounded by about one eps even
    where they are near 0. An output then has an error of eps times the slope, besides its own rounding.
    """
    order = torch.argsort(x)
    x, y, slope = x[order], y[order], log_slope[order].exp()
    rounding = torch.finfo(x.dtype).eps * (1 + y.abs() + slope)
    return x[1:][y.diff() < -64 * torch.maximum(rounding[1:], rounding[:-1])]
