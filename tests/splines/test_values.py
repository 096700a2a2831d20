"""Values and slopes against constructions with scipy, numpy and mpmath that share no code with the library."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy.interpolate import CubicHermiteSpline, PPoly
from scipy.special import softmax

from cubicflow.splines import cubic_spline, linear_spline, num_params, quadratic_spline, rational_quadratic_spline
from cubicflow.splines.bins import slope_ratio

EPS = np.finfo(np.float64).eps


def floored(logits):
    k = len(logits)
    floor = min(1e-3, 0.1 / k)
    return floor + (1 - k * floor) * softmax(logits)


def ratio(p, m=1e-3):
    return m + (3 - 2 * m) / (1 + math.exp(-(p - math.log((2 - m) / (1 - m)))))


def edges(sizes):
    return np.concatenate([[0.0], np.cumsum(sizes)])


def steffen_written_out(w, h, first, last):
    """Return Steffen's slopes knot by knot for increasing data: equations 9 and 11 of Steffen (1990)."""
    s = h / w
    slopes = [first * s[0]]
    for i in range(1, len(w)):
        p = (s[i - 1] * w[i] + s[i] * w[i - 1]) / (w[i - 1] + w[i])
        slopes.append(2 * min(abs(s[i - 1]), abs(s[i]), 0.5 * abs(p)))  # both signs in Steffen's formula are 1
    return np.array([*slopes, last * s[-1]])


def free_written_out(w, h, logits):
    s = h / w
    smaller = [s[0], *(min(s[i - 1], s[i]) for i in range(1, len(w))), s[-1]]
    return np.array([ratio(p) * smaller[i] for i, p in enumerate(logits)])


def written_out(slopes, params, k):
    w, h = floored(params[:k]), floored(params[k : 2 * k])
    if slopes == "steffen":
        return w, h, steffen_written_out(w, h, ratio(params[-2]), ratio(params[-1]))
    return w, h, free_written_out(w, h, params[2 * k :])


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("k", [1, 2, 5, 32])
@pytest.mark.parametrize("slopes", ["steffen", "free"])
def test_cubic_equals_scipys_hermite_spline(slopes, k, scale):
    rng = np.random.default_rng(k)
    for _ in range(10):
        params = scale * rng.standard_normal(num_params("cubic", k, slopes))
        w, h, d = written_out(slopes, params, k)
        spline = CubicHermiteSpline(edges(w), edges(h), d)
        x = np.concatenate([rng.random(50), edges(w)[:-1] + w * rng.random(k)])
        y, log_slope = cubic_spline(torch.tensor(x), torch.tensor(params), domain="unit", slopes=slopes)
        # The knots of both splines have errors of up to K roundings, and the evaluation adds a few. Such an error of
        # the input changes y by the slope, at most 3 secants, times the error. It changes the slope by the second
        # derivative, at most 12 secants / width, times the error.
        roundings = (k + 16) * EPS
        steepest = (h / w).max()
        assert np.abs(y.numpy() - spline(x)).max() <= roundings * (1 + 3 * steepest)
        assert np.abs(log_slope.exp().numpy() - spline(x, 1)).max() <= roundings * 12 * (h / w / w).max()


def test_quadratic_is_the_integral_of_a_piecewise_linear_density():
    rng = np.random.default_rng(0)
    for k in (1, 2, 7, 32):
        params = rng.standard_normal(2 * k + 1)
        w, floor = floored(params[:k]), min(1e-3, 0.1 / k)
        v = np.exp(params[k:])
        v = k * floor + (1 - k * floor) * v / np.trapezoid(v, edges(w))
        density = PPoly(np.array([np.diff(v) / w, v[:-1]]), edges(w))
        x = rng.random(100)
        y, log_slope = quadratic_spline(torch.tensor(x), torch.tensor(params), domain="unit")
        roundings = (k + 16) * EPS
        assert np.abs(y.numpy() - density.antiderivative()(x)).max() <= roundings * (1 + v.max())
        assert np.abs(log_slope.exp().numpy() - density(x)).max() <= roundings * (1 + v.max() + (v.max() / w).max())


