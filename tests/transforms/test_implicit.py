"""The implicit inverse, against inverses in closed form and against mpmath."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from torch import Tensor

from cubicflow.transforms.implicit import implicit_inverse


def sinh_of(scale: Tensor):
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        log_cosh = (scale * x).abs() + torch.log1p(torch.exp(-2 * (scale * x).abs())) - math.log(2)
        return torch.sinh(scale * x), log_cosh + scale.log()

    return function


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 4), (torch.float64, 4)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0])
def test_a_map_with_a_closed_inverse_is_inverted_to_rounding(dtype: torch.dtype, bound: float, scale: float) -> None:
    y = torch.cat([torch.linspace(-30, 30, 61), torch.tensor([1e-30, -1e-12, 1e25, -1e30, 0.0])]).to(dtype)
    x, log_slope = implicit_inverse(sinh_of(torch.tensor(scale, dtype=dtype)), y)
    expected = torch.asinh(y.double()) / scale
    eps = torch.finfo(dtype).eps
    # asinh has condition at most 1. The rounding of scale * x counts as often as x is long. Below the smallest normal
    # number it is absolute.
    allowed = (
        bound * eps * expected.abs() * (1 + (scale * expected.abs()).clamp(min=1)) + torch.finfo(dtype).tiny / scale
    )
    assert ((x.double() - expected).abs() <= allowed).all()
    expected_log_slope = -0.5 * torch.log1p(y.double().square()) - math.log(scale)
    assert torch.allclose(log_slope.double(), expected_log_slope, rtol=8 * eps, atol=64 * eps)


def test_steep_and_flat_maps_are_inverted_where_newtons_method_fails() -> None:
    """A sum of sigmoids with slopes from 1e-3 to 1e4, against mpmath."""
    at = torch.tensor([-3.0, 0.0, 1e-3, 4.0], dtype=torch.float64)
    steepness = torch.tensor([1e4, 1.0, 1e3, 30.0], dtype=torch.float64)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        parts = torch.sigmoid(steepness * (x[..., None] - at))
        return parts.mean(-1) + 1e-3 * x, ((steepness * parts * (1 - parts)).mean(-1) + 1e-3).log()

    y = torch.linspace(-1, 2, 41, dtype=torch.float64)
    x, _ = implicit_inverse(function, y)
    with mpmath.workdps(40):
        for found, value in zip(x.tolist(), y.tolist(), strict=True):

            def excess(point, value=value):
                terms = [
                    1 / (1 + mpmath.exp(-k * (point - a))) for k, a in zip(steepness.tolist(), at.tolist(), strict=True)
                ]
                return mpmath.fsum(terms) / 4 + mpmath.mpf("0.001") * point - value

            root = mpmath.findroot(excess, (found - 1e-6, found + 1e-6), solver="anderson", tol=1e-60)
            slope = float(mpmath.diff(excess, root))
            # The function is rounded at about 1, and moves the root by that rounding over the slope.
            assert abs(found - float(root)) <= 8 * 2.3e-16 * (abs(found) + 3 / slope)


def test_values_that_are_not_reached_give_the_ends_and_nan_stays_in_its_element() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.sigmoid(x), torch.nn.functional.logsigmoid(x) + torch.nn.functional.logsigmoid(-x)

    x, _ = implicit_inverse(function, torch.tensor([-0.5, 2.0, torch.nan, 0.5]))
    assert x[0] == -torch.finfo(x.dtype).max
    assert x[1] == pytest.approx(torch.finfo(x.dtype).max)
    assert x[2].isnan()
    assert x[3] == pytest.approx(0, abs=1e-6)


def test_derivatives_of_the_first_two_orders_are_those_of_the_closed_inverse() -> None:
    y = torch.tensor([-2.0, 0.3, 5.0], dtype=torch.float64, requires_grad=True)
    scale = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)

    def inverse(y: Tensor, scale: Tensor) -> Tensor:
        x, log_slope = implicit_inverse(sinh_of(scale), y)
        return x + log_slope

    def closed(y: Tensor, scale: Tensor) -> Tensor:
        return torch.asinh(y) / scale - 0.5 * torch.log1p(y.square()) - scale.log()

    def derivatives(function) -> list[Tensor]:
        first = torch.autograd.grad(function(y, scale).sum(), (y, scale), create_graph=True)
        second = torch.autograd.grad(first[0].sum() + first[1], (y, scale))
        return [*first, *second]

    for mine, exact in zip(derivatives(inverse), derivatives(closed), strict=True):
        torch.testing.assert_close(mine, exact, rtol=1e-12, atol=1e-13)


def test_it_works_under_vmap_and_in_forward_mode() -> None:
    y = torch.tensor([[-2.0, 0.3], [5.0, 1.0]], dtype=torch.float64)
    function = sinh_of(torch.tensor(1.7, dtype=torch.float64))
    one = torch.func.vmap(lambda row: implicit_inverse(function, row)[0])(y)
    assert torch.equal(one, implicit_inverse(function, y)[0])
    _, tangent = torch.func.jvp(lambda y: implicit_inverse(function, y)[0], (y,), (torch.ones_like(y),))
    torch.testing.assert_close(tangent, 1 / (1.7 * (1 + y.square()).sqrt()), rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_ends_at_its_rounding(dtype: torch.dtype) -> None:
    x = torch.tensor([-3.0, -0.1, 0.0, 0.7, 5.0], dtype=dtype)
    found, log_slope = implicit_inverse(sinh_of(torch.tensor(1.7, dtype=dtype)), torch.sinh(1.7 * x))
    assert found.dtype == log_slope.dtype == dtype
    assert torch.allclose(found, x, rtol=4 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


def test_whole_numbers_are_refused() -> None:
    with pytest.raises(TypeError, match=r"floating-point values of 16, 32 or 64 bits, got torch\.int64; convert them"):
        implicit_inverse(lambda x: (x, 0 * x), torch.zeros(1, dtype=torch.int64))
