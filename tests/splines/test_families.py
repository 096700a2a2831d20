"""The tables of families and domains: all code looks up families and domains there, and no backend guesses."""

from __future__ import annotations

import inspect
from typing import get_type_hints

import pytest
import torch

from cubicflow import splines
from cubicflow.splines import dispatch, spec
from cubicflow.splines.bins import Bins, floored_softmax
from cubicflow.splines.domains import DOMAINS, Domain
from cubicflow.splines.evaluation import Shape, UnitMap
from cubicflow.splines.families import FAMILIES, Family
from cubicflow.splines.functions import SplineSettings
from cubicflow.transforms import ElementMap

X = torch.linspace(0.1, 0.9, 5, dtype=torch.float64)
PARAMS = torch.linspace(-1, 1, 10, dtype=torch.float64)


@pytest.fixture
def _fresh_specs():
    """Clear the cache of specs, so that the specs of a made-up family or domain do not outlive its test."""
    yield
    spec._known_spec.cache_clear()


def sine_bins(params, num_bins, min_bin_width, min_bin_height):
    widths = floored_softmax(params, min_bin_width)
    ones = torch.ones_like(widths)
    return Bins(widths, ones / num_bins, ones, ones)


def sine_shape(t, tau, start, end):
    """Return the shape of f(t) = sin(pi t / 2)^2, for t away from the ends."""
    f = torch.sin(torch.pi * t / 2).square()
    return Shape(f / t, (1 - f) / tau, torch.pi / 2 * torch.sin(torch.pi * t))


def sine_root(start, end, c):
    t = 2 / torch.pi * torch.asin(c.sqrt())
    return t, 1 - t


SINE = Family(1, 0, sine_bins, UnitMap(sine_shape, sine_root), floors=("min_bin_width",))


@pytest.fixture
def sine(monkeypatch, _fresh_specs):
    monkeypatch.setitem(FAMILIES, ("sine", None), SINE)


def test_a_record_is_all_that_a_new_family_needs(sine):
    assert splines.num_params("sine", 3) == 3
    params = torch.zeros(1, dtype=torch.float64)
    y, log_slope = splines.spline(X, params, "sine", domain="unit")
    torch.testing.assert_close(y, torch.sin(torch.pi * X / 2).square())
    torch.testing.assert_close(log_slope, (torch.pi / 2 * torch.sin(torch.pi * X)).log())
    back, _ = splines.spline(y, params, "sine", domain="unit", inverse=True)
    torch.testing.assert_close(back, X)
    layer = ElementMap("sine", num_bins=3, domain="unit", min_bin_width=0.1)
    assert layer.num_params == 3
    found, wanted = layer(X, PARAMS[:3])[0], splines.spline(X, PARAMS[:3], "sine", domain="unit", min_bin_width=0.1)[0]
    assert torch.equal(found, wanted)
    with pytest.raises(ValueError, match=r"family must be one of .*'sine'"):
        splines.num_params("cosine", 3)


@pytest.mark.parametrize("backend", ["native", "triton"])
def test_a_family_without_kernels_is_refused_by_them_and_run_by_the_reference(sine, backend):
    if reason := dispatch.BACKENDS[backend].unavailable():
        pytest.skip(reason)
    with pytest.raises(RuntimeError, match="kernel for the sine spline"):
        splines.spline(X, PARAMS[:3], "sine", backend=backend)
    assert splines.spline(X, PARAMS[:3], "sine")[0].isfinite().all()


def test_a_floor_that_a_family_does_not_have_is_refused(sine):
    with pytest.raises(ValueError, match="a sine spline has no min_bin_height; it has min_bin_width"):
        splines.spline(X, PARAMS, "sine", min_bin_height=0.01)
    with pytest.raises(ValueError, match="a linear spline has no min_bin_width; it has min_bin_height"):
        splines.spline(X, PARAMS, "linear", min_bin_width=0.01)


def test_the_general_function_equals_the_named_functions(case, domain, inverse):
    params = case.params(5, num_bins=4)
    found = splines.spline(X, params, case.family, case.slopes, domain=domain, inverse=inverse)
    assert all(map(torch.equal, found, case(X, params, domain=domain, inverse=inverse)))


