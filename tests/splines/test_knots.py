"""Splines at knots, an ulp beside knots and across knots, where piecewise maps fail most often."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cubicflow.splines import linear_spline

from .cases import EXAMPLES

# The error of g(x), and of the inverse, is at most UNITS epsilon (1 + steepest secant nearby).
UNITS = 16

bins = st.one_of(st.integers(1, 12), st.sampled_from([16, 17, 64, 128]))
scales = st.sampled_from([0.01, 0.3, 1.0, 3.0, 10.0, 30.0])
seeds = st.integers(0, 2**32)


@settings(max_examples=EXAMPLES, deadline=None)
@given(k=bins, scale=scales, seed=seeds)
def test_finite_and_inside_everywhere_with_finite_gradients(case, domain, inverse, dtype, k, scale, seed):
    params = case.params(3, num_bins=k, scale=scale, dtype=dtype, seed=seed).requires_grad_()
    x = case.awkward_inputs(params.detach(), inverse, seed)
    if domain == "real":
        far = torch.tensor([-1e4, -200, -104, -88, -30, 0, 30, 88, 104, 200, 1e4], dtype=dtype).expand(3, -1)
        x = torch.cat([torch.logit(x), far], -1)
    x.requires_grad_()
    y, log_slope = case(x, params[:, None], inverse=inverse, domain=domain)
    if domain == "unit":
        assert ((y >= 0) & (y <= 1)).all()
        inside = torch.ones_like(y, dtype=torch.bool)
    else:
        inside = x.isfinite()  # excludes logit(0) and logit(1)
        assert (y[~inside] == x[~inside]).all()
    assert y[inside].isfinite().all()
    assert log_slope.isfinite().all()
    grads = torch.autograd.grad(y[inside].sum() + log_slope.sum(), [x, params])
    assert all(grad.isfinite().all() for grad in grads)


@settings(max_examples=EXAMPLES, deadline=None)
@given(k=bins, scale=scales, seed=seeds)
def test_float32_is_the_rounded_float64_at_and_beside_knots(case, k, scale, seed):
    params = case.params(3, num_bins=k, scale=scale, dtype=torch.float32, seed=seed)
    x = case.awkward_inputs(params, seed=seed)
    y, _ = case(x, params[:, None], domain="unit")
    want, _ = case(x.double(), params.double()[:, None], domain="unit")
    bound = UNITS * torch.finfo(torch.float32).eps * (1 + case.steepness(params.double(), x.double()))
    assert ((y - want).abs() <= bound).all()


@settings(max_examples=EXAMPLES, deadline=None)
@given(k=bins, scale=scales, seed=seeds)
def test_backward_error_at_and_beside_knots(case, dtype, k, scale, seed):
    params = case.params(3, num_bins=k, scale=scale, dtype=dtype, seed=seed)
    y = case.awkward_inputs(params, inverse=True, seed=seed)
    x, _ = case(y, params[:, None], inverse=True, domain="unit")
    again, _ = case(x.double(), params.double()[:, None], domain="unit")
    bound = UNITS * torch.finfo(dtype).eps * (1 + case.steepness(params.double(), x.double()))
    assert ((again - y).abs() <= bound).all()


@settings(max_examples=EXAMPLES, deadline=None)
@given(k=bins, scale=scales, seed=seeds)
def test_increasing(case, inverse, dtype, k, scale, seed):
    """Neighbouring x in increasing order have y in increasing order, up to rounding.

    The rounding errors of the forward map are in units of y. Those of the inverse are backward errors, so they are
    measured after the forward map in float64.
    """
    params = case.params(3, num_bins=k, scale=scale, dtype=dtype, seed=seed)
    x = case.awkward_inputs(params, inverse, seed).sort(-1).values
    y, _ = case(x, params[:, None], inverse=inverse, domain="unit")
    u = y if inverse else x
    values = case(y.double(), params.double()[:, None], domain="unit")[0] if inverse else y
    bound = 2 * UNITS * torch.finfo(dtype).eps * (1 + case.steepness(params.double(), u.double()))
    assert (values.diff() >= -torch.maximum(bound[:, 1:], bound[:, :-1])).all()


@settings(max_examples=EXAMPLES, deadline=None)
@given(k=st.integers(2, 40), scale=st.sampled_from([0.01, 0.3, 1.0, 3.0, 10.0]), seed=seeds)
def test_c1_across_knots(c1, k, scale, seed):
    """The slopes a few ulps to the left and to the right of each interior knot agree.

    Their difference is at most the second derivative times the distance, including the rounding errors of the knot.
    """
    params = c1.params(num_bins=k, scale=scale, seed=seed)
    knots = c1.knots(params)[1:-1]
    slopes, bends = [], []
    for step in (-8, 8):
        x = (knots + step * torch.finfo(torch.float64).eps).requires_grad_()
        slope = c1(x, params, domain="unit")[1].exp()
        slopes.append(slope.detach())
        bends.append(torch.autograd.grad(slope.sum(), x)[0].abs())
    roundings = 32 * torch.finfo(torch.float64).eps
    assert ((slopes[1] - slopes[0]).abs() <= roundings * (sum(bends) + sum(slopes))).all()


def test_endpoints_are_fixed_exactly(case, inverse, dtype):
    for k in (1, 2, 10, 128):
        params = case.params(20, num_bins=k, scale=5, dtype=dtype)
        ends = torch.tensor([[0.0], [1.0]], dtype=dtype)
        y, log_slope = case(ends, params, inverse=inverse, domain="unit")
        assert (y == ends).all()
        bins = case.bins(params.double())
        secants = bins.heights / bins.widths
        want = torch.stack([(secants * bins.start)[:, 0].log(), (secants * bins.end)[:, -1].log()])
        error = (log_slope - (-want if inverse else want)).abs()
        # The slope at an end is a quotient of two softmaxes, times a ratio. Its relative error is a few roundings of
        # logits of size 20. The logarithm adds one rounding.
        assert (error <= 64 * torch.finfo(dtype).eps * (1 + want.abs())).all()


def test_knots_map_to_knots(case, dtype):
    for k in (2, 3, 10, 128):
        params = case.params(20, num_bins=k, scale=2, dtype=dtype)
        exact = params.double()
        source, target = case.knots(exact), case.knots(exact, inverse=True)
        y, _ = case(case.knots(params), params[:, None], domain="unit")
        bound = UNITS * torch.finfo(dtype).eps * (1 + case.steepness(exact, source))
        assert ((y - target).abs() <= bound).all()


def test_a_knot_belongs_to_the_bin_on_its_right(inverse):
    """Only the slope of a linear spline jumps at a knot. Here the knot is at x = 1/2."""
    params = torch.tensor([0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    params[0] += torch.log(torch.tensor(2.0, dtype=torch.float64))
    heights = 1e-3 + (1 - 4e-3) * params.softmax(-1)
    x = (heights[0] + heights[1] if inverse else torch.tensor(0.5, dtype=torch.float64)).reshape(1)
    around = torch.cat([torch.nextafter(x, x - 1), x, torch.nextafter(x, x + 1)])
    _, log_slope = linear_spline(around, params, inverse=inverse, domain="unit")
    want = (4 * heights[[1, 2, 2]]).log() * (-1 if inverse else 1)
    assert ((log_slope - want).abs() <= 16 * torch.finfo(torch.float64).eps).all()


def test_real_line_is_the_unit_spline_between_sigmoid_and_logit(case, inverse):
    params = case.params(50, num_bins=8, scale=2)
    x = torch.linspace(-4, 4, 101, dtype=torch.float64)
    y, log_slope = case(x, params[:, None], inverse=inverse)
    u = torch.sigmoid(x)
    g, log_g_slope = case(u, params[:, None], inverse=inverse, domain="unit")
    # Far from both ends, logit(g(sigmoid(x))) has only the rounding errors of g, times the slope 1 / (g (1 - g)) of the
    # logit and the slope of the spline.
    bins = case.bins(params)
    stretch = bins.widths / bins.heights if inverse else bins.heights / bins.widths
    steepest = (stretch / torch.minimum(bins.start, bins.end) if inverse else stretch * 3).amax(-1)[:, None]
    if case.family == "rational_quadratic":
        steepest = steepest * torch.maximum(bins.start, bins.end).amax(-1)[:, None]
    bound = UNITS * torch.finfo(torch.float64).eps * (1 + steepest) / (g * (1 - g))
    assert ((y - torch.logit(g)).abs() <= bound).all()
    sandwich = log_g_slope + torch.log(u * (1 - u)) - torch.log(g * (1 - g))
    # Slopes may differ by the second derivative times a rounding error, which is far below 1e-8.
    assert (log_slope - sandwich).abs().max() <= 1e-8
