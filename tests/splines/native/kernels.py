"""The native library, one instruction set at a time, its inputs and comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch

from cubicflow.splines.backends.native import launch, library

LOADED = library.load()


HERE = [] if isinstance(LOADED, str) else [i for i in range(3) if LOADED.handle.cubicflow_levels() >> i & 1]


needs_library = pytest.mark.skipif(isinstance(LOADED, str), reason=str(LOADED))


@contextmanager
def at_level(level: int) -> Iterator[None]:
    """Use the native backend with one instruction set, forward and backward."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "load", lambda: LOADED._replace(level=level))
        yield


# Context managers that select an instruction set. A test that compares with the reference loops over them, so that it
# computes the reference once. A test with the fixture `level` would compute the reference for every instruction set.
AT_LEVELS = {library.LEVELS[level]: partial(at_level, level) for level in HERE}


def points(*shape, domain="real", dtype=torch.float64, seed=1):
    generator = torch.Generator().manual_seed(seed)
    if domain == "unit":
        return torch.rand(shape, generator=generator, dtype=torch.float64).to(dtype)
    return (3 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)


def with_gradients(function, x, params, seed=2, **options):
    """Return [y, log_slope, grad_x, grad_params] for random gradients of the outputs."""
    x, params = x.detach().requires_grad_(), params.detach().requires_grad_()
    y, log_slope = function(x, params, **options)
    generator = torch.Generator().manual_seed(seed)
    grads = [torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y.dtype) for _ in range(2)]
    return [y, log_slope, *torch.autograd.grad((y, log_slope), (x, params), grads)]


def assert_close(found, wanted, about=None):
    """Assert that values agree up to rounding. ``about`` is printed if the assertion fails.

    Bins go down to 1e-3 and slopes down to 1e-3 of the secant, so a gradient may have an error of 1e6 roundings.
    """
    for got, want in zip(found, wanted, strict=True):
        assert got.shape == want.shape, about
        if want.numel():
            assert ((got - want).abs() <= 1e-9 * want.abs().max().clamp(min=1)).all(), about