def test_linear_equals_numpys_interp():
    rng = np.random.default_rng(0)
    for k in (1, 2, 7, 32):
        params = 2 * rng.standard_normal(k)
        h, x = floored(params), rng.random(200)
        y, log_slope = linear_spline(torch.tensor(x), torch.tensor(params), domain="unit")
        roundings = (k + 16) * EPS
        assert np.abs(y.numpy() - np.interp(x, np.linspace(0, 1, k + 1), edges(h))).max() <= roundings * k
        assert np.abs(log_slope.exp().numpy() - k * h[np.minimum((k * x).astype(int), k - 1)]).max() <= roundings * k


def test_rational_quadratic_is_gregory_and_delbourgos_formula():
    """Compare with equation 4 of Durkan et al. (2019), in their symbols, and with its derivative by a complex step."""
    rng = np.random.default_rng(0)
    for k in (1, 2, 7, 32):
        params = rng.standard_normal(3 * k + 1)
        w, h = floored(params[:k]), floored(params[k : 2 * k])
        d = 1e-3 + (1 - 1e-3) * np.log1p(np.exp(params[2 * k :] + math.log(math.e - 1)))
        x = edges(w)[:-1].repeat(5) + w.repeat(5) * (0.02 + 0.96 * rng.random(5 * k))  # away from the knots
        i = np.arange(k).repeat(5)

        def formula(x, w=w, h=h, d=d, i=i):
            s, xi = (h / w)[i], (x - edges(w)[i]) / w[i]
            top = h[i] * (s * xi**2 + d[i] * xi * (1 - xi))
            return edges(h)[i] + top / (s + (d[i + 1] + d[i] - 2 * s) * xi * (1 - xi))

        y, log_slope = rational_quadratic_spline(torch.tensor(x), torch.tensor(params), domain="unit")
        steepest = max((h / w).max(), d.max())
        roundings = (k + 16) * EPS
        assert np.abs(y.numpy() - formula(x)).max() <= roundings * (1 + 3 * steepest)
        slope = formula(x + 1e-30j).imag / 1e-30
        # f' = N / D^2 with N, |N'| / 2 <= 1 + a + b, |D'| <= 2 + a + b and D >= 1/2, so |f''| <= 40 (1 + a + b)^2.
        bend = 40 * (1 + (d[i] + d[i + 1]) / (h / w)[i]) ** 2 * (h / w / w)[i]
        assert (np.abs(log_slope.exp().numpy() - slope) <= roundings * (bend + slope)).all()


def exact_real_line(params, k, x, slopes):
    """Return y and log-slope of logit(g(sigmoid(x))) with mpmath, in 150 digits: enough for 1 - g at |x| = 200."""
    with mp.workdps(150):
        p = [mp.mpf(float(v)) for v in params]
        floor, m = mp.mpf(min(1e-3, 0.1 / k)), mp.mpf(1e-3)

        def sizes(logits):
            terms = [mp.exp(v) for v in logits]
            return [floor + (1 - k * floor) * v / mp.fsum(terms) for v in terms]

        def r(v):
            return m + (3 - 2 * m) / (1 + mp.exp(mp.log((2 - m) / (1 - m)) - v))

        w, h = sizes(p[:k]), sizes(p[k : 2 * k])
        s = [b / a for a, b in zip(w, h, strict=True)]
        if slopes == "steffen":
            inner = [
                min((s[i - 1] * w[i] + s[i] * w[i - 1]) / (w[i - 1] + w[i]), 2 * s[i - 1], 2 * s[i])
                for i in range(1, k)
            ]
            d = [r(p[-2]) * s[0], *inner, r(p[-1]) * s[-1]]
        else:
            d = [r(p[2 * k + i]) * min(s[max(i - 1, 0)], s[min(i, k - 1)]) for i in range(k + 1)]
        u = 1 / (1 + mp.exp(-mp.mpf(float(x))))
        i, left, below = 0, mp.mpf(0), mp.mpf(0)
        while i < k - 1 and u >= left + w[i]:
            left, below, i = left + w[i], below + h[i], i + 1
        t, a, b = (u - left) / w[i], d[i] / s[i], d[i + 1] / s[i]
        g = below + h[i] * (a * t + (3 - 2 * a - b) * t**2 + (a + b - 2) * t**3)
        slope = s[i] * (a + 2 * (3 - 2 * a - b) * t + 3 * (a + b - 2) * t**2)
        return mp.log(g / (1 - g)), mp.log(slope * u * (1 - u) / (g * (1 - g)))


