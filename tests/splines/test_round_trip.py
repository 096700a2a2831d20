"""Round trips: the inverse undoes the map and the log-slopes cancel, on the real line and on the unit interval."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from .cases import EXAMPLES


def real_inputs(rows, dtype, count, seed=0):
    """Return evenly spaced x from -200 to 200, and as many more where the spline bends."""
    generator = torch.Generator().manual_seed(seed)
    even = torch.linspace(-200, 200, count, dtype=torch.float64).expand(rows, -1)
    near = 3 * torch.randn(rows, count, generator=generator, dtype=torch.float64)
    return torch.cat([even, near], -1).to(dtype)


def check_round_trip(case, k, scale, dtype, rows=20, count=200, seed=0):
    """Check round trips on the real line against the published bounds. Return the absolute sums of both log-slopes."""
    eps = torch.finfo(dtype).eps
    params = case.params(rows, 1, num_bins=k, scale=scale, dtype=dtype, seed=seed)
    x = real_inputs(rows, dtype, count, seed)
    y, log_slope = case(x, params)
    back, back_log_slope = case(y, params, inverse=True)
    assert torch.stack([y, log_slope, back, back_log_slope]).isfinite().all()
    slope = torch.minimum(log_slope, -back_log_slope).exp()
    error = (back - x).abs()
    assert (error <= 16 * eps * ((1 + x.abs()) + (1 + y.abs()) / slope)).all()
    far = x.abs() > 30
    assert (error[far] <= 64 * eps * (1 + x.abs()[far])).all()
    return (log_slope + back_log_slope).abs()


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    k=st.one_of(st.integers(1, 12), st.sampled_from([32, 128])),
    scale=st.sampled_from([0.01, 0.3, 1.0, 3.0, 10.0, 30.0]),
    seed=st.integers(0, 2**32),
)
def test_the_real_line(cubic, dtype, k, scale, seed):
    mismatch = check_round_trip(cubic, k, scale, dtype, rows=5, count=100, seed=seed)
    if cubic.slopes == "steffen" and dtype == torch.float64:
        assert (mismatch <= 1e-6).all()


@pytest.mark.parametrize("k", [1, 2, 10, 128])
def test_the_real_line_of_lower_degrees(lower_degree, dtype, k):
    for scale in (0.1, 1.0, 10.0):
        check_round_trip(lower_degree, k, scale, dtype)


@pytest.mark.parametrize("k", [1, 2, 8, 10])
@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_log_slopes_cancel_in_float32(steffen, k, scale):
    mismatch = check_round_trip(steffen, k, scale, torch.float32, rows=200, count=500)
    assert (mismatch <= 1e-4).double().mean() >= 0.999


@pytest.mark.parametrize("k", [1, 2, 10, 128])
def test_the_unit_interval(case, dtype, k):
    eps = torch.finfo(dtype).eps
    for scale in (0.1, 1.0, 5.0):
        params = case.params(20, num_bins=k, scale=scale, dtype=dtype)
        x = torch.rand(20, 500, generator=torch.Generator().manual_seed(k)).to(dtype)
        y, _ = case(x, params[:, None], domain="unit")
        back, _ = case(y, params[:, None], domain="unit", inverse=True)
        again, _ = case(back.double(), params.double()[:, None], domain="unit")
        assert ((back >= 0) & (back <= 1)).all()
        assert ((again - y).abs() <= 16 * eps * (1 + case.steepness(params.double(), back.double()))).all()


def test_half_precision_survives_the_far_tails(case, inverse):
    for half in (torch.float16, torch.bfloat16):
        x = torch.tensor([-6e4, -200, -12, 0, 12, 200, 6e4], dtype=half)
        y, log_slope = case(x, case.params(num_bins=8, scale=2, dtype=half), inverse=inverse)
        assert y.isfinite().all()
        assert log_slope.isfinite().all()
        assert (y.diff() > 0).all()
