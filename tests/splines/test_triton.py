"""The Triton kernels against the reference: in Triton's interpreter on the CPU, or with ``--device cuda`` compiled."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from cubicflow.splines import (
    cubic_spline,
    dispatch,
    linear_spline,
    num_params,
    quadratic_spline,
    rational_quadratic_spline,
)
from cubicflow.splines.backends import triton as backend
from cubicflow.splines.spec import make_spec

triton = pytest.importorskip("triton", reason="Triton is for Linux only")
tl = pytest.importorskip("triton.language")

FAMILIES = {
    "steffen": ("cubic", "steffen"),
    "free": ("cubic", "free"),
    "rational_quadratic": ("rational_quadratic", None),
    "quadratic": ("quadratic", None),
}
# numpy, in the interpreter, warns of what floating point does by design: exp2(-inf), 0 / 0 in branches not taken.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(scope="module", params=FAMILIES)
def family(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def device(request) -> str:
    device = request.config.getoption("--device")
    if device == "cpu" and not backend._interpreted():
        pytest.skip("Triton was imported without TRITON_INTERPRET=1, which tests/conftest.py sets")
    return device


def spline(family: str, x: Tensor, params: Tensor, backend: str = "triton", **options) -> tuple[Tensor, Tensor]:
    if family == "rational_quadratic":
        return rational_quadratic_spline(x, params, backend=backend, **options)
    if family == "quadratic":
        return quadratic_spline(x, params, backend=backend, **options)
    return cubic_spline(x, params, slopes=family, backend=backend, **options)


def draw(family, *shape, num_bins, scale=1.0, dtype=torch.float64, seed=0, device="cpu") -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    size = num_params(FAMILIES[family][0], num_bins, FAMILIES[family][1])
    return (scale * torch.randn(*shape, size, generator=generator, dtype=torch.float64)).to(device, dtype)


def points(*shape, domain="real", dtype=torch.float64, seed=1, device="cpu") -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if domain == "unit":
        return torch.rand(shape, generator=generator, dtype=torch.float64).to(device, dtype)
    return (3 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(device, dtype)


def gradients(family, x, params, backend, seed=2, **options) -> list[Tensor]:
    """(y, log_slope, grad_x, grad_params) for random gradients of the outputs."""
    x, params = x.detach().requires_grad_(), params.detach().requires_grad_()
    y, log_slope = spline(family, x, params, backend, **options)
    generator = torch.Generator().manual_seed(seed)
    grads = [torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y) for _ in range(2)]
    return [y, log_slope, *torch.autograd.grad((y, log_slope), (x, params), grads)]


def assert_close(found: list[Tensor], wanted: list[Tensor]) -> None:
    """To float64's rounding times the conditioning: a gradient holds secants and inverse slopes of up to 1e3 each,
    twice, so 1e6 epsilon is what either side may be off; 1e-9 is four times that."""
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        assert ((a - b).abs() <= 1e-9 * (1 + b.abs())).all()


# --- values and gradients ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_bins", [1, 2, 3, 10])
def test_few_bins(family, domain, inverse, num_bins, device):
    params = draw(family, 200, num_bins=num_bins, device=device)
    x = points(200, domain=domain, device=device)
    options = {"domain": domain, "inverse": inverse}
    assert_close(
        gradients(family, x, params, "triton", **options), gradients(family, x, params, "reference", **options)
    )


def test_many_bins(family, domain, inverse, device):
    """33 leaves a chunk that holds one bin; the quadratic spline's most are 32."""
    params = draw(family, 200, num_bins=32 if family == "quadratic" else 33, device=device)
    x = points(200, domain=domain, device=device)
    options = {"domain": domain, "inverse": inverse}
    assert_close(
        gradients(family, x, params, "triton", **options), gradients(family, x, params, "reference", **options)
    )