@pytest.mark.parametrize("k", [1, 2, 10])
def test_the_real_line_against_mpmath(cubic, k, dtype):
    eps = torch.finfo(dtype).eps
    x = torch.tensor(
        [-200, -104, -88.5, -37, -17, -9, -3, -1, -0.1, 0, 0.2, 2, 8, 16, 20, 50, 90, 150, 200], dtype=dtype
    )
    params = cubic.params(num_bins=k, seed=k, dtype=dtype)
    exact = [exact_real_line(params, k, v, cubic.slopes) for v in x]
    y, log_slope = cubic(x, params)
    # The error is a few roundings of the input, times the Lipschitz constant, plus a few roundings of the output.
    dense = torch.linspace(-15, 15, 3001, dtype=torch.float64)
    lipschitz = float(cubic(dense, params.double())[1].exp().max())
    bend = float(cubic(dense, params.double())[1].diff().abs().max() / dense.diff()[0])
    for got, got_slope, (want, want_slope), at in zip(y, log_slope, exact, x, strict=True):
        size = 1 + abs(float(at))
        assert abs(float(got) - float(want)) <= 8 * eps * (size * lipschitz + 1 + abs(float(want)))
        assert abs(float(got_slope) - float(want_slope)) <= 8 * eps * (
            1 + min(size, 20) * bend + abs(float(want_slope))
        )


def test_tails_are_lines_of_slope_one(case, dtype, inverse):
    """At any distance, y = x + log(slope of the spline at the edge), because the first bin has f = t (a + ...)."""
    params = case.params(6, num_bins=5, scale=3, dtype=dtype)
    bins = case.bins(params.double())
    secants = bins.heights / bins.widths
    shift_low, shift_high = (secants * bins.start)[:, 0].log(), -(secants * bins.end)[:, -1].log()
    sign = -1 if inverse else 1
    for distance in (60.0, 300.0, 1e4, 1e30):
        x = torch.tensor([[-distance], [distance]], dtype=dtype)
        y, log_slope = case(x, params, inverse=inverse)
        want = x.double() + sign * torch.stack([shift_low, shift_high])
        # e^-60 is far below epsilon, so the error is the rounding of x, of the shift and of their sum.
        assert ((y - want).abs() <= 8 * torch.finfo(dtype).eps * (distance + 10)).all()
        assert (log_slope.abs() <= 16 * torch.finfo(dtype).eps).all()


def test_zero_params_are_the_identity(case, domain, inverse, dtype):
    for k in (1, 2, 3, 10, 128):
        x = torch.linspace(0, 1, 101, dtype=dtype) if domain == "unit" else torch.linspace(-40, 40, 101, dtype=dtype)
        y, log_slope = case(x, case.params(num_bins=k, scale=0, dtype=dtype), inverse=inverse, domain=domain)
        assert ((y - x).abs() <= 8 * torch.finfo(dtype).eps * (1 + x.abs())).all()
        # Bins have size 1 / K, so the relative error of a bin is up to K roundings. Slopes have the same error.
        assert (log_slope.abs() <= 8 * k * torch.finfo(dtype).eps).all()


def test_slope_ratio_is_one_at_zero_and_stays_inside():
    p = torch.tensor([-1e30, -50.0, 0.0, 50.0, 1e30], dtype=torch.float64)
    r = slope_ratio(p)
    assert abs(float(r[2]) - 1) <= 2 * EPS
    assert bool((r >= 1e-3).all())
    assert bool((r <= 3 - 1e-3 + 4 * EPS).all())
