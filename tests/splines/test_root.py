"""The root finder alone, against mpmath and against the polynomial itself."""

from __future__ import annotations

import mpmath as mp
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cubicflow.splines.cubic import NEWTON_STEPS, cubic_root, solve_unit_cubic

from .cases import EXAMPLES

EPS = torch.finfo(torch.float64).eps


def f(t, a, b):
    """Return f(t) in Bernstein form, which has no cancellation: its relative error is a few epsilon."""
    tau = 1 - t
    return t * (a * tau * tau + (3 - b) * t * tau + t * t)


def grid(*axes):
    return [axis.flatten() for axis in torch.meshgrid(*axes, indexing="ij")]


def bisect(increasing):
    """Return the root in [0, 1] of an increasing function by bisection with mpmath, to 1e-50."""
    low, high = mp.mpf(0), mp.mpf(1)
    for _ in range(170):
        middle = (low + high) / 2
        low, high = (middle, high) if increasing(middle) <= 0 else (low, middle)
    return low


def assert_solved(a, b, c, t, units=4):
    """Assert that |f(t) - c| is at most the rounding error of c plus f' times the rounding error of t, epsilon t."""
    eps = torch.finfo(t.dtype).eps
    assert ((t >= 0) & (t <= 1)).all()
    a, b, c, t = a.double(), b.double(), c.double(), t.double()
    slope = a * (1 - t) ** 2 + 2 * (3 - a - b) * t * (1 - t) + b * t * t
    bound = units * eps * (c + slope.clamp(min=0) * t)
    assert ((f(t, a, b) - c).abs() <= bound).all(), float(((f(t, a, b) - c).abs() / bound).nan_to_num().max())


def corner_slopes(count):
    low = torch.logspace(-7, 0, count, dtype=torch.float64)
    return torch.cat([low, 3 - torch.logspace(-3, 0, count, dtype=torch.float64), torch.tensor([2.999]).double()])


def test_the_corner_of_small_slopes_and_small_values(dtype):
    c = torch.cat([torch.logspace(-17.398, -0.302, 80, dtype=torch.float64), torch.tensor([4e-18, 0.5]).double()])
    a, b, c = (v.to(dtype) for v in grid(corner_slopes(12), corner_slopes(12), c))
    assert_solved(a, b, c, solve_unit_cubic(a, b, c))


def test_small_roots_keep_their_relative_precision():
    """Compare with mpmath: |t - root| is at most a few epsilon x root x the condition number c / (t f'(t))."""
    for a in (1e-7, 1e-3, 0.5, 1.0, 2.5, 2.999):
        for b in (1e-7, 1e-2, 1.0, 2.999):
            for c in (4e-18, 1e-12, 1e-7, 1e-3, 0.1, 0.5):
                t = solve_unit_cubic(*(torch.tensor(v, dtype=torch.float64) for v in (a, b, c)))
                with mp.workdps(60):
                    quadratic, cubic = 3 - 2 * mp.mpf(a) - b, mp.mpf(a) + b - 2
                    root = bisect(lambda r, a=a, c=c, q=quadratic, lead=cubic: r * (a + r * (q + r * lead)) - mp.mpf(c))
                    slope = a * (1 - root) ** 2 + 2 * (3 - mp.mpf(a) - b) * root * (1 - root) + b * root**2
                    error = abs(mp.mpf(float(t)) - root) / (EPS * root * (1 + c / (root * slope)))
                assert error <= 4, (a, b, c, float(t), float(root))


@pytest.mark.parametrize(
    ("a", "b"), [(1.0, 1.0), (0.0, 0.0), (0.0, 3.0), (3.0, 0.0), (3.0, 3.0), (0.0, 1.0), (2.0, 2.0)]
)
def test_special_shapes(a, b, dtype):
    """The shapes are straight lines, t^3, its mirror image, smoothstep, and a = b = 3 with its flat point in the
    middle.
    """
    c = torch.cat([torch.zeros(1), torch.linspace(0.01, 0.5, 50), torch.logspace(-30, -2, 29)]).to(dtype)
    start, end = torch.full_like(c, a), torch.full_like(c, b)
    t = solve_unit_cubic(start, end, c)
    assert_solved(start, end, c, t)
    assert t[0] == 0


