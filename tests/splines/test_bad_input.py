"""Invalid arguments raise the right exception. The message says what was found, what was expected and what to do."""

from __future__ import annotations

import re

import pytest
import torch

from cubicflow.splines import cubic_spline, linear_spline, num_params, quadratic_spline, rational_quadratic_spline

X = torch.rand(3)


def expect(error, *words):
    """Expect ``error`` with all of ``words`` in its message, in this order."""
    return pytest.raises(error, match=".*".join(map(re.escape, words)))


@pytest.mark.parametrize(
    ("function", "options", "size", "words"),
    [
        (cubic_spline, {}, 23, ("size 23", "slopes='steffen'", "2K + 2", "4, 6, 8", "10 bins would need 22")),
        (cubic_spline, {}, 2, ("size 2", "2K + 2", "1 bins would need 4")),
        (cubic_spline, {"slopes": "free"}, 22 + 1, ("size 23", "slopes='free'", "3K + 1", "4, 7, 10")),
        (quadratic_spline, {}, 20, ("size 20", "quadratic", "2K + 1", "3, 5, 7")),
        (rational_quadratic_spline, {}, 30, ("size 30", "rational_quadratic", "3K + 1")),
        (linear_spline, {}, 0, ("size 0", "linear", "K params", "1, 2, 3")),
        (cubic_spline, {}, 0, ("size 0", "2K + 2")),
    ],
)
def test_wrong_size_of_the_params_axis(function, options, size, words):
    with expect(ValueError, *words):
        function(X, torch.zeros(size), **options)


def test_params_without_axes():
    with expect(ValueError, "at least one axis"):
        linear_spline(X, torch.tensor(0.0))


@pytest.mark.parametrize("name", ["min_bin_width", "min_bin_height"])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.25, ("x K must be below 1", "0.25 x 4 = 1", "below 0.25", "fewer bins", "None")),
        (1.0, ("1.0 x 4 = 4",)),
        (float("inf"), ("inf x 4",)),
        (0.0, ("must be above 0", "got 0.0")),
        (-1e-3, ("must be above 0", "-0.001")),
        (float("nan"), ("must be above 0", "nan")),
    ],
)
def test_floors_that_leave_no_room(name, value, words):
    with expect(ValueError, name, *words):
        cubic_spline(X, torch.zeros(10), **{name: value})


@pytest.mark.parametrize("value", ["a", [0.1, 0.2]])
def test_floors_that_are_not_numbers(value):
    with expect(TypeError, "min_bin_width must be a number", "None for the default", repr(value)):
        cubic_spline(X, torch.zeros(10), min_bin_width=value)


def test_floors_just_below_the_limit_work(case):
    params = case.params(3, num_bins=4, scale=30, dtype=torch.float32)
    widths = {} if case.family == "linear" else {"min_bin_width": 0.2499}
    y, log_slope = case(X, params, domain="unit", min_bin_height=0.2499, **widths)
    assert ((y - X).abs() <= 1).all()
    assert log_slope.isfinite().all()
    if case.family == "linear":  # every bin is within K x 1e-4 of its equal share, so this is nearly the identity
        assert ((y - X).abs() <= 4e-4 * 4).all()


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64], ids=str)
def test_inputs_that_are_not_floating_point(case, dtype):
    params = case.params(num_bins=2, dtype=torch.float32)
    with expect(TypeError, "x must be floating point", str(dtype), "x.float()"):
        case(torch.zeros(3, dtype=dtype), params)
    with expect(TypeError, "params must be floating point", str(dtype), "params.float()"):
        case(X, params.to(dtype))


def test_inputs_that_are_not_tensors():
    with expect(TypeError, "x must be a torch.Tensor", "float", "torch.as_tensor"):
        cubic_spline(0.5, torch.zeros(10))
    with expect(TypeError, "params must be a torch.Tensor", "list"):
        cubic_spline(X, [0.0] * 10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"domain": "reals"}, ("domain", "'real', 'unit'", "'reals'")),
        ({"domain": None}, ("domain", "None")),
        ({"slopes": "akima"}, ("slopes", "'steffen' or 'free'", "'akima'")),
        ({"backend": "cuda"}, ("backend", "'auto'", "'reference'", "'cuda'")),
    ],
)
def test_unknown_choices(options, words):
    with expect(ValueError, *words):
        cubic_spline(X, torch.zeros(10), **options)


def test_shapes_that_do_not_broadcast(case):
    with expect(ValueError, "(3,)", "does not broadcast", "(4, ", "must match"):
        case(X, case.params(4, num_bins=2, dtype=torch.float32))


def test_validation_on_the_unit_interval(case, inverse):
    params = case.params(num_bins=2, dtype=torch.float32)
    x = torch.tensor([-0.25, 0.5, 1.5, float("nan")])
    with expect(ValueError, "2 of 4 inputs", "outside"):
        case(x, params, domain="unit", validate=True, inverse=inverse)
    with expect(ValueError, "1 of 2", "-0.25 to 0.5", "domain='real'", "validate=False"):
        case(x[:2], params, domain="unit", validate=True, inverse=inverse)
    case(x, params, domain="real", validate=True, inverse=inverse)  # nothing is outside the real line
    inside = torch.tensor([0.0, 1.0, 0.5, float("nan")])
    y, _ = case(inside, params, domain="unit", validate=True, inverse=inverse)
    assert y[:2].tolist() == [0, 1]
    assert y.isnan().tolist() == [False, False, False, True]


def test_num_params():
    assert [num_params("cubic", 4, "steffen"), num_params("cubic", 4, "free")] == [10, 13]
    assert [num_params(name, 4) for name in ("cubic", "quadratic", "linear", "rational_quadratic")] == [10, 9, 4, 13]
    for wrong in (0, 2.0, True, "3"):
        with expect(ValueError, f"num_bins must be a positive integer, got {wrong!r}"):
            num_params("linear", wrong)
    with expect(ValueError, "family must be one of 'cubic', 'linear'", "got 'quartic'"):
        num_params("quartic", 3)
    with expect(ValueError, "slopes of a cubic spline", "'steffen' or 'free'", "got 'fixed'"):
        num_params("cubic", 3, "fixed")
    with expect(ValueError, "slopes of a linear spline", "got 'free'"):
        num_params("linear", 3, "free")
