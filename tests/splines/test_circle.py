"""Splines on the circle: the seam, the rotation, and values against scipy's periodic construction."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.interpolate import CubicHermiteSpline

from cubicflow.splines import cubic_spline, linear_spline, num_params, spline

FAMILIES = [("cubic", "steffen"), ("cubic", "free"), ("quadratic", None), ("rational_quadratic", None)]


def made(family, slopes, k=5, scale=2.0, rows=(), dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    size = num_params(family, k, slopes)
    return scale * torch.randn(*rows, size, generator=generator, dtype=torch.float64).to(dtype)


@pytest.fixture(params=FAMILIES, ids=lambda pair: "-".join(filter(None, pair)))
def family(request):
    return request.param


def test_zero_params_are_the_identity(family):
    x = torch.linspace(0, 0.99, 7, dtype=torch.float64)
    y, log_slope = spline(x, torch.zeros(num_params(family[0], 4, family[1])).double(), *family, domain="circle")
    torch.testing.assert_close(y, x)
    torch.testing.assert_close(log_slope, torch.zeros_like(x))


def test_the_cubic_equals_scipys_rotated_hermite_spline_with_one_slope_at_the_seam():
    k = 6
    params = made("cubic", "free", k)
    p = params.numpy()
    floor = min(1e-3, 0.1 / k)
    w, h = (floor + (1 - k * floor) * np.exp(part) / np.exp(part).sum() for part in (p[:k], p[k : 2 * k]))
    s = h / w
    m = 1e-3
    ratio = m + (3 - 2 * m) / (1 + np.exp(-(p[2 * k : 3 * k] - math.log((2 - m) / (1 - m)))))
    # Knot k lies between bins k - 1 and k, and knot 0 between the last and the first bin.
    slopes = ratio * np.minimum(s, np.roll(s, 1))
    hermite = CubicHermiteSpline(np.cumsum([0, *w]), np.cumsum([0, *h]), [*slopes, slopes[0]])
    x = np.linspace(0.001, 0.999, 301)
    y, log_slope = cubic_spline(torch.from_numpy(x), params, slopes="free", domain="circle")
    np.testing.assert_allclose(y, (hermite(x) + p[-1] / (2 * math.pi)) % 1, atol=1e-13)
    np.testing.assert_allclose(log_slope, np.log(hermite(x, 1)), atol=1e-10)


@pytest.mark.parametrize("k", [1, 2, 8])
@pytest.mark.parametrize("scale", [0.3, 1.0])
def test_value_slope_and_density_agree_across_the_seam(family, k, scale):
    params = made(*family, k, scale, rows=(50,))
    eps = 1e-12
    for inverse in (False, True):
        below, above = (
            spline(torch.full((50,), place).double(), params, *family, domain="circle", inverse=inverse)
            for place in (1 - eps, eps)
        )
        gap = torch.remainder(above[0] - below[0] + 0.5, 1) - 0.5
        assert gap.abs().max() < 1e-5
        torch.testing.assert_close((above[1] - below[1]).exp(), torch.ones(50).double(), atol=1e-5, rtol=0)


def test_angles_are_taken_modulo_one_turn(family):
    params = made(*family, rows=(1,))
    x = torch.tensor([0.1, 0.4, 0.8], dtype=torch.float64)
    here, there = (spline(at, params, *family, domain="circle") for at in (x, x + 3))
    torch.testing.assert_close(here[0], there[0])
    torch.testing.assert_close(here[1], there[1])


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_round_trip(family, scale):
    params = made(*family, 8, scale, rows=(200,))
    x = torch.rand(200, generator=torch.Generator().manual_seed(1)).double()
    y, log_slope = spline(x, params, *family, domain="circle")
    back, log_back = spline(y, params, *family, domain="circle", inverse=True)
    distance = torch.remainder(back - x + 0.5, 1) - 0.5
    assert (distance * log_slope.exp().clamp(max=1)).abs().max() < 1e-12
    torch.testing.assert_close(log_back, -log_slope, atol=1e-6, rtol=1e-6)


def test_the_slope_is_a_density_on_the_circle(family):
    x = torch.arange(100_000, dtype=torch.float64) / 100_000  # trapezoidal rule of a periodic function
    log_slope = spline(x, made(*family, 4, 1.0), *family, domain="circle")[1]
    assert float(log_slope.exp().mean()) == pytest.approx(1, abs=1e-7)


def test_gradients(family):
    params = made(*family, 3, 0.7, rows=(4,)).requires_grad_()
    x = torch.tensor([0.13, 0.37, 0.61, 0.93], dtype=torch.float64, requires_grad=True)
    for inverse in (False, True):
        assert torch.autograd.gradcheck(
            lambda x, params, inverse=inverse: spline(x, params, *family, domain="circle", inverse=inverse), (x, params)
        )


def test_float32_is_as_exact_as_on_the_interval(family):
    """The 99.9th percentile of errors against float64 is at most twice that on the unit interval."""
    x = torch.rand(20_000, generator=torch.Generator().manual_seed(2))
    params = made(*family, 8, 3.0, rows=(20_000,), dtype=torch.float32)
    params[:, -1] = 0.0  # no rotation on the circle; an edge slope of 1 secant on the interval

    def worst(domain):
        low, high = (spline(x.to(d), params.to(d), *family, domain=domain)[1] for d in (torch.float32, torch.float64))
        return (low.double() - high).abs().quantile(0.999)

    assert worst("circle") <= 2 * worst("unit")


def test_calls_that_the_circle_refuses():
    with pytest.raises(ValueError, match="a linear spline does not support domain='circle'"):
        linear_spline(torch.zeros(3), torch.zeros(4), domain="circle")
    with pytest.raises(RuntimeError, match="kernel for domain='circle'"):
        cubic_spline(torch.zeros(3), torch.zeros(10), domain="circle", backend="native")