@pytest.mark.parametrize("num_bins", [128, 256])
def test_the_most_bins(num_bins, device):
    params, x = draw("free", 200, num_bins=num_bins, device=device), points(200, device=device)
    assert_close(gradients("free", x, params, "triton"), gradients("free", x, params, "reference"))


def test_more_bins_than_that(device):
    with pytest.raises(RuntimeError, match="up to 256 bins, got 257"):
        cubic_spline(points(5, device=device), draw("steffen", 5, num_bins=257, device=device), backend="triton")
    with pytest.raises(RuntimeError, match="up to 32 bins, got 33"):
        quadratic_spline(points(5, device=device), draw("quadratic", 5, num_bins=33, device=device), backend="triton")


@pytest.mark.parametrize("num_bins", [3, 33])
@pytest.mark.parametrize("splines", [(70,), ()], ids=["own", "shared"])
def test_several_programs(splines, num_bins, device):
    """The last of which has elements to spare."""
    from cubicflow.splines.backends.triton import launch

    params, x = draw("steffen", *splines, num_bins=num_bins, device=device), points(70, device=device)
    grads = torch.randn(2, 70, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).to(device)
    spec = make_spec(x, params, family="cubic", inverse=False, domain="real", slopes="steffen")
    tuning = launch.Tuning(num_warps=1)
    found = launch.forward(x, params, spec, tuning) + launch.backward(x, params, *grads, spec, tuning)
    x, params = x.requires_grad_(), params.requires_grad_()
    outputs = spline("steffen", x, params, "reference")
    assert_close(found, [*outputs, *torch.autograd.grad(outputs, (x, params), list(grads))])


@pytest.mark.parametrize("num_bins", [1, 4])
def test_zero_params_are_the_identity(family, domain, inverse, num_bins, device):
    params = torch.zeros_like(draw(family, num_bins=num_bins, dtype=torch.float32, device=device))
    x = points(64, domain=domain, dtype=torch.float32, device=device)
    y, log_slope = spline(family, x, params, domain=domain, inverse=inverse)
    eps = torch.finfo(torch.float32).eps
    assert ((y - x).abs() <= 8 * eps * (1 + x.abs())).all()
    assert (log_slope.abs() <= 16 * eps).all()


@pytest.mark.parametrize("num_bins", [3, 33])
def test_floors(num_bins, device):
    params, x = draw("steffen", 40, num_bins=num_bins, scale=5, device=device), points(40, device=device)
    floors = {"min_bin_width": 0.3 / num_bins, "min_bin_height": 1e-6}
    for inverse in (False, True):
        options = {**floors, "inverse": inverse}
        assert_close(
            gradients("steffen", x, params, "triton", **options),
            gradients("steffen", x, params, "reference", **options),
        )


@pytest.mark.parametrize("num_bins", [1, 10])
def test_far_tails(family, inverse, num_bins, device):
    """Slope 1, and the same offset, wherever sigmoid(x) is 0 to all digits."""
    x = torch.tensor([-1e4, -200.0, -90.0, 90.0, 200.0, 1e4], device=device)
    params = draw(family, 6, num_bins=num_bins, dtype=torch.float32, device=device)
    found = gradients(family, x, params, "triton", inverse=inverse)
    wanted = gradients(family, x.double(), params.double(), "reference", inverse=inverse)
    for a, b in zip(found, wanted, strict=True):
        assert ((a - b).abs() <= 1e-4 * (1 + b.abs())).all()


# --- precision --------------------------------------------------------------------------------------------------------


def float32_errors(family, x, params, backend, **options) -> tuple[float, float]:
    """Against float64: the largest error of y, in units of what one rounding of x or y makes, (1 + |x|) slope + 1 +
    |y|; and the 99.9th percentile of the log-slope's error."""
    y, log_slope = spline(family, x, params, backend, **options)
    true_y, true_log_slope = spline(family, x.double(), params.double(), "reference", **options)
    assert y.isfinite().all()
    assert log_slope.isfinite().all()
    error = (y - true_y).abs() / ((1 + x.abs()) * true_log_slope.exp() + 1 + true_y.abs())
    slope = (log_slope - true_log_slope).abs().flatten()
    return error.max().item(), slope.kthvalue(max(1, int(0.999 * slope.numel()))).values.item()


