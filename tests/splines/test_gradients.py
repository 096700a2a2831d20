"""Derivatives of first and second order, in both directions, against difference quotients, one another and formulas."""

from __future__ import annotations

from functools import partial

import mpmath
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.forward_ad import dual_level, make_dual, unpack_dual
from torch.func import jacfwd, jacrev, jvp

from cubicflow.splines import rational_quadratic_spline
from cubicflow.splines.bins import MARGIN
from cubicflow.splines.cubic import cubic_root

from .covering import covering_pairs

EPS = torch.finfo(torch.float64).eps


@pytest.mark.parametrize("k", [1, 2, 4])
def test_gradcheck(case, domain, inverse, smooth_inputs, k):
    x, params = smooth_inputs(case, k, domain, inverse)
    assert gradcheck(lambda x, p: case(x, p, domain=domain, inverse=inverse), (x, params))


@pytest.mark.parametrize(("k", "domain", "inverse"), covering_pairs([1, 3], ["real", "unit"], [False, True]))
def test_gradgradcheck(case, domain, inverse, smooth_inputs, k):
    x, params = smooth_inputs(case, k, domain, inverse)
    assert gradgradcheck(lambda x, p: case(x, p, domain=domain, inverse=inverse), (x, params))


def assert_slopes_agree(x, y, log_slope, eps, condition=1):
    """Assert that autograd's derivative of y equals exp(log_slope), up to a few roundings of the steepest slope of each
    row.

    Autograd adds terms of the size of the secant, even where the slope itself is small.
    """
    slope = torch.autograd.grad(y.sum(), x)[0]
    want = log_slope.detach().exp()
    assert ((slope - want).abs() <= 32 * eps * condition * want.amax(-1, keepdim=True)).all()


@pytest.mark.parametrize("k", [1, 2, 10, 128])
def test_log_slope_is_the_log_of_autograds_slope(case, domain, inverse, k):
    params = case.params(20, num_bins=k)
    knots = case.knots(params, inverse)
    u = knots[:, :-1, None] + knots.diff()[..., None] * torch.linspace(0.01, 0.99, 5, dtype=torch.float64)
    u = u.flatten(1)
    x = (torch.logit(u) if domain == "real" else u).requires_grad_()
    assert_slopes_agree(x, *case(x, params[:, None], domain=domain, inverse=inverse), EPS)


def test_log_slope_is_the_log_of_autograds_slope_far_out(case, inverse):
    x = torch.linspace(-200, 200, 801, dtype=torch.float64).expand(10, -1).clone().requires_grad_()
    assert_slopes_agree(x, *case(x, case.params(10, 1, num_bins=6, scale=2), inverse=inverse), EPS)


def test_the_inverse_functions_gradients_follow_from_the_forward_ones(case, domain, smooth_inputs):
    """x = g^-1(y; p) gives dx/dy = 1 / g' and dx/dp = -g_p / g', with the derivatives of g from autograd at x."""
    y, params = smooth_inputs(case, 4, domain, inverse=True, per_bin=2)
    x, _ = case(y, params, inverse=True, domain=domain)
    weights = torch.linspace(-1, 2, x.numel(), dtype=torch.float64)
    got_y, got_params = torch.autograd.grad((weights * x).sum(), [y, params])
    at = x.detach().requires_grad_()
    forward, _ = case(at, params, domain=domain)
    slope = torch.autograd.grad(forward.sum(), at, retain_graph=True)[0]
    want_params = -torch.autograd.grad((weights / slope * forward).sum(), params)[0]
    scale = float((weights / slope).abs().sum() * slope.max())
    torch.testing.assert_close(got_y, weights / slope, rtol=1e-11, atol=0)
    torch.testing.assert_close(got_params, want_params, rtol=0, atol=1e-12 * scale)


def test_double_backward_through_the_inverse_is_right(cubic):
    """Compare with (g^-1)'' = -g'' / g'^3.

    A single Newton step attached to the root would give 0, or half of this value.
    """
    params = cubic.params(num_bins=3, seed=2)
    x = torch.linspace(0.05, 0.95, 19, dtype=torch.float64, requires_grad=True)
    y, _ = cubic(x, params, domain="unit")
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    at = y.detach().requires_grad_()
    back, _ = cubic(at, params, domain="unit", inverse=True)
    (back_first,) = torch.autograd.grad(back.sum(), at, create_graph=True)
    (back_second,) = torch.autograd.grad(back_first.sum(), at)
    first, second = first.detach(), second.detach()
    # The inverse returns x up to a few roundings, which change g'' by g''' times as much.
    torch.testing.assert_close(back_second, -second / first**3, rtol=1e-8, atol=1e-8)


