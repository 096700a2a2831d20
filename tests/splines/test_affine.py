"""Affine and additive maps: their formulas, their inverses, and the precision of both."""

from __future__ import annotations

import pytest
import torch

from cubicflow.splines import additive, affine, leaky_relu

PRECISIONS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.fixture(params=[affine, additive, leaky_relu], ids=lambda function: function.__name__)
def element_map(request):
    return request.param


def draw(*shape, dtype, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def size(element_map):
    return 2 if element_map is affine else 1


def test_whole_numbers_are_refused(element_map):
    whole, params = torch.tensor([1, 2]), torch.full((2, size(element_map)), 0.7)
    with pytest.raises(TypeError, match=r"x must be floating point, got torch\.int64"):
        element_map(whole, params)
    with pytest.raises(TypeError, match=r"params must be floating point, got torch\.int64"):
        element_map(whole.float(), params.long())


def test_params_without_an_axis_are_refused(element_map):
    with pytest.raises(ValueError, match="params must have at least one axis: the last one holds the"):
        element_map(torch.tensor(0.5), torch.tensor(1.0))


def test_affine_is_its_formula():
    x, params = draw(50, dtype=torch.float64, seed=0), draw(50, 2, dtype=torch.float64, seed=1)
    y, log_slope = affine(x, params)
    scale = torch.exp(5 * torch.tanh(params[:, 1] / 5))
    torch.testing.assert_close(y, x * scale + params[:, 0])
    torch.testing.assert_close(log_slope, scale.log())


@pytest.mark.parametrize("x_dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("params_dtype", PRECISIONS, ids=str)
def test_precision_is_that_of_the_splines(element_map, inverse, x_dtype, params_dtype):
    x = draw(4, 3, dtype=x_dtype, seed=0).requires_grad_()
    params = draw(3, size(element_map), dtype=params_dtype, seed=1).requires_grad_()
    y, log_slope = element_map(x, params, inverse=inverse)
    inner = torch.promote_types(torch.promote_types(x_dtype, params_dtype), torch.float32)
    assert (y.dtype, log_slope.dtype) == (x_dtype, inner)
    want, want_slope = element_map(x.to(inner), params.to(inner), inverse=inverse)
    assert torch.equal(y, want.to(x_dtype))
    assert torch.equal(log_slope, want_slope)
    grads = torch.autograd.grad(y.sum() + log_slope.sum(), [x, params])
    assert [grad.dtype for grad in grads] == [x_dtype, params_dtype]


@pytest.mark.parametrize(("x_shape", "leading"), [((), (5,)), ((4, 1), (3,)), ((4, 3), ()), ((0, 3), (3,))], ids=str)
def test_broadcasts_and_inverts(element_map, x_shape, leading):
    x = draw(*x_shape, dtype=torch.float64, seed=0)
    params = draw(*leading, size(element_map), dtype=torch.float64, seed=1)
    y, log_slope = element_map(x, params)
    assert y.shape == log_slope.shape == torch.broadcast_shapes(x_shape, leading)
    back, back_log_slope = element_map(y, params, inverse=True)
    torch.testing.assert_close(back, x.expand(y.shape))
    assert torch.equal(back_log_slope, -log_slope)