def check_float32(family, domain, inverse, num_bins, scale, count, device):
    """At most twice the reference's errors, where an error of one rounding cannot be told from none."""
    params = draw(family, count, 1, num_bins=num_bins, scale=scale, dtype=torch.float32, device=device)
    x = points(count, 256, domain=domain, dtype=torch.float32, device=device)
    options = {"domain": domain, "inverse": inverse}
    ours = float32_errors(family, x, params, "triton", **options)
    reference = float32_errors(family, x, params, "reference", **options)
    rounding = torch.finfo(torch.float32).eps
    assert all(a <= 2 * max(b, rounding) for a, b in zip(ours, reference, strict=True)), (ours, reference)


@triton.jit
def lost_by_the_square(x_ptr, lost_ptr):
    x = tl.load(x_ptr + tl.arange(0, 1))
    tl.store(lost_ptr + tl.arange(0, 1), tl.fma(x, x, -(x * x)))


@pytest.fixture(scope="module")
def fused(device) -> None:
    """Exponentials are as good as the reference's because an fma rounds once, which interpreters before Triton 3.9
    do not know."""
    x = torch.tensor([1 + 2.0**-12], device=device)
    lost = torch.empty_like(x)
    lost_by_the_square[(1,)](x, lost)
    if lost.item() == 0:
        pytest.skip("this version of Triton's interpreter rounds an fma twice")


@pytest.mark.parametrize("scale", [0.1, 5.0])
@pytest.mark.parametrize("num_bins", [3, 10])
def test_float32_is_as_good_as_the_reference(domain, inverse, num_bins, scale, device):
    check_float32("steffen", domain, inverse, num_bins, scale, 50, device)


@pytest.mark.soak
@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("scale", [0.01, 0.1, 1.0, 3.0, 10.0, 30.0])
@pytest.mark.parametrize("num_bins", [1, 2, 3, 10, 16, 32, 33, 128])
def test_float32_everywhere(family, domain, inverse, num_bins, scale, device):
    if num_bins > (most := backend.MAX_BINS[FAMILIES[family][0]]):
        pytest.skip(f"the {family} kernel takes up to {most} bins")
    check_float32(family, domain, inverse, num_bins, scale, 250, device)


@pytest.mark.soak
@pytest.mark.parametrize("scale", [0.1, 3.0, 10.0, 30.0])
@pytest.mark.parametrize("num_bins", [1, 2, 3, 10, 16, 33])
def test_at_and_beside_the_knots(cubic, inverse, num_bins, scale, device):
    for dtype in (torch.float32, torch.float64):
        params = cubic.params(200, num_bins=num_bins, scale=scale, dtype=dtype)
        x = cubic.awkward_inputs(params, inverse)
        params, x = params.to(device)[:, None], x.to(device)
        options = {"inverse": inverse, "domain": "unit"}
        y, log_slope, *grads = gradients(cubic.slopes, x, params, "triton", **options)
        assert all(tensor.isfinite().all() for tensor in (y, log_slope, *grads))
        assert ((y >= 0) & (y <= 1)).all()
        there, back = (x, y) if inverse else (y, x)
        u = back.double().cpu()
        g, _ = cubic(u, params.double().cpu(), domain="unit")
        unit = torch.finfo(dtype).eps * (1 + cubic.steepness(params[:, 0].double().cpu(), u))
        assert ((g - there.double().cpu()).abs() <= 16 * unit).all()


# --- memory layouts ---------------------------------------------------------------------------------------------------