def test_third_derivative_of_the_inverse_is_right():
    """Compare with (g^-1)''' = (3 g''^2 - g' g''') / g'^5, in the unit bin with K = 1."""
    a, b, t = 0.6, 1.9, 0.37
    g1 = a + 2 * (3 - 2 * a - b) * t + 3 * (a + b - 2) * t * t
    g2 = 2 * (3 - 2 * a - b) + 6 * (a + b - 2) * t
    g3 = 6 * (a + b - 2)
    start, end = torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)
    c = torch.tensor(a * t + (3 - 2 * a - b) * t**2 + (a + b - 2) * t**3, dtype=torch.float64, requires_grad=True)
    value = cubic_root(start, end, c)[0]
    for want in (1 / g1, -g2 / g1**3, (3 * g2 * g2 - g1 * g3) / g1**5):
        (value,) = torch.autograd.grad(value, c, create_graph=True)
        assert abs(value.item() - want) <= 64 * EPS * abs(want)


def test_gradients_at_ties_of_min_are_finite(cubic, domain, inverse):
    """With zero params, all arguments of every min() of slopes are equal, and so are all secants."""
    params = torch.zeros_like(cubic.params(num_bins=6)).requires_grad_()
    x = torch.linspace(0, 1, 25, dtype=torch.float64)
    x = (torch.logit(x[1:-1]) if domain == "real" else x).requires_grad_()
    y, log_slope = cubic(x, params, domain=domain, inverse=inverse)
    grads = torch.autograd.grad(y.sum() + log_slope.sum(), [x, params], create_graph=True)
    assert all(grad.isfinite().all() for grad in grads)
    seconds = torch.autograd.grad(sum(grad.sum() for grad in grads), [x, params])
    assert all(grad.isfinite().all() for grad in seconds)


def test_the_gradient_an_ulp_beside_a_knot_is_the_slope(case, inverse, dtype):
    """Rounding may move a point beside a knot out of its bin. The point must still have a gradient."""
    params = case.params(50, num_bins=17, scale=4, dtype=dtype)
    x = case.awkward_inputs(params, inverse).requires_grad_()
    y, log_slope = case(x, params[:, None], inverse=inverse, domain="unit")
    # The terms of a rational quadratic's slope exceed the slope by the ratio of the end slopes to the secant.
    bins = case.bins(params)
    ratios = torch.maximum(bins.start, bins.end).amax(-1, keepdim=True)
    condition = 1 + ratios if case.family == "rational_quadratic" else 1
    assert_slopes_agree(x, y, log_slope, torch.finfo(dtype).eps, condition)


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_forward_mode_is_right(case, domain, inverse, smooth_inputs, backend):
    x, params = smooth_inputs(case, 3, domain, inverse)
    y, log_slope = case(x, params, domain=domain, inverse=inverse)
    (bend,) = torch.autograd.grad(log_slope.sum(), x, materialize_grads=True, allow_unused=True)
    with dual_level():
        dual = make_dual(x.detach(), torch.ones_like(x))
        outputs = case(dual, params.detach(), domain=domain, inverse=inverse, backend=backend)
        torch.testing.assert_close(outputs[0].detach(), y.detach(), rtol=1e-13, atol=1e-13)
        tangents = [unpack_dual(output).tangent for output in outputs]
    slope_tangent, bend_tangent = (torch.zeros_like(x) if tangent is None else tangent for tangent in tangents)
    torch.testing.assert_close(slope_tangent, log_slope.exp().detach(), rtol=1e-10, atol=0)
    torch.testing.assert_close(bend_tangent, bend, rtol=1e-9, atol=1e-9)