@pytest.mark.parametrize("family", sorted({family for family, _ in FAMILIES}))
def test_a_named_function_takes_the_settings_of_its_family(family):
    (record, *_) = [record for (name, _), record in FAMILIES.items() if name == family]
    function = getattr(splines, f"{family}_spline")
    general = inspect.signature(splines.spline).parameters
    settings = set(general) - {"x", "params", "family", "slopes"}
    assert set(get_type_hints(SplineSettings)) == settings
    params = torch.zeros(5, record.num_params(4))
    for name in settings:
        if name in {"min_bin_width", "min_bin_height"} - set(record.floors):
            with pytest.raises(ValueError, match=f"a {family} spline has no {name}".replace("_", "[_-]")):
                function(X, params, **{name: 0.01})
        else:
            function(X, params, **{name: general[name].default})
    assert ("slopes" in inspect.signature(function).parameters) == ((family, None) not in FAMILIES)


def test_an_element_map_takes_every_family_on_every_domain(case, domain):
    layer = ElementMap(case.family, 4, case.slopes or "steffen", domain)
    params = case.params(5, num_bins=4)
    assert layer.num_params == params.shape[-1]
    assert all(map(torch.equal, layer(X, params), case(X, params, domain=domain)))


# --- domains ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", dispatch.BACKENDS)
def test_every_backend_refuses_an_unknown_domain(backend):
    """The domain is unknown to all backends. It is set after the checks of arguments."""
    known = spec.make_spec(X, PARAMS, family="cubic", inverse=False, domain="unit", slopes="steffen")
    unknown = known._replace(domain="torus")
    module = dispatch.BACKENDS[backend]
    for ask in (module.refuses, module.evaluate)[backend == "reference" :]:  # the reference has no refusals
        with pytest.raises(ValueError, match="domain must be one of 'real', 'unit', 'circle', got 'torus'"):
            ask(unknown, X, PARAMS)


@pytest.fixture
def torus(monkeypatch, _fresh_specs):
    """Register a domain for the reference only. Its map adds 7 to every input."""
    monkeypatch.setitem(DOMAINS, "torus", Domain("the torus", lambda x, *_: (x + 7, torch.zeros_like(x))))


@pytest.mark.parametrize("backend", ["native", "triton"])
def test_a_domain_without_kernels_is_refused_by_them_and_run_by_the_reference(torus, backend):
    if reason := dispatch.BACKENDS[backend].unavailable():
        pytest.skip(reason)
    with pytest.raises(RuntimeError, match="kernel for domain='torus'"):
        splines.cubic_spline(X, PARAMS, domain="torus", backend=backend)
    for name in ("auto", "reference"):
        assert torch.equal(splines.cubic_spline(X, PARAMS, domain="torus", backend=name)[0], X + 7)


def test_a_record_is_all_that_a_new_domain_needs_above_the_splines(torus):
    layer = ElementMap(num_bins=4, domain="torus")
    assert torch.equal(layer(X, PARAMS)[0], X + 7)
    assert torch.equal(layer.within_domain(9 * X), 9 * X)  # this domain has no bounds to clamp to
    assert splines.cubic_spline(9 * X, PARAMS, domain="torus", validate=True)[0].shape == X.shape
    with pytest.raises(ValueError, match="an affine map does not preserve the torus"):
        ElementMap("affine", domain="torus")


def test_a_domain_without_bounds_is_the_whole_line(domain):
    bounds = DOMAINS[domain].bounds
    clamped = ElementMap(domain=domain).within_domain(torch.tensor([-9.0, 9.0]))
    assert clamped.tolist() == [-9.0, 9.0] if bounds is None else clamped.tolist() == list(bounds)


def test_slopes_have_the_default_of_the_familys_function() -> None:
    x, params = torch.randn(5), torch.randn(5, splines.num_params("cubic", 4))
    assert splines.num_params("cubic", 4) == splines.num_params("cubic", 4, "steffen")
    for found, expected in zip(splines.spline(x, params, "cubic"), splines.cubic_spline(x, params), strict=True):
        assert torch.equal(found, expected)
