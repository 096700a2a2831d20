"""Calls of the families that have a Triton kernel, their inputs and comparisons."""

from __future__ import annotations

import torch
from torch import Tensor

from cubicflow import splines

from ..cases import CASES

# The families that have a Triton kernel. The names of cubics are the names of their slopes.
FAMILIES = {case.slopes or case.family: (case.family, case.slopes) for case in CASES if case.record.kernel is not None}


def spline(family: str, x: Tensor, params: Tensor, backend: str = "triton", **options) -> tuple[Tensor, Tensor]:
    return splines.spline(x, params, *FAMILIES[family], backend=backend, **options)


def draw(family, *shape, num_bins, scale=1.0, dtype=torch.float64, seed=0, device="cpu") -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    kind, slopes = FAMILIES[family]
    size = splines.num_params(kind, num_bins, slopes)
    return (scale * torch.randn(*shape, size, generator=generator, dtype=torch.float64)).to(device, dtype)


def points(*shape, domain="real", dtype=torch.float64, seed=1, device="cpu") -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if domain == "unit":
        return torch.rand(shape, generator=generator, dtype=torch.float64).to(device, dtype)
    return (3 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(device, dtype)


def gradients(family, x, params, backend, seed=2, **options) -> list[Tensor]:
    """Return (y, log_slope, grad_x, grad_params) for random gradients of the outputs."""
    x, params = x.detach().requires_grad_(), params.detach().requires_grad_()
    y, log_slope = spline(family, x, params, backend, **options)
    generator = torch.Generator().manual_seed(seed)
    grads = [torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y) for _ in range(2)]
    return [y, log_slope, *torch.autograd.grad((y, log_slope), (x, params), grads)]


def assert_close(found: list[Tensor], wanted: list[Tensor]) -> None:
    """Assert that float64 values agree to 1e-9.

    A gradient has factors of secants and inverse slopes, each up to 1e3 and twice, so each side may have an error of
    1e6 epsilon. The tolerance is four times that.
    """
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        assert ((a - b).abs() <= 1e-9 * (1 + b.abs())).all()
