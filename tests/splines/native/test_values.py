"""The native kernels against the reference, with every instruction set of this processor."""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import os

import numpy as np
import pytest
import torch

from cubicflow import splines
from cubicflow.splines import cubic_spline, num_params
from cubicflow.splines.backends import native
from cubicflow.splines.backends.native import launch, library
from cubicflow.splines.spec import make_spec

from ..accuracy import SCALES, assert_as_exact_as_the_reference, assert_gradients_as_exact_as_the_references
from ..cases import Case
from ..covering import covering_pairs
from .kernels import AT_LEVELS, LOADED, assert_close, needs_library, points, with_gradients

# --- the kernel's own functions --------------------------------------------------------------------------------------

BOUNDS = {"exp": 1.3, "log": 1.0, "log1p": 1.5, "sigmoid": 1.2}


@pytest.mark.parametrize("name", BOUNDS)
def test_exp_log_and_sigmoid_are_as_exact_as_vecmath_says(level, dtype, name):
    rng, count = np.random.default_rng(0), 1 << 18
    longest = 87 if dtype == torch.float32 else 708
    x = {
        "exp": lambda: np.concatenate([rng.uniform(-longest, longest + 1, count // 2), rng.uniform(-8, 8, count // 2)]),
        "log": lambda: np.concatenate(
            [np.exp(rng.uniform(-longest, longest, count // 2)), rng.uniform(0.5, 2, count // 2)]
        ),
        "log1p": lambda: np.exp(rng.uniform(-30, 0, count)),
        "sigmoid": lambda: -np.exp(rng.uniform(-5, math.log(longest), count)),
    }[name]()
    x = x.astype(str(dtype).removeprefix("torch."))
    wide = x.astype(np.float64 if dtype == torch.float32 else np.longdouble)
    if np.finfo(wide.dtype).eps > np.finfo(x.dtype).eps / 256:
        pytest.skip("this platform's long double is no wider than double")
    exact = {"exp": np.exp, "log": np.log, "log1p": np.log1p, "sigmoid": lambda x: 1 / (1 + np.exp(-x))}[name](wide)
    found = np.empty_like(x)
    probe = LOADED.handle.cubicflow_probe
    probe.argtypes = (*[ctypes.c_int] * 3, ctypes.c_int64, *[ctypes.c_void_p] * 2)
    probe(level, x.itemsize == 8, list(BOUNDS).index(name), x.size, x.ctypes.data, found.ctypes.data)
    units = np.abs(found - exact) / np.spacing(np.abs(exact).astype(x.dtype))
    assert units.max() <= BOUNDS[name]


# --- values and gradients --------------------------------------------------------------------------------------------

SHAPES = {  # shape of x, leading axes of params
    "own": ((67,), (67,)),
    "own, two axes": ((5, 13), (5, 13)),
    "features": ((41, 6), (6,)),
    "features, more than a chunk": ((9, 37), (37,)),
    "one": ((301,), ()),
    "scalar": ((), ()),
    "rows": ((7, 9), (7, 1)),
    "between": ((4, 6, 5), (4, 1, 5)),
    "x broadcasts": ((7, 1), (7, 9)),
    "x broadcasts, both ways": ((1, 6, 5), (4, 1, 5)),
}


def assert_agrees_with_the_reference(spline, x, params, **options):
    wanted = with_gradients(spline, x, params, backend="reference", **options)
    for level, at_level in AT_LEVELS.items():
        with at_level():
            found = with_gradients(spline, x, params, backend="native", **options)
        assert_close(found, wanted, about=(level, x.shape, params.shape))


@needs_library
def test_agrees_with_the_reference(spline, domain, inverse):
    for num_bins, (shape, leading), scale in covering_pairs([1, 2, 3, 8, 10, 33], list(SHAPES.values()), [0, 1, 3]):
        x, params = points(*shape, domain=domain), spline.params(*leading, num_bins=num_bins, scale=scale)
        assert_agrees_with_the_reference(spline, x, params, domain=domain, inverse=inverse)


@needs_library
@pytest.mark.parametrize("k", [64, 128, 256, 300])
def test_agrees_with_the_reference_for_many_bins(spline, inverse, k):
    for shape, leading in [SHAPES["own"], SHAPES["features"]]:
        x, params = points(*shape), spline.params(*leading, num_bins=k)
        assert_agrees_with_the_reference(spline, x, params, inverse=inverse)


def test_agrees_with_the_reference_for_given_floors(level, spline, inverse):
    x, params = points(50), spline.params(50, num_bins=4, scale=3)
    options = {"inverse": inverse, "min_bin_width": 0.2, "min_bin_height": 1e-6}
    for got, want in zip(
        spline(x, params, backend="native", **options), spline(x, params, backend="reference", **options), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


def test_a_thousand_bins():
    assert num_params("cubic", 1000, "free") == 3001
    x, params = points(20), torch.randn(20, 3001, dtype=torch.float64)
    if isinstance(LOADED, str):
        pytest.skip(LOADED)
    found = cubic_spline(x, params, slopes="free", backend="native")
    wanted = cubic_spline(x, params, slopes="free", backend="reference")
    assert_close(found, wanted)


@needs_library
@pytest.mark.parametrize(
    ("num_bins", "scale", "domain", "inverse"),
    covering_pairs([1, 2, 8, 10, 128], [0.01, 1.0, 30.0], ["unit", "real"], [False, True]),
)
def test_float32_is_as_exact_as_the_reference(spline, domain, inverse, num_bins, scale):
    about = {"domain": domain, "inverse": inverse, "num_bins": num_bins, "scale": scale}
    assert_as_exact_as_the_reference(native.evaluate, spline, **about, count=40_000, variants=AT_LEVELS)


@needs_library
@pytest.mark.soak
@pytest.mark.parametrize("num_bins", [1, 2, 3, 8, 10, 16, 32, 33, 128])
def test_float32_is_as_exact_as_the_reference_at_length(spline, domain, inverse, num_bins):
    """A million inputs per setting take minutes. The previous test has 40,000 inputs and fewer settings."""
    for scale in SCALES:
        about = {"domain": domain, "inverse": inverse, "num_bins": num_bins, "scale": scale}
        assert_as_exact_as_the_reference(native.evaluate, spline, **about, count=1_000_000, variants=AT_LEVELS)


@needs_library
@pytest.mark.parametrize(("domain", "inverse", "scale"), covering_pairs(["unit", "real"], [False, True], [1.0, 10.0]))
def test_gradients_in_float32_are_as_exact_as_the_references(spline, domain, inverse, scale):
    about = {"domain": domain, "inverse": inverse, "num_bins": 10, "scale": scale}
    assert_gradients_as_exact_as_the_references("native", spline, **about, count=20_000, variants=AT_LEVELS)


@needs_library
@pytest.mark.soak
@pytest.mark.parametrize("scale", [1.0, 10.0])
@pytest.mark.parametrize("num_bins", [2, 10, 40])
def test_gradients_in_float32_at_length(spline, domain, inverse, num_bins, scale):
    """100,000 inputs per setting take a minute. The previous test has 20,000 inputs and every pair of settings."""
    about = {"domain": domain, "inverse": inverse, "num_bins": num_bins, "scale": scale}
    assert_gradients_as_exact_as_the_references("native", spline, **about, count=100_000, variants=AT_LEVELS)


@needs_library
@pytest.mark.parametrize("leading", [(64,), ()], ids=["own", "shared"])
def test_equal_secants_share_the_gradient_of_their_minimum(inverse, dtype, leading):
    """All bins are equal. The rounding of a reciprocal must not make one bin steeper than another, as it would with 6
    bins in float32 and with 9 bins in float64."""
    x = torch.linspace(-3, 3, 64, dtype=dtype)
    for k in range(1, 20):
        params = torch.zeros(*leading, num_params("cubic", k, "free"), dtype=dtype)
        options = {"slopes": "free", "inverse": inverse}
        wanted = with_gradients(cubic_spline, x, params, backend="reference", **options)[-1]
        # A gradient from the wrong secant would be off by half its size. Rounding errors, up to K times as large for
        # slopes, are far smaller.
        bound = 16 * k * torch.finfo(dtype).eps * wanted.abs().max()
        for level, at_level in AT_LEVELS.items():
            with at_level():
                found = with_gradients(cubic_spline, x, params, backend="native", **options)[-1]
            assert (found - wanted).abs().max() <= bound, (k, level)


def test_a_spline_shared_by_many_sums_its_gradients_exactly(level, spline):
    """Sequential summation of 2^18 terms in single precision would lose three digits."""
    x, params = points(1 << 18, dtype=torch.float32), spline.params(num_bins=8, dtype=torch.float32)

    def ones(x, params):
        params = params.requires_grad_()
        y, log_slope = spline(x, params, backend="native")
        return torch.autograd.grad((y + log_slope).sum(), params)[0].double()

    exact = ones(x.double(), params.double())
    assert ((ones(x, params) - exact).abs() <= 1e-5 * exact.abs().max()).all()


# --- beside the knots of steep splines --------------------------------------------------------------------------------

# K = 8. The value lies within an ulp of a knot that a fused multiply-add puts above it, and the slope there is 1e-3.
BELOW_ITS_BIN = "44 -14 59 17 21 56 48 14 -58 60 -36 -4 -17 31 57 -25 -59 -34 -59 51 -52 22 -32 30 -36"


def assert_maps_back(spline, x, y, params):
    """Assert that the inverse x of y is as near as float32 allows.

    The sizes of bins and the position in a bin have a few roundings each, on either axis. A rounding of x counts as
    many times as the spline is steep there. The bound is that of tests/splines/test_knots.py.
    """
    again, _ = spline(x.double(), params.double(), domain="unit")
    steepness = spline.steepness(params.double(), x.double()[:, None])[:, 0]
    assert ((again - y).abs() <= 16 * torch.finfo(torch.float32).eps * (1 + steepness)).all()


def test_the_inverse_of_a_value_within_an_ulp_of_a_knot(level):
    params = torch.tensor([float(value) for value in BELOW_ITS_BIN.split()])[None]
    y = torch.tensor([0.94695354])
    x, log_slope = splines.rational_quadratic_spline(y, params, domain="unit", inverse=True, backend="native")
    assert log_slope.isfinite().all()
    assert_maps_back(Case("rational_quadratic"), x, y, params)


@needs_library
@pytest.mark.parametrize("num_bins", [1, 2, 8, 32])
def test_values_of_steep_splines_map_back(spline, num_bins):
    """At this scale of params, values of random inputs often lie within an ulp of a knot."""
    count = 40_000 if num_bins <= 8 else 10_000
    params = spline.params(count, num_bins=num_bins, scale=30, dtype=torch.float32, seed=num_bins)
    x = points(count, domain="unit", dtype=torch.float32)
    for at_level in AT_LEVELS.values():
        with at_level():
            y, log_slope = spline(x, params, domain="unit", backend="native")
            back, back_log_slope = spline(y, params, domain="unit", inverse=True, backend="native")
        assert torch.stack([log_slope, back_log_slope]).isfinite().all()
        assert ((y >= 0) & (y <= 1) & (back >= 0) & (back <= 1)).all()
        assert_maps_back(spline, back, y, params)


# --- NaN, infinities, empty tensors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("leading", [(64,), ()], ids=["own", "shared"])
def test_nan_stays_in_its_own_element(level, spline, domain, inverse, dtype, leading):
    x, params = points(64, domain=domain, dtype=dtype), spline.params(*leading, num_bins=5, dtype=dtype)
    options = {"domain": domain, "inverse": inverse, "backend": "native"}
    clean = spline(x, params, **options)
    hole = torch.arange(64) % 7 == 3
    for got, want in zip(spline(torch.where(hole, torch.nan, x), params, **options), clean, strict=True):
        assert got[hole].isnan().all()
        assert torch.equal(got[~hole], want[~hole])


@pytest.mark.parametrize("where", [0, 5, -1], ids=["width", "height", "edge slope"])
def test_nan_params_stay_with_their_element(level, dtype, inverse, where):
    x, params = points(64, dtype=dtype), torch.randn(64, 12, dtype=dtype)
    broken = params.clone()
    hole = torch.arange(64) % 7 == 3
    broken[hole, where] = torch.nan
    clean = with_gradients(cubic_spline, x, params, inverse=inverse, backend="native")
    for got, want in zip(
        with_gradients(cubic_spline, x, broken, inverse=inverse, backend="native"), clean, strict=True
    ):
        assert torch.equal(got[~hole], want[~hole])
    if where != -1:  # an edge slope affects only the edge bin
        assert cubic_spline(x, broken, inverse=inverse, backend="native")[0][hole].isnan().all()


def test_infinities_stay_infinite(level, spline, inverse, dtype):
    x = torch.tensor([torch.inf, -torch.inf, 1e30, -1e30], dtype=dtype)
    y, log_slope = spline(x, spline.params(4, num_bins=6, dtype=dtype), inverse=inverse, backend="native")
    torch.testing.assert_close(y, x, rtol=1e-6, atol=0)
    assert (log_slope.abs() <= 1e-5).all()  # tails are lines of slope 1


def test_outside_the_unit_interval(level, spline, inverse):
    x = torch.tensor([-0.5, 0.0, 1.0, 1.5], dtype=torch.float64)
    params = spline.params(num_bins=4)
    found = with_gradients(spline, x, params, domain="unit", inverse=inverse, backend="native")
    wanted = with_gradients(spline, x, params, domain="unit", inverse=inverse, backend="reference")
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)
    assert found[1].isneginf().tolist() == [True, False, False, True]


EMPTY = {  # shape of x, leading axes of params
    "own": ((0,), (0,)),
    "own, two axes": ((0, 3), (0, 3)),
    "own, inner": ((2, 0, 3), (2, 0, 3)),
    "features": ((0, 3), (3,)),
    "one": ((0, 3), ()),
    "rows": ((2, 0), (2, 1)),
    "no rows": ((0, 3), (0, 1)),
    "x broadcasts": ((), (0,)),
    "x broadcasts, one row": ((1, 3), (0, 3)),
    "x broadcasts, both ways": ((0, 1), (1, 3)),
    "nothing twice": ((0, 0), (0, 0)),
}


@needs_library
@pytest.mark.parametrize("layout", ["as it is", "expanded"])
def test_empty(spline, inverse, dtype, layout):
    """An expanded empty axis has stride 0, like an axis along which params are shared. There are no params to read."""

    def results(backend, shape, leading):
        def full(sizes):
            return [size or 1 for size in sizes] if layout == "expanded" else sizes

        x = torch.zeros(full(shape), dtype=dtype, requires_grad=True)
        params = spline.params(*full(leading), num_bins=4, dtype=dtype).requires_grad_()
        used = x.expand(shape), params.expand(*leading, -1)
        outputs = spline(*used, inverse=inverse, backend=backend)
        return [*outputs, *torch.autograd.grad(outputs, (x, params, *used), [torch.ones_like(y) for y in outputs])]

    for name, (shape, leading) in EMPTY.items():
        wanted = results("reference", shape, leading)
        for level, at_level in AT_LEVELS.items():
            with at_level():
                found = results("native", shape, leading)
            for got, want in zip(found, wanted, strict=True):
                assert (got.shape, got.dtype) == (want.shape, want.dtype), (name, level)
                assert not got.any(), (name, level)  # gradients are 0, because there are no elements


def test_the_library_reads_no_params_where_there_are_none(level):
    x, params = torch.zeros(3), torch.zeros(12)
    spec = make_spec(x, params, family="cubic", inverse=False, domain="real", slopes="steffen")
    plan = launch.make_plan(spec, x.dtype, x.shape, x.stride(), params.shape, params.stride(), None)
    assert LOADED.handle.cubicflow_forward(plan.address, level, 1, None, *[None] * 4) == 0


# --- layouts ---------------------------------------------------------------------------------------------------------


def layouts(params):
    """Return the same params (6, 5, P) in several memory layouts."""
    wide = torch.zeros(6, 5, 2 * params.shape[-1], dtype=params.dtype)
    wide[..., ::2] = params
    yield "channels first", params.permute(0, 2, 1).contiguous().permute(0, 2, 1)
    yield "splines fastest", params.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    yield "every other", wide[..., ::2]
    yield "padded", torch.cat([params, params], -1)[..., : params.shape[-1]]
    yield "transposed", params.transpose(0, 1).contiguous().transpose(0, 1)


def test_any_layout_gives_the_same_bits(level, spline, inverse, dtype):
    x, params = points(6, 5, dtype=dtype), spline.params(6, 5, num_bins=7, dtype=dtype)
    wanted = with_gradients(spline, x, params, inverse=inverse, backend="native")
    for name, laid_out in layouts(params):
        for x_laid_out in (x, x.T.contiguous().T, torch.stack([x, x], -1)[..., 0]):
            found = with_gradients(spline, x_laid_out, laid_out, inverse=inverse, backend="native")
            assert all(torch.equal(got, want) for got, want in zip(found, wanted, strict=True)), name


def test_the_gradient_has_the_layout_of_params():
    x, params = points(2, 3, 4), torch.randn(2, 12, 3, 4, dtype=torch.float64).permute(0, 2, 3, 1)
    spec = make_spec(x, params, family="cubic", inverse=False, domain="real", slopes="steffen")
    if isinstance(LOADED, str):
        pytest.skip(LOADED)
    _, grad_params = launch.backward(x, params, x, x, spec)
    assert grad_params.stride() == params.stride()


def test_expanded_params(level, spline):
    x, params = points(5, 40), spline.params(1, 40, num_bins=4)
    found = with_gradients(lambda x, p: spline(x, p.expand(5, -1, -1), backend="native"), x, params)
    wanted = with_gradients(lambda x, p: spline(x, p, backend="reference"), x, params)
    assert_close(found, wanted)


# --- threads ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def eager_threads(monkeypatch):
    """Use threads for calls of any size, and restore torch's number of threads afterwards."""
    before = torch.get_num_threads()
    monkeypatch.setattr(library, "GRAIN", 1)
    yield
    torch.set_num_threads(before)


@needs_library
@pytest.mark.parametrize(("shape", "leading"), [((5000,), (5000,)), ((2000, 20), (20,)), ((30_000,), ())])
def test_threads_give_the_same_bits(eager_threads, spline, dtype, shape, leading):
    x, params = points(*shape, dtype=dtype), spline.params(*leading, num_bins=6, dtype=dtype)
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(with_gradients(spline, x, params, backend="native"))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@needs_library
def test_a_small_batch_wakes_no_thread(eager_threads, monkeypatch):
    torch.set_num_threads(4)
    monkeypatch.setattr(library, "GRAIN", 30_000)
    assert [LOADED.threads(work) for work in (0, 50_000, 60_000, 10**9)] == [1, 1, 2, 4]


def run_in_child(queue, x, params):
    y, _ = cubic_spline(x, params, backend="native")
    queue.put((float(y.sum()), library.max_threads()))


@needs_library
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_threads_it_does_not_have(eager_threads):
    torch.set_num_threads(2)
    x, params = points(5000), torch.randn(5000, 12, dtype=torch.float64)
    y, _ = cubic_spline(x, params, backend="native")  # starts the parent's threads
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=run_in_child, args=(queue, x, params))
    child.start()
    child.join(300)
    assert child.exitcode == 0
    total, threads = queue.get()
    assert threads == 1
    assert total == pytest.approx(float(y.sum()), rel=1e-12)
