"""The choice of the backend of a call."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.autograd.forward_ad import dual_level, make_dual, unpack_dual

from cubicflow.splines import cubic_spline, dispatch

X, PARAMS = torch.rand(3), torch.zeros(10)


def fake(unavailable=None, refusal=None):
    calls = []

    def evaluate(spec, x, params):
        calls.append(spec)
        return torch.full_like(x, 7), torch.zeros_like(x)

    return SimpleNamespace(
        unavailable=lambda: unavailable,
        refuses=lambda spec, x, params: refusal,
        evaluate=evaluate,
        calls=calls,
    )


@pytest.fixture
def install(monkeypatch):
    """Add a fake backend, which "auto" takes on the CPU, or on another device."""

    def put(backend, device="cpu"):
        monkeypatch.setattr(dispatch, "BACKENDS", {"fake": backend, **dispatch.BACKENDS})
        monkeypatch.setattr(dispatch, "FAST", {**dispatch.FAST, device: "fake"})
        return backend

    return put


@pytest.mark.parametrize("name", ["fake", "auto"])
def test_a_backend_that_can_run_runs(install, name):
    backend = install(fake())
    y, _ = cubic_spline(X, PARAMS, backend=name, inverse=True, domain="unit", slopes="steffen")
    assert (y == 7).all()
    (spec,) = backend.calls
    assert (spec.family, spec.num_bins, spec.inverse, spec.domain, spec.slopes) == ("cubic", 4, True, "unit", "steffen")
    assert (spec.min_bin_width, spec.min_bin_height) == (1e-3, 1e-3)
    assert hash(spec) == hash(spec)


def test_a_backend_for_another_device_runs_when_named_and_is_not_chosen_by_auto(install):
    backend = install(fake(), "cuda")
    cubic_spline(X, PARAMS, backend="auto")
    assert backend.calls == []
    y, _ = cubic_spline(X, PARAMS, backend="fake")
    assert (y == 7).all()


@pytest.mark.parametrize(
    "backend", [fake(unavailable="no such device"), fake(refusal="no such device")], ids=["unavailable", "refuses"]
)
def test_a_backend_that_cannot_run_raises_if_named_and_is_skipped_by_auto(install, backend):
    install(backend)
    with pytest.raises(RuntimeError, match=r"backend='fake' cannot run this call: no such device.*'auto'"):
        cubic_spline(X, PARAMS, backend="fake")
    y, _ = cubic_spline(X, PARAMS, backend="auto")
    assert ((y - X).abs() <= 1e-6).all()  # zero params are the identity
    assert backend.calls == []


def test_auto_leaves_forward_mode_to_the_reference(install):
    backend = install(fake())
    with dual_level():
        y, log_slope = cubic_spline(make_dual(X, torch.ones(3)), PARAMS)
        tangent = unpack_dual(y).tangent
    assert backend.calls == []
    torch.testing.assert_close(tangent, log_slope.exp())


def test_unknown_names_are_refused_with_the_known_ones(install):
    install(fake())
    with pytest.raises(ValueError, match=r"backend must be one of 'auto', 'fake'.*'reference', got 'nope'"):
        cubic_spline(X, PARAMS, backend="nope")


def test_backends_get_one_precision(install):
    seen = []
    backend = fake()
    backend.refuses = lambda spec, x, params: seen.append((x.dtype, params.dtype))
    install(backend)
    cubic_spline(X.bfloat16(), PARAMS.half(), backend="fake")
    cubic_spline(X, PARAMS.double(), backend="fake")
    assert seen == [(torch.float32, torch.float32), (torch.float64, torch.float64)]


def test_the_default_floor_shrinks_with_many_bins(install):
    backend = install(fake())
    cubic_spline(X, torch.zeros(2 * 500 + 2))
    assert backend.calls[0].min_bin_width == backend.calls[0].min_bin_height == 0.1 / 500


def test_the_reference_takes_every_call():
    reference = dispatch.BACKENDS["reference"]
    assert reference.unavailable() is None
    assert reference.refuses(None, X, PARAMS) is None
