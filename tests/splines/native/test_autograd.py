"""The native operators under autograd, vmap, tracers and other observers."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.autograd.forward_ad import dual_level, make_dual
from torch.func import grad, jacfwd, jacrev, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from cubicflow.splines import cubic_spline
from cubicflow.splines.spec import make_spec

from .kernels import assert_close, needs_library, points


def test_gradcheck(level, spline, domain, inverse, smooth_inputs):
    x, params = smooth_inputs(spline, 3, domain, inverse)

    def function(x, params):
        return spline(x, params, domain=domain, inverse=inverse, backend="native")

    assert torch.autograd.gradcheck(function, (x, params))


@needs_library
def test_gradgradcheck(spline, domain, inverse, smooth_inputs):
    x, params = smooth_inputs(spline, 2, domain, inverse)

    def function(x, params):
        return spline(x, params, domain=domain, inverse=inverse, backend="native")

    assert torch.autograd.gradgradcheck(function, (x, params), atol=1e-4)


def test_a_watched_call_goes_through_its_operator():
    """Calls without observers skip the operator. All other tests make such calls."""
    x, params = torch.randn(3, requires_grad=True), torch.randn(3, 8, requires_grad=True)

    class Seen(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: set[str] = set()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.names.add(str(function))
            return function(*args, **(kwargs or {}))

    def there_and_back() -> None:
        y, log_slope = cubic_spline(x, params, backend="native")
        (y + log_slope).sum().backward()

    names = {f"cubicflow::native_spline{direction}" for direction in ("", "_backward")}
    with Seen() as seen:
        there_and_back()
    assert {f"{name.replace('::', '.')}.default" for name in names} <= seen.names
    with torch.profiler.profile() as profiled:
        there_and_back()
    assert names <= {event.key for event in profiled.key_averages()}
    with torch.no_grad():
        traced = make_fx(partial(cubic_spline, backend="native"))(x, params)
    assert any(node.target is torch.ops.cubicflow.native_spline.default for node in traced.graph.nodes)


@needs_library
def test_traced_with_symbolic_sizes():
    x, params = points(7), 3 * torch.randn(7, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    function = partial(cubic_spline, backend="native")
    traced = make_fx(function, tracing_mode="symbolic")(x[:5], params[:5])
    torch.testing.assert_close(traced(x, params), function(x, params))


@needs_library
def test_a_tensor_that_outlived_its_transform():
    kept = []
    grad(lambda x: (kept.append(x), x.sum())[1])(points(4))
    params = torch.zeros(8, dtype=torch.float64, requires_grad=True)
    results = [cubic_spline(x, params, backend="native") for x in (kept[0], points(4))]
    gradients = [torch.autograd.grad(y.sum() + log_slope.sum(), params)[0] for y, log_slope in results]
    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(gradients[0], gradients[1])


@needs_library
@pytest.mark.parametrize(("leading", "inverse"), [((4, 3), False), ((3,), True), ((4, 1), False)], ids=str)
def test_opcheck(spline, inverse, leading):
    x, params = points(4, 3, dtype=torch.float32), spline.params(*leading, num_bins=3, dtype=torch.float32)
    spec = make_spec(x, params, family=spline.family, inverse=inverse, domain="real", slopes=spline.slopes)
    torch.library.opcheck(torch.ops.cubicflow.native_spline.default, (x, params, *spec))
    torch.library.opcheck(torch.ops.cubicflow.native_spline_backward.default, (x, params, x, 2 * x, *spec))


@needs_library
@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)], ids=["x", "params", "both"])
def test_vmap_and_grad(spline, inverse, axes):
    x, params = points(5), spline.params(5, num_bins=3)
    x, params = x if axes[0] == 0 else x[0], params if axes[1] == 0 else params[0]

    def loss(backend):
        def function(x, params):
            y, log_slope = spline(x, params, inverse=inverse, backend=backend)
            return y + 2 * log_slope

        return [
            vmap(function, in_dims=axes)(x, params),
            *vmap(grad(function, argnums=(0, 1)), in_dims=axes)(x, params),
        ]

    assert_close(loss("native"), loss("reference"))


@needs_library
def test_jacrev_is_right_and_jacfwd_raises(spline, inverse):
    x, params = points(4), spline.params(num_bins=3)

    def function(backend):
        return lambda params: spline(x, params, inverse=inverse, backend=backend)[0]

    assert_close([jacrev(function("native"))(params)], [jacrev(function("reference"))(params)])
    with pytest.raises(RuntimeError, match="jvp"):
        jacfwd(function("native"))(params)


@needs_library
@pytest.mark.parametrize("create_graph", [False, True], ids=["first order", "with a graph"])
def test_batched_gradients_are_row_by_row(spline, inverse, create_graph):
    """is_grads_batched passes tensors without memory to the backward pass."""
    x, params = points(4).requires_grad_(), spline.params(num_bins=3).requires_grad_()
    y, log_slope = spline(x, params, inverse=inverse, backend="native")
    rows = torch.randn(5, 4, dtype=torch.float64)
    options = {"retain_graph": True, "create_graph": create_graph}
    found = torch.autograd.grad((y, log_slope), (x, params), (rows, 2 * rows), is_grads_batched=True, **options)
    one_by_one = [torch.autograd.grad((y, log_slope), (x, params), (row, 2 * row), **options) for row in rows]
    assert_close(found, [torch.stack(parts) for parts in zip(*one_by_one, strict=True)])


@needs_library
def test_vectorised_jacobian_is_the_references(spline, inverse):
    x, params = points(4), spline.params(num_bins=3)

    def jacobian(backend):
        def function(x, params):
            return spline(x, params, inverse=inverse, backend=backend)[1]

        return torch.autograd.functional.jacobian(function, (x, params), vectorize=True)

    assert_close(jacobian("native"), jacobian("reference"))


def negated_view(values):
    """Return the same values, in memory that holds their negatives."""
    view = torch.complex(torch.zeros_like(values), -values).conj().imag
    assert view.is_neg()
    assert torch.equal(view, values)
    return view


@needs_library
def test_negated_views_are_read_with_their_sign(spline, inverse):
    x, params, grads = points(5), spline.params(5, num_bins=3), points(2, 5, seed=3)

    def results(x, params, grads):
        quiet = spline(x, params, inverse=inverse, backend="native")
        x, params = x.detach().requires_grad_(), params.detach().requires_grad_()
        outputs = spline(x, params, inverse=inverse, backend="native")
        return [*quiet, *outputs, *torch.autograd.grad(outputs, (x, params), list(grads))]

    wanted = results(x, params, grads)
    for views in (
        (negated_view(x), params, grads),
        (x, negated_view(params), grads),
        (x, params, negated_view(grads)),
    ):
        found = results(*views)
        assert all(torch.equal(got, want) for got, want in zip(found, wanted, strict=True))


@needs_library
def test_forward_mode_raises_without_gradients_too():
    """Without a backward pass, calls go directly to the kernel, which ignores tangents."""
    x, params = torch.randn(5), torch.randn(5, 22)
    with torch.no_grad(), dual_level(), pytest.raises(RuntimeError, match="jvp"):
        cubic_spline(make_dual(x, torch.ones(5)), params, backend="native")


@needs_library
def test_compiles_to_one_graph_with_its_backward(spline):
    """Both directions, with a spline per element and with shared splines, are in one graph."""
    x, own, shared = points(7, 3), spline.params(7, 3, num_bins=5), spline.params(3, num_bins=5, seed=1)

    def function(x, own, shared):
        return [
            output
            for params in (own, shared)
            for inverse in (False, True)
            for output in spline(x, params, inverse=inverse, backend="native")
        ]

    def with_all_gradients(function):
        leaves = [tensor.clone().requires_grad_() for tensor in (x, own, shared)]
        outputs = function(*leaves)
        return [*outputs, *torch.autograd.grad(sum((i + 1) * y.sum() for i, y in enumerate(outputs)), leaves)]

    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    found, wanted = with_all_gradients(compiled), with_all_gradients(function)
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-13)  # sums of gradients in another order
    torch.compiler.reset()


@needs_library
def test_saves_only_x_and_params(spline):
    x, params = points(50).requires_grad_(), spline.params(50, num_bins=4).requires_grad_()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.data_ptr()) or t, lambda t: t):
        spline(x, params, backend="native")
    assert saved == [x.data_ptr(), params.data_ptr()]
