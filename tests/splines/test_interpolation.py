"""The cubic through given knots, against scipy's Hermite spline with Steffen's slopes, which are written out here."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicHermiteSpline
from torch.autograd import gradcheck, gradgradcheck
from torch.func import vmap

from cubicflow.splines import cubic_interpolation

EPS = np.finfo(np.float64).eps


def random_knots(seed, k, low=-3.0):
    rng = np.random.default_rng(seed)
    x = low + np.concatenate([[0.0], np.cumsum(rng.uniform(0.05, 2, k))])
    y = -1 + np.concatenate([[0.0], np.cumsum(rng.uniform(0.05, 2, k))])
    return x, y


def steffen(x, y):
    """Return Steffen's slopes knot by knot: equations 8 to 11 of Steffen (1990) inside, 24 to 26 at the two ends."""
    h, s = np.diff(x), np.diff(y) / np.diff(x)
    if len(h) == 1:
        return np.array([s[0], s[0]])

    def end(s0, s1, h0, h1):
        p = s0 * (1 + h0 / (h0 + h1)) - s1 * h0 / (h0 + h1)
        if p * s0 <= 0:
            return 0.0
        return 2 * s0 if abs(p) > 2 * abs(s0) else p

    inner = [
        2 * min(s[i - 1], s[i], 0.5 * (s[i - 1] * h[i] + s[i] * h[i - 1]) / (h[i - 1] + h[i])) for i in range(1, len(h))
    ]
    return np.array([end(s[0], s[1], h[0], h[1]), *inner, end(s[-1], s[-2], h[-1], h[-2])])


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), k=st.integers(1, 12))
def test_steffens_spline_equals_scipys(seed, k):
    xk, yk = random_knots(seed, k)
    spline = CubicHermiteSpline(xk, yk, steffen(xk, yk))
    x = np.random.default_rng(seed).uniform(xk[0], xk[-1], 100)
    y, log_slope = cubic_interpolation(torch.tensor(x), torch.tensor(xk), torch.tensor(yk))
    # Knots are at most 24 in size and secants at most 40. Both sides round.
    assert np.abs(y.numpy() - spline(x)).max() <= 16 * EPS * (np.abs(yk).max() + 3 * 40 * np.abs(xk).max())
    assert np.abs(log_slope.exp().numpy() - spline(x, 1)).max() <= 16 * EPS * 12 * 40 / 0.05 * np.abs(xk).max()


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), k=st.integers(1, 12))
def test_given_slopes_and_the_inverse(seed, k):
    xk, yk = random_knots(seed, k)
    s = np.diff(yk) / np.diff(xk)
    smaller = np.minimum(np.append(s, s[-1]), np.insert(s, 0, s[0]))
    d = smaller * np.random.default_rng(seed).uniform(0.05, 2.9, k + 1)
    x = torch.tensor(np.random.default_rng(seed).uniform(xk[0], xk[-1], 100))
    knots = [torch.tensor(v) for v in (xk, yk, d)]
    y, log_slope = cubic_interpolation(x, *knots)
    assert np.abs(y.numpy() - CubicHermiteSpline(xk, yk, d)(x)).max() <= 16 * EPS * (1 + 3 * 40) * np.abs(xk).max()
    y = y.clamp(yk[0], yk[-1])
    back, back_log_slope = cubic_interpolation(y, *knots, inverse=True)
    slope = torch.minimum(log_slope, -back_log_slope).exp()
    # The error of x is its own rounding, plus the rounding of y divided by the slope.
    size = 1 + float(np.abs(np.concatenate([xk, yk])).max())
    assert ((back - x).abs() <= 16 * EPS * size * (1 + 1 / slope) * (1 + s.max())).all()


def test_knots_are_reproduced_exactly(dtype, inverse):
    generator = torch.Generator().manual_seed(0)
    xk, yk = (torch.rand(500, 9, generator=generator, dtype=dtype).add(1e-3).cumsum(-1) - 3 for _ in range(2))
    source, target = (yk, xk) if inverse else (xk, yk)
    got, _ = cubic_interpolation(source, xk[:, None], yk[:, None], inverse=inverse)
    assert torch.equal(got, target)