def test_forward_mode_in_x_and_params_at_once_is_the_difference_quotient(case, domain, inverse, smooth_inputs):
    x, params = (value.detach() for value in smooth_inputs(case, 3, domain, inverse))
    generator = torch.Generator().manual_seed(5)
    directions = [torch.randn(value.shape, generator=generator, dtype=value.dtype) for value in (x, params)]

    def function(x, params):
        return torch.stack(case(x, params, domain=domain, inverse=inverse))

    def moved(step):
        return function(*(value + step * way for value, way in zip((x, params), directions, strict=True)))

    _, tangent = jvp(function, (x, params), tuple(directions))
    torch.testing.assert_close(tangent, (moved(1e-6) - moved(-1e-6)) / 2e-6, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("argument", "domain", "inverse"), covering_pairs([0, 1], ["real", "unit"], [False, True])
)  # argument 0 is x, argument 1 is params
def test_forward_mode_agrees_with_reverse_mode_in_every_order(case, domain, inverse, smooth_inputs, argument):
    """Compare Jacobians, and all four ways to compute a Hessian. torch drops tangents of a Function in some of them."""
    x, params = (value.detach() for value in smooth_inputs(case, 2, domain, inverse))

    def function(x, params):
        return torch.stack(case(x, params, domain=domain, inverse=inverse, backend="reference"))

    of_forward, of_reverse = (partial(jac, argnums=argument) for jac in (jacfwd, jacrev))
    wanted = of_reverse(function)(x, params)
    torch.testing.assert_close(of_forward(function)(x, params), wanted, rtol=1e-9, atol=1e-9)
    wanted = of_reverse(of_reverse(function))(x, params)
    for outer, inner in ((of_forward, of_reverse), (of_reverse, of_forward), (of_forward, of_forward)):
        torch.testing.assert_close(outer(inner(function))(x, params), wanted, rtol=1e-8, atol=1e-8)


def test_forward_mode_of_the_root_is_right_in_higher_orders():
    """With a = 0 and b = 3, the cubic is f(t) = t^3, and its root is c^(1/3)."""
    start, end = torch.tensor(0.0).double(), torch.tensor(3.0).double()

    def function(c):
        return cubic_root(start, end, c)[0]

    at, want, exponent = 0.2, 1.0, mpmath.mpf(1) / 3
    for order in range(1, 5):  # each order takes many times as long as the one before
        function = jacfwd(function)
        want *= exponent - (order - 1)
        found = function(torch.tensor(at, dtype=torch.float64)).item()
        assert abs(found - want * at ** (exponent - order)) <= 1e-9 * abs(found)


def test_forward_mode_keeps_the_value_where_the_inverse_has_no_slope():
    """With a = b = 3 the cubic has slope 0 in the middle of its bin."""
    three, half = torch.tensor(3.0).double(), torch.tensor(0.5).double()
    value, _ = jvp(lambda c: cubic_root(three, three, c)[0], (half,), (torch.ones_like(half),))
    # At a triple root the error is the rounding error of c to the power 1/3.
    torch.testing.assert_close(value, half, rtol=0, atol=1e-4)


@pytest.mark.parametrize("slope", [30.0, 1e3, 1e4])
def test_a_rational_quadratics_inverse_has_its_own_slope_as_derivative_where_the_root_is_near_the_far_end(slope):
    """The root t is nearly 1, so the derivative must be computed from 1 - t."""
    params = torch.tensor([0.0, 0.3, -10.0, 0.0, 0.0, slope, 0.0])
    x = torch.linspace(1e-5, 1e-3, 2000).requires_grad_()
    y, log_slope = rational_quadratic_spline(x, params, inverse=True, domain="unit")
    (derivative,) = torch.autograd.grad(y.sum(), x)
    # The derivative and the log-slope are computed separately, each with a few roundings.
    torch.testing.assert_close(derivative, log_slope.detach().exp(), rtol=64 * torch.finfo(x.dtype).eps, atol=0)


def test_a_rational_quadratics_slopes_have_no_step_where_softplus_becomes_linear():
    logits = torch.arange(15, 60, 0.25, dtype=torch.float64)
    params = torch.zeros(len(logits), 4, dtype=torch.float64)  # a single bin, with secant 1
    params[:, 2] = logits
    _, log_slope = rational_quadratic_spline(torch.zeros(len(logits), dtype=torch.float64), params, domain="unit")
    found = [mpmath.mpf(value.item()) for value in log_slope]
    shift = mpmath.log(mpmath.e - 1)
    wanted = [mpmath.log(MARGIN + (1 - MARGIN) * mpmath.log1p(mpmath.exp(logit.item() + shift))) for logit in logits]
    assert max(abs(a - b) for a, b in zip(found, wanted, strict=True)) <= 8 * torch.finfo(torch.float64).eps
