"""Long sweeps: millions of inputs for each setting, every float32 around a knot, and the solver's extreme arguments."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from cubicflow.splines.cubic import solve_unit_cubic

pytestmark = pytest.mark.soak

BINS = [1, 2, 3, 5, 8, 10, 16, 33, 64, 128]
SCALES = [0.01, 0.1, 1.0, 3.0, 5.0, 10.0, 30.0]


def test_the_real_line(cubic, dtype):
    """Check the bounds of test_round_trip.py on a million inputs for each setting."""
    for k, scale in product(BINS, SCALES):
        check_the_real_line(cubic, dtype, k, scale)


def check_the_real_line(cubic, dtype, k, scale):
    eps = torch.finfo(dtype).eps
    generator = torch.Generator().manual_seed(k)
    agreeing = total = 0
    for seed in range(4):
        params = cubic.params(500, 1, num_bins=k, scale=scale, dtype=dtype, seed=seed)
        even = torch.linspace(-200, 200, 250, dtype=torch.float64).expand(500, -1)
        near = 3 * torch.randn(500, 250, generator=generator, dtype=torch.float64)
        x = torch.cat([even, near], -1).to(dtype)
        y, log_slope = cubic(x, params)
        back, back_log_slope = cubic(y, params, inverse=True)
        assert torch.stack([y, log_slope, back, back_log_slope]).isfinite().all(), (k, scale)
        slope = torch.minimum(log_slope, -back_log_slope).exp()
        error = (back - x).abs()
        assert (error <= 16 * eps * ((1 + x.abs()) + (1 + y.abs()) / slope)).all(), (k, scale)
        far = x.abs() > 30
        assert (error[far] <= 64 * eps * (1 + x.abs()[far])).all(), (k, scale)
        mismatch = (log_slope + back_log_slope).abs()
        if cubic.slopes == "steffen" and dtype == torch.float64:
            assert (mismatch <= 1e-6).all(), (k, scale)
        agreeing += int((mismatch <= 1e-4).sum())
        total += mismatch.numel()
    if cubic.slopes == "steffen" and dtype == torch.float32 and scale <= 1 and k <= 10:
        assert agreeing >= 0.999 * total, (k, scale)


def test_at_and_beside_the_knots(case, domain, inverse, dtype):
    for k, scale, seed in product(BINS, SCALES, range(20)):
        setting = k, scale, seed
        params = case.params(100, num_bins=k, scale=scale, dtype=dtype, seed=seed).requires_grad_()
        x = case.awkward_inputs(params.detach(), inverse, seed)
        if domain == "real":
            x = torch.logit(x).clamp(-1e4, 1e4)
        x.requires_grad_()
        y, log_slope = case(x, params[:, None], inverse=inverse, domain=domain)
        assert y.isfinite().all(), setting
        assert log_slope.isfinite().all(), setting
        if domain == "unit":
            assert ((y >= 0) & (y <= 1)).all(), setting
            u = (y if inverse else x).detach().double()
            g, _ = case(u, params.detach().double()[:, None], domain="unit")
            unit = torch.finfo(dtype).eps * (1 + case.steepness(params.detach().double(), u))
            assert ((g - (x if inverse else y)).abs() <= 16 * unit).all(), setting
        grads = torch.autograd.grad(y.sum() + log_slope.sum(), [x, params])
        assert all(grad.isfinite().all() for grad in grads), setting


def test_every_float32_around_the_knots(case, inverse):
    """Check 2,048 neighbours on each side of every knot."""
    for k, scale, splines in ((2, 3.0, 200), (10, 5.0, 200), (10, 30.0, 200), (128, 10.0, 20)):
        params = case.params(splines, num_bins=k, scale=scale, dtype=torch.float32, seed=k)
        knots = case.knots(params, inverse)
        bits = knots.view(torch.int32)[..., None] + torch.arange(-2048, 2049, dtype=torch.int32)
        for row, around in zip(params, bits.clamp(min=0).view(torch.float32), strict=True):
            x = around.clamp(0, 1).flatten()
            y, log_slope = case(x, row, inverse=inverse, domain="unit")
            assert ((y >= 0) & (y <= 1)).all()
            assert log_slope.isfinite().all()
            u = (y if inverse else x).double()
            g, _ = case(u, row.double(), domain="unit")
            unit = torch.finfo(torch.float32).eps * (1 + case.steepness(row.double(), u))
            assert ((g - (x if inverse else y)).abs() <= 16 * unit).all()


def test_the_solvers_corner(dtype):
    """Check 40 million bins with a, b in [1e-9, 3] and c in [1e-30, 1/2], log-uniform from either end."""
    generator = torch.Generator().manual_seed(0)
    eps = torch.finfo(dtype).eps

    def ratios(n):
        small = 10 ** (-9 + 9.477 * torch.rand(n, generator=generator, dtype=torch.float64))
        return torch.where(torch.rand(n, generator=generator) < 0.5, small, 3 - small).clamp(1e-9, 3)

    for _ in range(40):
        a, b = ratios(10**6).to(dtype), ratios(10**6).to(dtype)
        c = (0.5 * 10 ** (-30 * torch.rand(10**6, generator=generator, dtype=torch.float64) ** 2)).to(dtype)
        t = solve_unit_cubic(a, b, c).double()
        a, b, c = a.double(), b.double(), c.double()
        tau = 1 - t
        f = t * (a * tau * tau + (3 - b) * t * tau + t * t)
        slope = (a * tau * tau + 2 * (3 - a - b) * t * tau + b * t * t).clamp(min=0)
        assert ((t >= 0) & (t <= 1)).all()
        assert ((f - c).abs() <= 4 * eps * (c + slope * t)).all()