def test_narrow_bins_among_wide_ones_keep_their_precision():
    """A bin of width 1e-3 lies between bins of 1e8, in float32. Positions must be measured from the nearest knot."""
    xk, yk = torch.tensor([-1e8, 0.0, 1e-3, 1e8]), torch.tensor([-5.0, 0.0, 1.0, 7.0])
    x = torch.tensor([0.0, 1e-4, 2.5e-4, 5e-4, 9e-4, 1e-3])
    y, _ = cubic_interpolation(x, xk, yk)
    want, _ = cubic_interpolation(x.double(), xk.double(), yk.double())
    assert ((y - want).abs() <= 16 * torch.finfo(torch.float32).eps).all()
    back, _ = cubic_interpolation(y, xk, yk, inverse=True)
    # Steffen's slopes are nearly 0 at both ends of this bin, so f = 3 t^2 - 2 t^3, and f' >= 0.5 at these points.
    assert ((back - x).abs() <= 1e-3 * 16 * torch.finfo(torch.float32).eps / 0.5).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_a_flat_end_at_zero_is_approached_with_relative_precision(sign, inverse):
    """Steffen's slopes of the first bin are 0 and twice its secant, so y = 1e-3 x^2 in this bin."""
    xk, yk = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.0, 1e-3, 2.0])
    height, x = yk[1].double(), 10.0 ** torch.linspace(-15, -3.1, 60)
    if inverse:
        want = (x.double() / height).sqrt()
        want_slope = -(2 * height * want).log()
    else:
        want, want_slope = height * x.double() ** 2, (2 * height * x.double()).log()
    if sign < 0:
        xk, yk = -xk.flip(0), -yk.flip(0)
    y, log_slope = cubic_interpolation(sign * x, xk, yk, inverse=inverse)
    eps = torch.finfo(torch.float32).eps
    assert ((sign * y - want).abs() <= 16 * eps * want).all()
    assert ((log_slope - want_slope).abs() <= 16 * eps * (1 + want_slope.abs())).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_a_knot_at_zero_is_left_with_relative_precision(sign, inverse):
    """Compare float32 with float64."""
    xk, yk = torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([-1.0, 0.0, 1e-3])
    if sign < 0:
        xk, yk = -xk.flip(0), -yk.flip(0)
    x = sign * 10.0 ** torch.linspace(-25, -3.1, 60)
    y, _ = cubic_interpolation(x, xk, yk, inverse=inverse)
    want, _ = cubic_interpolation(x.double(), xk.double(), yk.double(), inverse=inverse)
    assert (want.sign() == sign).all()
    assert ((y - want).abs() <= 16 * torch.finfo(torch.float32).eps * want.abs()).all()


def test_one_bin_without_slopes_is_a_straight_line(dtype):
    x = torch.linspace(2, 4, 9, dtype=dtype)
    ends = torch.tensor([2.0, 4.0], dtype=dtype), torch.tensor([-1.0, 5.0], dtype=dtype)
    y, log_slope = cubic_interpolation(x, *ends)
    assert ((y - (3 * x - 7)).abs() <= 16 * torch.finfo(dtype).eps).all()
    assert ((log_slope - np.log(3)).abs() <= 8 * torch.finfo(dtype).eps).all()


def test_slopes_of_three_secants_are_allowed():
    """The caller's slopes are the largest monotone slopes, up to rounding. f' is 0 in the middle of a bin."""
    generator = torch.Generator().manual_seed(0)
    xk, yk = (torch.rand(200, 2, generator=generator).add(1e-3).cumsum(-1) for _ in range(2))
    slopes = (3 * (yk.diff() / xk.diff())).expand(-1, 2)
    x = xk[:, :1] + xk.diff() * torch.linspace(0, 1, 33)
    x = torch.minimum(x, xk[:, 1:])
    y, log_slope = cubic_interpolation(x, xk[:, None], yk[:, None], slopes[:, None])
    assert y.isfinite().all()
    assert not log_slope.isnan().any()
    back, _ = cubic_interpolation(y, xk[:, None], yk[:, None], slopes[:, None], inverse=True)
    again, _ = cubic_interpolation(back, xk[:, None], yk[:, None], slopes[:, None])
    assert ((again - y).abs() <= 16 * torch.finfo(torch.float32).eps * (1 + yk.diff() / xk.diff())).all()


def test_outside_the_knots_and_nan():
    xk, yk = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0.0, 1.0, 5.0])
    x = torch.tensor([-9.0, 1.0, float("nan"), 4.0, float("inf")])
    y, log_slope = cubic_interpolation(x, xk, yk, validate=False)
    assert y[[0, 1, 3, 4]].tolist() == [0, 0, 5, 5]
    assert y[2].isnan()
    assert log_slope[2].isnan()
    assert (log_slope[[0, 4]] == -torch.inf).all()
    assert log_slope[[1, 3]].isfinite().all()
    with pytest.raises(ValueError, match=r"2 of 5 inputs lie outside"):
        cubic_interpolation(x, xk, yk)


def test_precision_is_the_widest_of_all_inputs():
    x, xk, yk = torch.tensor([1.5]), torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0.0, 1.0, 5.0]) / 3
    slopes = torch.tensor([0.3, 0.4, 0.5])
    wide = cubic_interpolation(x.double(), xk.double(), yk.double(), slopes.double())
    for i in range(3):
        knots = [v.double() if i == j else v for j, v in enumerate((xk, yk, slopes))]
        y, log_slope = cubic_interpolation(x, *knots)
        assert (y.dtype, log_slope.dtype) == (torch.float32, torch.float64)
        assert torch.equal(log_slope, wide[1])
    assert cubic_interpolation(x.half(), xk.half(), yk.half())[1].dtype == torch.float32


