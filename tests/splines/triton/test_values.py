"""The Triton kernels against the reference: in Triton's interpreter on the CPU, or compiled with ``--device cuda``."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from tests.helpers.triton_interpreter import MANY, SMALL_CHUNKS

from cubicflow.splines import cubic_spline
from cubicflow.splines.backends import triton as backend
from cubicflow.splines.spec import make_spec

from ..accuracy import SCALES, assert_as_exact_as_the_reference, assert_gradients_as_exact_as_the_references
from ..cases import Case
from ..covering import covering_pairs
from .calls import FAMILIES, assert_close, draw, gradients, points, spline

triton = pytest.importorskip("triton", reason="Triton is for Linux only")
tl = pytest.importorskip("triton.language")
# The interpreter computes with NumPy, which warns about exp2(-inf) and about 0 / 0 in branches that are not taken.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

DOMAINS, DIRECTIONS = ["unit", "real"], [False, True]
NAMES = list(FAMILIES)
EACH_ONCE = [("unit", False), ("real", True), ("unit", True), ("real", False)]  # domains and directions


# --- values and gradients ---------------------------------------------------------------------------------------------


def assert_agrees_with_the_reference(name, x, params, **options):
    found, wanted = (gradients(name, x, params, backend, **options) for backend in ("triton", "reference"))
    assert_close(found, wanted)


# The interpreter takes up to a second per setting, whatever the number of elements.
@pytest.mark.parametrize(("num_bins", "domain", "inverse"), covering_pairs([1, 2, 3, 10], DOMAINS, DIRECTIONS), ids=str)
def test_few_bins(family, domain, inverse, num_bins, device):
    params = draw(family, 200, num_bins=num_bins, device=device)
    x = points(200, domain=domain, device=device)
    assert_agrees_with_the_reference(family, x, params, domain=domain, inverse=inverse)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(("family", "domain", "inverse"), covering_pairs(NAMES, DOMAINS, DIRECTIONS))
def test_many_bins(family, domain, inverse, device):
    params = draw(family, 200, num_bins=MANY, device=device)
    x = points(200, domain=domain, device=device)
    assert_agrees_with_the_reference(family, x, params, domain=domain, inverse=inverse)


@pytest.mark.parametrize(
    ("family", "domain", "inverse"), [(name, *each) for name, each in zip(NAMES, EACH_ONCE, strict=True)]
)
def test_chunks_of_the_usual_size(family, domain, inverse, device):
    """With 33 bins, the last chunk has one bin."""
    params = draw(family, 200, num_bins=33, device=device)
    x = points(200, domain=domain, device=device)
    assert_agrees_with_the_reference(family, x, params, domain=domain, inverse=inverse)


@pytest.mark.parametrize(
    ("name", "num_bins"),
    [
        ("free", 128),
        ("quadratic", 128),
        pytest.param("free", 256, marks=pytest.mark.soak),  # more chunks, otherwise as with 128 bins
        pytest.param("quadratic", 256, marks=pytest.mark.soak),
    ],
)
def test_hundreds_of_bins(name, num_bins, device):
    params, x = draw(name, 200, num_bins=num_bins, device=device), points(200, device=device)
    assert_agrees_with_the_reference(name, x, params)


def test_too_many_bins_are_refused(device):
    with pytest.raises(RuntimeError, match="at most 256 bins, got 257"):
        cubic_spline(points(5, device=device), draw("steffen", 5, num_bins=257, device=device), backend="triton")


@pytest.mark.parametrize(
    ("name", "splines", "num_bins"), covering_pairs(["steffen", "quadratic"], [(70,), ()], [3, MANY]), ids=str
)
def test_several_programs(name, splines, num_bins, device):
    """The last program has more elements than inputs."""
    from cubicflow.splines.backends.triton import launch

    params, x = draw(name, *splines, num_bins=num_bins, device=device), points(70, device=device)
    grads = torch.randn(2, 70, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).to(device)
    kind, slopes = FAMILIES[name]
    spec = make_spec(x, params, family=kind, inverse=False, domain="real", slopes=slopes)
    tuning = launch.Tuning(num_warps=1, **(SMALL_CHUNKS if launch.INTERPRETED else {}))
    found = launch.forward(x, params, spec, tuning) + launch.backward(x, params, *grads, spec, tuning)
    x, params = x.requires_grad_(), params.requires_grad_()
    outputs = spline(name, x, params, "reference")
    assert_close(found, [*outputs, *torch.autograd.grad(outputs, (x, params), list(grads))])


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(
    ("family", "num_bins", "domain", "inverse"), covering_pairs(NAMES, [1, 4, MANY], DOMAINS, DIRECTIONS), ids=str
)
def test_zero_params_are_the_identity(family, domain, inverse, num_bins, device):
    params = torch.zeros_like(draw(family, num_bins=num_bins, dtype=torch.float32, device=device))
    x = points(64, domain=domain, dtype=torch.float32, device=device)
    y, log_slope = spline(family, x, params, domain=domain, inverse=inverse)
    eps = torch.finfo(torch.float32).eps
    assert ((y - x).abs() <= 8 * eps * (1 + x.abs())).all()
    assert (log_slope.abs() <= 16 * eps).all()


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(
    ("name", "num_bins", "inverse"), covering_pairs(["steffen", "quadratic"], [3, MANY], DIRECTIONS), ids=str
)
def test_floors(name, num_bins, inverse, device):
    params, x = draw(name, 40, num_bins=num_bins, scale=5, device=device), points(40, device=device)
    floors = {"min_bin_width": 0.3 / num_bins, "min_bin_height": 1e-6}
    assert_agrees_with_the_reference(name, x, params, **floors, inverse=inverse)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(("family", "num_bins", "inverse"), covering_pairs(NAMES, [1, 10, MANY], DIRECTIONS), ids=str)
def test_far_tails(family, inverse, num_bins, device):
    """The slope is 1 and the offset is constant wherever sigmoid(x) rounds to 0."""
    x = torch.tensor([-1e4, -200.0, -90.0, 90.0, 200.0, 1e4], device=device)
    params = draw(family, 6, num_bins=num_bins, dtype=torch.float32, device=device)
    found = gradients(family, x, params, "triton", inverse=inverse)
    wanted = gradients(family, x.double(), params.double(), "reference", inverse=inverse)
    for a, b in zip(found, wanted, strict=True):
        assert ((a - b).abs() <= 1e-4 * (1 + b.abs())).all()


# --- precision --------------------------------------------------------------------------------------------------------


@triton.jit
def lost_by_the_square(x_ptr, lost_ptr):
    x = tl.load(x_ptr + tl.arange(0, 1))
    tl.store(lost_ptr + tl.arange(0, 1), tl.fma(x, x, -(x * x)))


@pytest.fixture(scope="module")
def fused(device) -> None:
    """Skip if multiplications and additions are not fused, as in interpreters before Triton 3.9.

    The exponentials are as accurate as the reference's only if an fma rounds once.
    """
    x = torch.tensor([1 + 2.0**-12], device=device)
    lost = torch.empty_like(x)
    lost_by_the_square[(1,)](x, lost)
    if lost.item() == 0:
        pytest.skip("this version of Triton's interpreter rounds an fma twice")


@pytest.mark.parametrize(
    ("domain", "inverse", "num_bins", "scale"), covering_pairs(DOMAINS, DIRECTIONS, [3, 10], [0.1, 5.0]), ids=str
)
def test_float32_is_as_exact_as_the_reference(steffen, domain, inverse, num_bins, scale, device):
    about = {"domain": domain, "inverse": inverse, "num_bins": num_bins, "scale": scale}
    assert_as_exact_as_the_reference(backend.evaluate, steffen, **about, count=20_000, device=device)


@pytest.mark.soak
@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("num_bins", [1, 2, 3, 8, 10, 16, 32, 33, 128])
def test_float32_everywhere(c1, domain, inverse, num_bins, device):
    """A thousand settings with 100,000 inputs each are slow in the interpreter."""
    for scale in SCALES:
        about = {"domain": domain, "inverse": inverse, "num_bins": num_bins, "scale": scale}
        assert_as_exact_as_the_reference(backend.evaluate, c1, **about, count=100_000, device=device)


@pytest.mark.parametrize(("num_bins", "domain", "inverse"), covering_pairs([2, 10], DOMAINS, DIRECTIONS), ids=str)
def test_float32_gradients_are_as_exact_as_the_references(c1, domain, inverse, num_bins, device):
    about = {"domain": domain, "inverse": inverse, "num_bins": num_bins, "scale": 10.0}
    assert_gradients_as_exact_as_the_references("triton", c1, **about, count=20_000, device=device)


@pytest.mark.parametrize(
    ("name", "domain", "inverse"), [(name, *each) for name, each in zip(NAMES, EACH_ONCE, strict=True)]
)
def test_float32_gradients_of_many_bins_are_as_exact_as_the_references(name, domain, inverse, device):
    about = {"domain": domain, "inverse": inverse, "num_bins": 40, "scale": 10.0}
    assert_gradients_as_exact_as_the_references("triton", Case(*FAMILIES[name]), **about, count=5_000, device=device)


@pytest.mark.soak
@pytest.mark.parametrize("num_bins", [2, 10, 40])
def test_float32_gradients_of_many_inputs_are_as_exact_as_the_references(c1, domain, inverse, num_bins, device):
    """40,000 inputs with 40 bins take ten seconds in the interpreter. The previous tests have fewer inputs and fewer
    settings.
    """
    about = {"domain": domain, "inverse": inverse, "num_bins": num_bins, "scale": 10.0}
    assert_gradients_as_exact_as_the_references("triton", c1, **about, count=40_000, device=device)


@pytest.mark.soak
@pytest.mark.parametrize("num_bins", [1, 2, 3, 10, 16, 33])
def test_at_and_beside_the_knots(cubic, inverse, num_bins, device):
    for scale, dtype in product((0.1, 3.0, 10.0, 30.0), (torch.float32, torch.float64)):
        params = cubic.params(200, num_bins=num_bins, scale=scale, dtype=dtype)
        x = cubic.awkward_inputs(params, inverse)
        params, x = params.to(device)[:, None], x.to(device)
        options = {"inverse": inverse, "domain": "unit"}
        y, log_slope, *grads = gradients(cubic.slopes, x, params, "triton", **options)
        assert all(tensor.isfinite().all() for tensor in (y, log_slope, *grads)), (scale, dtype)
        assert ((y >= 0) & (y <= 1)).all(), (scale, dtype)
        there, back = (x, y) if inverse else (y, x)
        u = back.double().cpu()
        g, _ = cubic(u, params.double().cpu(), domain="unit")
        unit = torch.finfo(dtype).eps * (1 + cubic.steepness(params[:, 0].double().cpu(), u))
        assert ((g - there.double().cpu()).abs() <= 16 * unit).all(), (scale, dtype)


# --- NaN and infinities -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(
    ("family", "num_bins", "domain", "inverse"), covering_pairs(NAMES, [1, 10, MANY], DOMAINS, DIRECTIONS), ids=str
)
def test_nan_and_infinity_stay_in_their_own_element(family, domain, inverse, num_bins, device):
    """The other elements agree with the reference, which is evaluated without NaN and infinities."""
    params, x = draw(family, 9, num_bins=num_bins, device=device), points(9, domain=domain, device=device)
    options = {"domain": domain, "inverse": inverse}
    clean = gradients(family, x, params, "reference", **options)
    x[1], x[2], x[3] = torch.nan, torch.inf, -torch.inf
    params[4, 0], params[5, -1], params[6] = torch.nan, torch.nan, torch.inf
    found = gradients(family, x, params, "triton", **options)
    assert_close([each[[0, 7, 8]] for each in found], [each[[0, 7, 8]] for each in clean])
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


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("num_bins", [3, MANY])
def test_impossible_bins(num_bins, device):
    """A bin with logit -inf has the size of its floor. Huge logits do not overflow."""
    params, x = draw("steffen", 20, num_bins=num_bins, device=device), points(20, device=device)
    params[:10, 1] = -torch.inf
    params[10:] *= 1e12
    for inverse in (False, True):
        found = spline("steffen", x, params, inverse=inverse)
        assert_close(found, spline("steffen", x, params, "reference", inverse=inverse))