LAYOUTS = {
    "one for all": ((37,), ()),
    "one for each feature": ((40, 6), (6,)),
    "one for each row": ((6, 40), (6, 1)),
    "two axes shared, two not": ((3, 2, 5, 4), (3, 1, 5, 1)),
    "more axes than the kernels take": ((2, 3, 2, 3, 2), (2, 1, 2, 1, 2)),
    "x shared": ((1, 4), (5, 4)),
    "no axes": ((), ()),
    "one element": ((1,), (1,)),
    "no elements": ((0, 3), (0, 3)),
    "no elements, shared": ((0, 3), (3,)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_broadcasting(layout, device):
    shape, splines = LAYOUTS[layout]
    num_bins = 4
    params = draw("steffen", *splines, num_bins=num_bins, device=device)
    x = points(*shape, device=device)
    assert_close(gradients("steffen", x, params, "triton"), gradients("steffen", x, params, "reference"))


VIEWS = {
    "first axis": lambda tensor: tensor.transpose(0, -1).contiguous().transpose(0, -1),
    "channels of an image": lambda tensor: tensor.movedim(-1, 1).contiguous().movedim(1, -1),
    "every other number": lambda tensor: torch.stack([tensor, -tensor], -1)[..., 0],
    "expanded": lambda tensor: tensor[:, :, :1].expand(-1, -1, 5, -1),
    "transposed and cut": lambda tensor: tensor[:, 1::2].transpose(1, 2),
}


@pytest.mark.parametrize(("view", "num_bins"), [*((view, 4) for view in VIEWS), ("channels of an image", 33)])
def test_strides(view, num_bins, device):
    params = VIEWS[view](draw("free", 3, 4, 5, num_bins=num_bins, device=device))
    assert not params.is_contiguous()
    x = points(*params.shape[:-1], device=device)
    found = gradients("free", x, params, "triton")
    assert_close(found, gradients("free", x, params, "reference"))
    strided = points(*reversed(x.shape), device=device).permute(2, 1, 0)
    assert_close(gradients("free", strided, params, "triton"), gradients("free", strided, params, "reference"))


def test_gradients_that_are_one_number_or_strided(device):
    """As those of a sum, or of a transpose."""
    x, params = points(6, 5, device=device).requires_grad_(), draw("free", 6, 5, num_bins=4, device=device)

    def grad(backend):
        y, log_slope = spline("free", x, params, backend)
        loss = y.sum() + (log_slope.T * torch.arange(6.0, device=device)).sum()
        return torch.autograd.grad(loss, [x])

    assert_close(grad("triton"), grad("reference"))


def test_tensors_that_begin_anywhere(device):
    """There are kernels for tensors that begin at a multiple of 16 bytes, and others for the rest: calls of one shape
    must not mix them up."""
    numbers, many = points(44, device=device), draw("steffen", 44, num_bins=4, device=device).flatten()
    for offset in (0, 1, 2, 3, 0):
        x, params = numbers[offset:][:40], many[offset:][:400].view(40, 10)
        assert_close(gradients("steffen", x, params, "triton"), gradients("steffen", x, params, "reference"))


def test_the_gradient_of_an_image_lies_as_its_params(device):
    """So that the convolution that made them needs no copy."""
    image = draw("steffen", 2, 3, 4, num_bins=5, device=device).movedim(-1, 1).contiguous()
    params = image.movedim(1, -1).detach().requires_grad_()
    y, log_slope = spline("steffen", points(2, 3, 4, device=device), params)
    (grad,) = torch.autograd.grad((y + log_slope).sum(), [params])
    assert grad.stride() == params.stride()


# --- what is not a number ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_bins", [1, 10])
def test_nan_and_infinity_stay_in_their_own_element(family, domain, inverse, num_bins, device):
    params, x = draw(family, 9, num_bins=num_bins, device=device), points(9, domain=domain, device=device)
    options = {"domain": domain, "inverse": inverse}
    clean = gradients(family, x, params, "triton", **options)
    x[1], x[2], x[3] = torch.nan, torch.inf, -torch.inf
    params[4, 0], params[5, -1], params[6] = torch.nan, torch.nan, torch.inf
    found = gradients(family, x, params, "triton", **options)
    for a, b in zip(found, clean, strict=True):
        assert (a[[0, 7, 8]] == b[[0, 7, 8]]).all()
    y, log_slope = found[:2]
    assert y[[1, 4, 6]].isnan().all()
    assert log_slope[[1, 4, 6]].isnan().all()
    if domain == "real":
        assert y[2] == torch.inf
        assert y[3] == -torch.inf
    else:
        assert (y[[2, 3]] == torch.tensor([1.0, 0.0], device=device)).all()
        assert (log_slope[[2, 3]] == -torch.inf).all()


def test_outside_the_unit_interval(family, inverse, device):
    x = torch.tensor([-0.5, 0.0, 1.0, 1.5], dtype=torch.float64, device=device)
    params = draw(family, 4, num_bins=3, device=device)
    options = {"domain": "unit", "inverse": inverse}
    y, log_slope, grad_x, _ = gradients(family, x, params, "triton", **options)
    assert (y == torch.tensor([0.0, 0.0, 1.0, 1.0], device=device)).all()
    assert (log_slope.isinf() == torch.tensor([True, False, False, True], device=device)).all()
    assert (grad_x[[0, 3]] == 0).all()


@pytest.mark.parametrize("num_bins", [3, 33])
def test_impossible_bins(num_bins, device):
    """Logits of -inf leave a bin its floor, and huge ones overflow nothing."""
    params, x = draw("steffen", 20, num_bins=num_bins, device=device), points(20, device=device)
    params[:10, 1] = -torch.inf
    params[10:] *= 1e12
    for inverse in (False, True):
        found = spline("steffen", x, params, inverse=inverse)
        assert_close(found, spline("steffen", x, params, "reference", inverse=inverse))


# --- as other machinery sees it ---------------------------------------------------------------------------------------


def test_gradcheck(cubic, domain, inverse, smooth_inputs, device):
    """Of a spline for each element, and with free slopes of one for all."""
    x, params = smooth_inputs(cubic, 3, domain, inverse)
    splines = x.shape if cubic.slopes == "steffen" else ()
    x = x.detach().to(device).requires_grad_()
    params = params.detach().to(device).expand(*splines, -1).clone().requires_grad_()

    def function(x, params):
        return spline(cubic.slopes, x, params, domain=domain, inverse=inverse)

    # In fast mode, along one random direction: every call is an interpreted kernel.
    assert torch.autograd.gradcheck(function, (x, params), fast_mode=True)
    assert torch.autograd.gradgradcheck(function, (x, params), fast_mode=True)


@pytest.mark.parametrize("splines", [(4, 3), (3,)], ids=["own", "shared"])
def test_opcheck(splines, inverse, device):
    x, params = points(4, 3, device=device), draw("steffen", *splines, num_bins=4, device=device)
    spec = ("cubic", 4, inverse, "real", "steffen", 1e-3, 1e-3)
    torch.library.opcheck(torch.ops.cubicflow.triton_spline, (x, params, *spec))
    torch.library.opcheck(torch.ops.cubicflow.triton_spline_backward, (x, params, x, x, *spec))


@pytest.mark.parametrize("splines", [(4, 3), (3,)], ids=["own", "shared"])
def test_compiles_to_one_graph_with_its_backward(splines, inverse, device):
    torch.compiler.reset()
    x, params = points(4, 3, device=device), draw("free", *splines, num_bins=4, device=device)
    eager = gradients("free", x, params, "triton", inverse=inverse)
    x, params = x.requires_grad_(), params.requires_grad_()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def function(x, params):
        return spline("free", x, params, inverse=inverse)

    y, log_slope = function(x, params)
    generator = torch.Generator().manual_seed(2)
    grads = [torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y) for _ in range(2)]
    assert_close([y, log_slope, *torch.autograd.grad((y, log_slope), (x, params), grads)], eager)
    torch.compiler.reset()


def test_function_transforms(inverse, device):
    from torch.func import grad, jacfwd, jacrev, vmap

    x, params = points(4, 3, device=device), draw("steffen", 4, 3, num_bins=3, device=device)

    def of(backend):
        def total(x, params):
            y, log_slope = spline("steffen", x, params, backend, inverse=inverse)
            return (y * log_slope).sum()

        def value(x, params):
            return torch.stack(spline("steffen", x, params, backend, inverse=inverse))

        return [
            vmap(value)(x, params),
            vmap(value, in_dims=(0, None))(x, params[0]),
            vmap(value, in_dims=(None, 0), out_dims=1)(x[0], params),
            vmap(value, in_dims=(1, 2))(x, params.movedim(1, 2).contiguous()),
            *grad(total, argnums=(0, 1))(x, params),
            *vmap(grad(total, argnums=(0, 1)))(x, params),
            *vmap(grad(total, argnums=(0, 1)), in_dims=(0, None))(x, params[0]),
            jacrev(value, argnums=1)(x, params),
            jacrev(grad(total))(x, params),
        ]

    assert_close(of("triton"), of("reference"))
    with pytest.raises(RuntimeError, match="jvp"):
        jacfwd(lambda x: spline("steffen", x, params)[0])(x)


def test_a_cuda_graph_replays(device):
    if device != "cuda":
        pytest.skip("needs --device cuda")
    for num_bins in (10, 33):
        x = points(1000, dtype=torch.float32, device=device).requires_grad_()
        params = draw("steffen", 1000, num_bins=num_bins, dtype=torch.float32, device=device).requires_grad_()
        run = torch.cuda.make_graphed_callables(lambda x, params: spline("steffen", x, params), (x, params))
        other = draw("steffen", 1000, num_bins=num_bins, dtype=torch.float32, device=device, seed=9).requires_grad_()
        y, log_slope = run(x, other)
        grads = torch.autograd.grad((y + log_slope).sum(), [x, other])
        want = spline("steffen", x, other)
        assert (y == want[0]).all()
        assert (log_slope == want[1]).all()
        want_grads = torch.autograd.grad((want[0] + want[1]).sum(), [x, other])
        assert all((a == b).all() for a, b in zip(grads, want_grads, strict=True))


# --- choosing it ------------------------------------------------------------------------------------------------------


def test_auto_takes_it_for_cuda_tensors_alone(monkeypatch, device):
    chosen = []
    monkeypatch.setattr(dispatch.BACKENDS["triton"], "evaluate", lambda spec, x, params: chosen.append(x) or (x, x))
    x, params = points(3, device=device), draw("steffen", 3, num_bins=3, device=device)
    cubic_spline(x, params)
    assert len(chosen) == (device == "cuda")


def test_refusals(device):
    x = points(3, device=device)
    with pytest.raises(RuntimeError, match="no Triton kernel for the linear spline"):
        linear_spline(x, torch.zeros(7, dtype=x.dtype, device=device), backend="triton")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        ("import os, torch; torch.cuda.is_available = lambda: False", "no CUDA device"),
        ("import sys; sys.modules['triton'] = None", "Triton is not installed"),
    ],
    ids=["no device", "no Triton"],
)
def test_without_what_it_needs(prepare, message):
    """The package imports, auto runs, and the named backend says what is missing."""
    program = f"""
{prepare}
import torch
from cubicflow.splines import cubic_spline
x, params = torch.randn(3), torch.zeros(10)
cubic_spline(x, params)
try:
    cubic_spline(x, params, backend="triton")
except RuntimeError as error:
    print(error)
"""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert message in done.stdout