def test_broadcasting_equals_expanding(inverse):
    xk, yk = torch.rand(3, 1, 5).add(0.1).cumsum(-1).double(), torch.rand(4, 5).add(0.1).cumsum(-1).double()
    low = torch.maximum((yk if inverse else xk)[..., 0].max(), torch.tensor(0.0))
    x = low + torch.linspace(0, 0.1, 2, dtype=torch.float64).reshape(2, 1, 1)
    got = cubic_interpolation(x, xk, yk, inverse=inverse, validate=False)
    want = cubic_interpolation(
        x.expand(2, 3, 4), xk.expand(2, 3, 4, 5), yk.expand(2, 3, 4, 5), inverse=inverse, validate=False
    )
    for a, b in zip(got, want, strict=True):
        assert a.shape == (2, 3, 4)
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)


def leaves():
    xk, yk = random_knots(5, 3)
    slopes = steffen(xk, yk) * 0.8 + 0.05
    x = torch.tensor(xk[:-1] + np.diff(xk) * np.array([0.2, 0.55, 0.8]))
    return [v.requires_grad_() for v in (x, torch.tensor(xk), torch.tensor(yk), torch.tensor(slopes))]


def test_gradients(inverse):
    x, xk, yk, slopes = leaves()
    if inverse:
        x = cubic_interpolation(x, xk, yk, slopes)[0].detach().requires_grad_()

    def function(x, xk, yk, slopes):
        return cubic_interpolation(x, xk, yk, slopes, inverse=inverse, validate=False)

    assert gradcheck(function, (x, xk, yk, slopes))
    assert gradgradcheck(function, (x, xk, yk, slopes))


def test_traces_without_validation(inverse):
    x, xk, yk, slopes = (leaf.detach() for leaf in leaves())

    def function(x):
        return cubic_interpolation(x, xk, yk, slopes, inverse=inverse, validate=False)

    want = function(x)
    for got in (vmap(function)(x), torch.compile(function, fullgraph=True, backend="eager")(x)):
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)


NAN, INF = float("nan"), float("inf")
X, KNOTS = torch.tensor([0.5]), torch.tensor([0.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((X, torch.tensor([0.0, 1.0, 1.0]), KNOTS), ValueError, ("x_knots must be strictly increasing", "0")),
        ((X, KNOTS, torch.tensor([0.0, 2.0, 1.0])), ValueError, ("y_knots must be strictly increasing", "-1")),
        ((X, torch.tensor([0.0, NAN, 2.0]), KNOTS), ValueError, ("x_knots must be finite", "1 of 3")),
        ((X, torch.tensor([0.0, 1.0, INF]), KNOTS), ValueError, ("x_knots must be finite", "1 of 3")),
        ((X, KNOTS, torch.tensor([-INF, NAN, 2.0])), ValueError, ("y_knots must be finite", "2 of 3")),
        (
            (X, torch.tensor([-3e38, 3e38]), KNOTS[:2]),
            ValueError,
            ("differences between x_knots overflow", "float32", "rescale"),
        ),
        ((X, KNOTS, KNOTS, torch.tensor([1.0, NAN, 1.0])), ValueError, ("between 0 and 3 times", "nan")),
        ((X, KNOTS, KNOTS[:2]), ValueError, ("same number of knots", "(3,)", "(2,)")),
        ((X, KNOTS[:1], KNOTS[:1]), ValueError, ("at least 2", "(1,)")),
        ((X, torch.tensor(1.0), torch.tensor(1.0)), ValueError, ("at least 2", "()")),
        ((X, KNOTS, KNOTS, KNOTS[:2]), ValueError, ("one slope for each of the 3 knots", "(2,)")),
        ((X, KNOTS, KNOTS, torch.tensor(1.0)), ValueError, ("one slope for each of the 3 knots", "()")),
        ((X, KNOTS, KNOTS, torch.tensor([1.0, 3.1, 1.0])), ValueError, ("between 0 and 3 times", "monotone", "to 3.1")),
        ((X, KNOTS, KNOTS, torch.tensor([-0.1, 1.0, 1.0])), ValueError, ("between 0 and 3 times", "from -0.1")),
        ((torch.rand(4), KNOTS.expand(3, 3), KNOTS), ValueError, ("(4,)", "does not broadcast", "(3, 3)")),
        ((torch.tensor([1]), KNOTS, KNOTS), TypeError, ("x must be floating point", "int64", "x.float()")),
        ((X, torch.arange(3), KNOTS), TypeError, ("x_knots must be floating point", "int64", "x_knots.float()")),
        ((X, KNOTS, torch.arange(3)), TypeError, ("y_knots must be floating point",)),
        ((X, KNOTS, KNOTS, torch.ones(3, dtype=torch.int32)), TypeError, ("slopes must be floating point", "int32")),
        ((0.5, KNOTS, KNOTS), TypeError, ("x must be a torch.Tensor", "float")),
    ],
)
def test_bad_input(arguments, error, words):
    with pytest.raises(error, match=".*".join(map(re.escape, words))):
        cubic_interpolation(*arguments)