def test_straight_lines_are_the_identity(dtype):
    c = torch.rand(1000, dtype=dtype, generator=torch.Generator().manual_seed(0)) / 2
    t = solve_unit_cubic(torch.ones_like(c), torch.ones_like(c), c)
    # q = tau^2 + 2 t tau + t^2 is 1 up to the rounding of three products and two sums, half an epsilon each.
    assert ((t - c).abs() <= 2.5 * torch.finfo(dtype).eps * c).all()


def test_nearly_straight_and_nearly_quadratic_bins(dtype):
    nudges = torch.cat([torch.zeros(1), torch.logspace(-17, -1, 33)]).double()
    nudges = torch.cat([nudges, -nudges])
    for base_a, base_b in ((1.0, 1.0), (1.5, 0.5), (0.2, 1.8), (2.0, 0.0)):
        a, b, c = grid(base_a + nudges, (base_b + nudges).clamp(min=0), torch.linspace(0, 0.5, 21).double())
        a, b, c = a.to(dtype), b.to(dtype), c.to(dtype)
        assert_solved(a, b, c, solve_unit_cubic(a, b, c))


ratio = st.one_of(st.floats(0, 3), st.floats(1e-9, 1e-2), st.floats(2.99, 3))


@settings(max_examples=20 * EXAMPLES, deadline=None)
@given(a=ratio, b=ratio, c=st.one_of(st.floats(0, 0.5), st.floats(1e-300, 1e-3)))
@example(a=0.0, b=3.0, c=1e-300)
@example(a=1e-9, b=3.0, c=4e-18)
@example(a=3.0, b=3.0, c=0.5)
@example(a=0.0, b=0.0, c=0.5)
def test_any_bin(a, b, c):
    a, b, c = (torch.tensor(v, dtype=torch.float64) for v in (a, b, c))
    t = solve_unit_cubic(a, b, c)
    # A subnormal c has no relative precision, so the bound also allows an absolute error of 1e-300.
    slope = a * (1 - t) ** 2 + 2 * (3 - a - b) * t * (1 - t) + b * t * t
    assert 0 <= t <= 1
    assert abs(f(t, a, b) - c) <= 4 * EPS * (c + max(slope, 0) * t) + 1e-300


def test_one_more_step_changes_nothing(monkeypatch):
    """The fixed number of steps is enough: two more steps change the root by at most one rounding."""
    a, b, c = grid(corner_slopes(10), corner_slopes(10), torch.logspace(-17, -0.302, 60, dtype=torch.float64))
    first = solve_unit_cubic(a, b, c)
    monkeypatch.setattr("cubicflow.splines.cubic.NEWTON_STEPS", NEWTON_STEPS + 2)
    more = solve_unit_cubic(a, b, c)
    slope = a * (1 - first) ** 2 + 2 * (3 - a - b) * first * (1 - first) + b * first * first
    assert ((more - first).abs() <= 4 * EPS * (first + c / slope)).all()


def test_rounding_below_the_bin_and_nan():
    one = torch.ones(4, dtype=torch.float64)
    nan = float("nan")
    t = solve_unit_cubic(
        torch.tensor([1.5, nan, 1.0, 1.0]), torch.tensor([0.5, 1.0, nan, 1.0]), torch.tensor([-1e-12, 0.1, 0.1, nan])
    )
    assert t[0] == 0
    assert t[1:].isnan().all()
    assert not solve_unit_cubic(one, one, one / 3).isnan().any()


def test_gradients_are_the_implicit_function_theorems():
    """Compare with difference quotients of mpmath's root, which use neither the solver nor autograd."""
    a, b, c = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.7, 2.2, 0.31))
    grads = torch.autograd.grad(cubic_root(a, b, c)[0], [a, b, c])

    def root(values):
        a, b, c = values
        return mp.findroot(lambda t: a * t + (3 - 2 * a - b) * t**2 + (a + b - 2) * t**3 - c, 0.4)

    with mp.workdps(40):
        at = [mp.mpf(v.item()) for v in (a, b, c)]
        for i, grad in enumerate(grads):
            step = mp.mpf(10) ** -12
            up, down = list(at), list(at)
            up[i] += step
            down[i] -= step
            assert abs(float((root(up) - root(down)) / (2 * step)) - float(grad)) <= 8 * EPS * (1 + abs(float(grad)))
