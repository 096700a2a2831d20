"""Compiled code with its backward pass, for every family. Compilation takes minutes."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.soak


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_inductor_agrees_with_eager(case, domain, inverse, shared):
    """Each element has its own spline, or all elements share one."""
    x = torch.rand(64, dtype=torch.float64)
    x = x if domain == "unit" else 8 * x - 4
    params = case.params(num_bins=3) if shared else case.params(64, num_bins=3)

    def function(x, params):
        return case(x, params, domain=domain, inverse=inverse, backend="reference")

    results = []
    for f in (torch.compile(function, fullgraph=True), function):
        leaves = [x.clone().requires_grad_(), params.clone().requires_grad_()]
        y, log_slope = f(*leaves)
        results.append((y, log_slope, *torch.autograd.grad((y * y + log_slope).sum(), leaves)))
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)  # fused arithmetic rounds differently
