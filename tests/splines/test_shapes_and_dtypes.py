"""Shapes, dtypes, and values at the limits of floating point."""

from __future__ import annotations

from itertools import product

import torch

INF, NAN = float("inf"), float("nan")


SHAPES = [  # shape of x, leading axes of params
    ((), ()),
    ((5,), (5,)),
    ((5,), ()),
    ((), (5,)),
    ((4, 3), (3,)),
    ((4, 1), (3,)),
    ((2, 1, 3), (4, 1)),
    ((1,), (1, 1)),
]


def test_broadcasting_equals_expanding(case, domain, inverse):
    for x_shape, params_shape in SHAPES:
        x = torch.rand(x_shape, dtype=torch.float64)
        params = case.params(*params_shape, num_bins=4)
        shape = torch.broadcast_shapes(x_shape, params_shape)
        leaves = [x.requires_grad_(), params.requires_grad_()]
        got = case(x, params, domain=domain, inverse=inverse)
        want = case(x.expand(shape), params.expand(*shape, -1), domain=domain, inverse=inverse)
        for a, b in zip(got, want, strict=True):
            assert a.shape == shape
            torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)  # vector lanes and the remainder round differently
        grads = [torch.autograd.grad(y.sum() + log_slope.sum(), leaves) for y, log_slope in (got, want)]
        for a, b in zip(*grads, strict=True):
            assert a.shape == b.shape
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)  # sums over shared params run in another order


def test_leading_shapes_and_strides_do_not_matter(case, inverse):
    x, params = torch.randn(24, dtype=torch.float64), case.params(24, num_bins=3)
    y, log_slope = case(x, params, inverse=inverse)
    for shape in ((24,), (2, 12), (2, 3, 4), (1, 24, 1)):
        got = case(x.reshape(shape), params.reshape(*shape, -1), inverse=inverse)
        assert torch.equal(got[0], y.reshape(shape))
        assert torch.equal(got[1], log_slope.reshape(shape))
    wide = torch.stack([params, params + 1], -1)[..., 0]  # the params axis has stride 2
    assert not wide.is_contiguous()
    assert torch.equal(
        case(x.reshape(4, 6).T, wide.reshape(4, 6, -1).transpose(0, 1))[0].T.flatten(), case(x, params)[0]
    )


def test_empty_batches(case, domain, inverse):
    for x_shape, params_shape in [((0,), (0,)), ((0, 3), ()), ((), (0,)), ((2, 0), (1, 1))]:
        x = torch.zeros(x_shape, requires_grad=True)
        params = case.params(*params_shape, num_bins=4, dtype=torch.float32).requires_grad_()
        y, log_slope = case(x, params, domain=domain, inverse=inverse)
        assert y.shape == log_slope.shape == torch.broadcast_shapes(x_shape, params_shape)
        grads = torch.autograd.grad(y.sum() + log_slope.sum(), [x, params])
        assert all((grad == 0).all() for grad in grads), (x_shape, params_shape)


def test_one_bin(case, domain, inverse, dtype):
    x = torch.linspace(0.01, 0.99, 20, dtype=dtype)
    params = case.params(20, num_bins=1, scale=2, dtype=dtype)
    y, log_slope = case(x, params, domain=domain, inverse=inverse)
    back, back_log_slope = case(y, params, domain=domain, inverse=not inverse)
    eps = torch.finfo(dtype).eps
    # The secant of a single bin is 1. Slopes are in [1e-3, 3], except for rational quadratics, which have no bound.
    steepest = torch.maximum(log_slope.abs(), back_log_slope.abs()).exp().amax() + 3
    assert ((back - x).abs() <= 16 * eps * (1 + steepest)).all()
    assert y.isfinite().all()


PRECISIONS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def test_precision_rules(case, domain, inverse):
    for x_dtype, params_dtype in product(PRECISIONS, PRECISIONS):
        x = torch.rand(6, dtype=torch.float64).to(x_dtype).requires_grad_()
        params = case.params(6, num_bins=3, dtype=params_dtype).requires_grad_()
        y, log_slope = case(x, params, domain=domain, inverse=inverse)
        inner = torch.promote_types(torch.promote_types(x_dtype, params_dtype), torch.float32)
        assert (y.dtype, log_slope.dtype) == (x_dtype, inner)
        want, want_slope = case(x.to(inner), params.to(inner), domain=domain, inverse=inverse)
        assert torch.equal(y, want.to(x_dtype)), (x_dtype, params_dtype)
        assert torch.equal(log_slope, want_slope), (x_dtype, params_dtype)
        grads = torch.autograd.grad(y.sum() + log_slope.sum(), [x, params])
        assert [grad.dtype for grad in grads] == [x_dtype, params_dtype]
        assert all(grad.isfinite().all() for grad in grads), (x_dtype, params_dtype)


