"""The spline functions under torch.compile, vmap, grad and jacrev."""

from __future__ import annotations

import pytest
import torch
from torch.func import grad, jacrev, vmap

from cubicflow.splines import cubic_spline

from .cases import Case


def loss_and_grads(function, x, params):
    x, params = x.clone().requires_grad_(), params.clone().requires_grad_()
    y, log_slope = function(x, params)
    weights = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).reshape(y.shape)
    return y, log_slope, *torch.autograd.grad((weights * (y + log_slope)).sum(), [x, params])


def assert_same(got, want):
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


# Each family once. The backend aot_eager traces the backward pass too, and takes twice the time of eager.
# test_soak_tracing.py compiles every family in both directions and on both domains, with the backward pass.
COMPILED = {
    Case("cubic", "steffen"): ("aot_eager", {"inverse": True}),
    Case("cubic", "free"): ("eager", {"inverse": False, "domain": "unit"}),
    Case("quadratic"): ("eager", {"inverse": True, "domain": "unit"}),
    Case("linear"): ("eager", {"inverse": True}),
    Case("rational_quadratic"): ("aot_eager", {"inverse": False}),
}


def test_compiles_to_one_graph(case):
    """fullgraph=True raises at the first data-dependent branch."""
    backend, options = COMPILED[case]
    x = torch.rand(7, 3, dtype=torch.float64)
    params = case.params(num_bins=5) if case.slopes == "free" else case.params(7, 3, num_bins=5)  # shared, or one each

    def function(x, params):
        return case(x, params, **options, backend="reference")

    compiled = torch.compile(function, fullgraph=True, backend=backend)
    assert_same(loss_and_grads(compiled, x, params), loss_and_grads(function, x, params))


STEFFEN, LINEAR = Case("cubic", "steffen"), Case("linear")


@pytest.mark.parametrize(
    ("case", "backend", "dynamic"),
    [
        (STEFFEN, "auto", None),
        (STEFFEN, "auto", True),
        (LINEAR, "reference", True),
        # Compiling a reference again as sizes change, or the cubic's reference, takes up to ten seconds.
        pytest.param(LINEAR, "reference", None, marks=pytest.mark.soak),
        pytest.param(STEFFEN, "reference", None, marks=pytest.mark.soak),
        pytest.param(STEFFEN, "reference", True, marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_one_compiled_function_takes_any_number_of_bins(case, backend, dynamic):
    """With dynamic=None an axis becomes symbolic at its second size. With dynamic=True all axes are symbolic."""

    def function(x, params):
        return case(x, params, backend=backend)

    compiled = torch.compile(function, fullgraph=True, backend="eager", dynamic=dynamic)
    for batch, size in ((7, 12), (7, 8), (5, 6)):
        x, params = torch.randn(batch, dtype=torch.float64), torch.randn(batch, size, dtype=torch.float64)
        assert_same(compiled(x, params), function(x, params))


def test_compiles_with_inductor():
    """One call is compiled here. test_soak_tracing.py compiles every family, both directions and the backward pass."""
    x, params = torch.randn(64, dtype=torch.float64), torch.randn(64, 6, dtype=torch.float64)

    def function(x, params):
        return cubic_spline(x, params, backend="reference")

    got = torch.compile(function, fullgraph=True)(x, params)
    for a, b in zip(got, function(x, params), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)  # fused arithmetic rounds differently


AXES = [(0, None), (None, 0), (0, 0)]


@pytest.mark.parametrize("axes", AXES, ids=["x", "params", "both"])
def test_vmap_equals_a_loop(case, domain, inverse, axes):
    x = torch.rand(6, 4, dtype=torch.float64)
    x, params = x if domain == "unit" else 4 * x - 2, case.params(6, 4, num_bins=3)
    x = x if axes[0] == 0 else x[0]
    params = params if axes[1] == 0 else params[0]

    def function(x, params):
        return case(x, params, domain=domain, inverse=inverse)

    got = vmap(function, in_dims=axes)(x, params)
    rows = [function(x[i] if axes[0] == 0 else x, params[i] if axes[1] == 0 else params) for i in range(6)]
    assert_same(got, [torch.stack(part) for part in zip(*rows, strict=True)])


def test_vmap_over_scalars_that_share_a_spline(case, inverse):
    x, params = torch.linspace(-3, 3, 11, dtype=torch.float64), case.params(num_bins=4)
    got = vmap(lambda x: case(x, params, inverse=inverse))(x)
    assert_same(got, case(x, params, inverse=inverse))


@pytest.mark.parametrize("axes", AXES, ids=["x", "params", "both"])
def test_vmap_of_grad_equals_autograd(cubic, inverse, axes):
    x, params = torch.linspace(-3, 3, 5, dtype=torch.float64), cubic.params(5, num_bins=3)
    x = x if axes[0] == 0 else x[0]
    params = params if axes[1] == 0 else params[0]

    def loss(x, params):
        y, log_slope = cubic(x, params, inverse=inverse)
        return y + 2 * log_slope

    got = vmap(grad(loss, argnums=(0, 1)), in_dims=axes)(x, params)
    for i in range(5):
        xi = (x[i] if axes[0] == 0 else x).clone().requires_grad_()
        pi = (params[i] if axes[1] == 0 else params).clone().requires_grad_()
        assert_same([part[i] for part in got], torch.autograd.grad(loss(xi, pi), [xi, pi]))


def test_grad_of_grad_equals_double_backward(cubic, inverse):
    params = cubic.params(num_bins=3, seed=1)
    x = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)

    def function(x):
        return cubic(x, params, inverse=inverse)[0]

    (first,) = torch.autograd.grad(function(x), x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    assert_same([grad(grad(function))(x.detach())], [second])


def test_jacrev_equals_autograd_row_by_row(case, inverse):
    x, params = torch.linspace(-2, 2, 4, dtype=torch.float64), case.params(num_bins=3)
    got = jacrev(lambda p: case(x, p, inverse=inverse)[0])(params)
    leaf = params.clone().requires_grad_()
    y, _ = case(x, leaf, inverse=inverse)
    assert_same(got, [torch.autograd.grad(value, leaf, retain_graph=True)[0] for value in y])


def test_inputs_are_not_modified(case, domain, inverse):
    x = torch.tensor([-0.5, 0.0, 0.3, 1.0, 1.7, float("nan")], dtype=torch.float64)
    params = case.params(6, num_bins=4)
    copies, versions = (x.clone(), params.clone()), (x._version, params._version)
    case(x, params, domain=domain, inverse=inverse)
    assert (x._version, params._version) == versions
    assert torch.equal(x.nan_to_num(9), copies[0].nan_to_num(9))
    assert torch.equal(params, copies[1])