def test_infinities_on_the_real_line(case, inverse, dtype):
    x = torch.tensor([-INF, INF, 0.3], dtype=dtype)
    params = case.params(num_bins=5, scale=3, dtype=dtype)
    y, log_slope = case(x, params, inverse=inverse)
    assert y[:2].tolist() == [-INF, INF]
    assert y[2].isfinite()
    assert (log_slope[:2].abs() <= 16 * torch.finfo(dtype).eps).all()  # tails have slope 1
    leaf = params.clone().requires_grad_()
    (grad,) = torch.autograd.grad(case(x, leaf, inverse=inverse)[1].sum(), leaf)
    assert grad.isfinite().all()


def test_nan_in_x_stays_in_its_element(case, domain, inverse, dtype):
    x = torch.tensor([0.1, 0.5, 0.9, 0.2], dtype=dtype)
    holed = torch.tensor([0.1, NAN, 0.9, NAN], dtype=dtype)
    params = case.params(num_bins=5, dtype=dtype)
    good = torch.tensor([True, False, True, False])
    results = []
    for values in (x, holed):
        leaf = values.clone().requires_grad_()
        y, log_slope = case(leaf, params, domain=domain, inverse=inverse)
        results.append((y, log_slope, torch.autograd.grad(y.sum() + log_slope.sum(), leaf)[0]))
    clean, dirty = results
    for a, b in zip(clean, dirty, strict=True):
        assert torch.equal(a[good], b[good])
    assert dirty[0][~good].isnan().all()
    assert dirty[1][~good].isnan().all()


def test_nan_in_params_stays_in_its_spline(case, domain, inverse, dtype):
    x = torch.tensor([[0.1, 0.5, 0.9]], dtype=dtype)
    params = case.params(4, 1, num_bins=5, dtype=dtype)
    clean = case(x, params, domain=domain, inverse=inverse)
    for position in range(params.shape[-1]):
        holed = params.clone()
        holed[2, 0, position] = NAN
        dirty = case(x, holed, domain=domain, inverse=inverse)
        for a, b in zip(clean, dirty, strict=True):
            assert torch.equal(a[[0, 1, 3]], b[[0, 1, 3]])
        if position < (4 if case.family == "linear" else 5):  # a width (linear: a height) moves every knot
            assert dirty[0][2].isnan().all()
            assert dirty[1][2].isnan().all()


def test_outside_the_unit_interval(case, inverse, dtype):
    x = torch.tensor([-INF, -3.0, -1e-30, 0.0, 1.0, 1.0 + 1e-6, 7.0, INF], dtype=dtype, requires_grad=True)
    params = case.params(num_bins=5, scale=3, dtype=dtype).requires_grad_()
    y, log_slope = case(x, params, domain="unit", inverse=inverse)
    assert y.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert (log_slope == -INF).tolist() == [True, True, True, False, False, True, True, True]
    grads = torch.autograd.grad(y.sum() + log_slope[3:5].sum(), [x, params])
    assert all(grad.isfinite().all() for grad in grads)
    assert (grads[0][[0, 1, 2, 5, 6, 7]] == 0).all()


def test_extreme_params(case, domain, inverse, dtype):
    """Logits of ±1e4 saturate every softmax and sigmoid; the floors keep the spline invertible."""
    params = 1e4 * case.params(50, num_bins=6, dtype=dtype).sign()
    params[::2, ::3] = 0
    x = torch.linspace(0, 1, 33, dtype=dtype)
    x = x if domain == "unit" else 60 * x - 30
    x, params = x.expand(50, -1).clone().requires_grad_(), params.requires_grad_()
    y, log_slope = case(x, params[:, None], domain=domain, inverse=inverse)
    assert y.isfinite().all()
    assert log_slope.isfinite().all()
    grads = torch.autograd.grad(y.sum() + log_slope.sum(), [x, params])
    assert all(grad.isfinite().all() for grad in grads)
