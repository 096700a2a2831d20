"""Check that a backend in float32 is as accurate as the reference, where splines are hardest to evaluate.

A backend may have several variants of its kernels. The reference is evaluated once for all variants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from cubicflow.splines.backends import reference
from cubicflow.splines.spec import SplineSpec, make_spec

from .cases import Case, at_and_beside

Pair = tuple[Tensor, Tensor]
Variants = Mapping[str, Callable[[], AbstractContextManager[None]]]
ONE_VARIANT: Variants = {"the only kernel": nullcontext}
SCALES = [0.01, 0.1, 1.0, 3.0, 5.0, 10.0, 30.0]  # standard deviations of params
FIRST = 16  # results in the first group, which has the largest bounds


def assert_as_exact_as_the_reference(
    evaluate: Callable[[SplineSpec, Tensor, Tensor], Pair],
    case: Case,
    *,
    domain: str,
    inverse: bool,
    num_bins: int,
    scale: float,
    count: int,
    device: str = "cpu",
    variants: Variants = ONE_VARIANT,
) -> None:
    """Assert that a backend's errors are at most twice those of the reference, over about ``count`` inputs.

    The errors are the largest backward error and the 99.9th percentile of the log-slope's error. This percentile needs
    tens of thousands of inputs.
    """
    x, params = adversarial(case, num_bins, scale, domain, inverse, count)
    x, params = x.to(device), params.to(device)
    spec = make_spec(x, params, family=case.family, inverse=inverse, domain=domain, slopes=case.slopes)
    exact = reference.evaluate(spec, x.double(), params.double())
    wanted = errors(spec, x, params, exact, reference.evaluate(spec, x, params))
    for name, variant in variants.items():
        with variant():
            found = errors(spec, x, params, exact, evaluate(spec, x, params), at_least=2 * wanted[0])
        assert all(error <= 2 * of_reference for error, of_reference in zip(found, wanted, strict=True)), (
            name,
            scale,
            found,
            wanted,
        )


def assert_gradients_as_exact_as_the_references(
    backend: str,
    case: Case,
    *,
    domain: str,
    inverse: bool,
    num_bins: int,
    scale: float,
    count: int,
    device: str = "cpu",
    variants: Variants = ONE_VARIANT,
) -> None:
    """Assert that the error of a backend's gradients is at most twice that of the reference, over ``count`` random
    inputs.

    The error of an input is the largest error among its gradients of params, in units of 1 + the largest gradient. The
    99.9th percentiles of both errors are compared, which needs tens of thousands of inputs.
    """
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(count, generator=generator) if domain == "real" else torch.rand(count, generator=generator)
    params = case.params(count, num_bins=num_bins, scale=scale, dtype=torch.float32, seed=num_bins)
    x, params = x.to(device), params.to(device)

    def gradients(dtype: torch.dtype, backend: str) -> Tensor:
        leaf = params.to(dtype).requires_grad_()
        y, log_slope = case(x.to(dtype), leaf, backend=backend, domain=domain, inverse=inverse)
        return torch.autograd.grad((y.square() / 2 - log_slope).sum(), leaf)[0].double()

    exact = gradients(torch.float64, "reference")
    size = 1 + exact.abs().amax(-1)

    def error(backend: str) -> float:
        return quantile((gradients(torch.float32, backend) - exact).abs().amax(-1) / size, 0.999)

    wanted = error("reference")
    for name, variant in variants.items():
        with variant():
            found = error(backend)
        assert found <= 2 * wanted, (name, found, wanted)


def adversarial(case: Case, num_bins: int, scale: float, domain: str, inverse: bool, count: int) -> Pair:
    """Return about ``count`` points at, beside and between the knots, on the real line also far out, and params.

    The knots are the exact ones, rounded. The float32 knots of one backend would favour that backend.
    """
    generator = torch.Generator().manual_seed(1)
    rows = max(8, count // (6 * (num_bins + 1) + 16))
    params = case.params(rows, num_bins=num_bins, scale=scale, dtype=torch.float32, seed=num_bins)
    knots = case.knots(params.double(), inverse).float()
    x = torch.cat([at_and_beside(knots), torch.rand(rows, 16, generator=generator)], -1)
    if domain == "real":
        x = torch.logit(x.double()).clamp(-50, 50).float()
        x = torch.cat([x, 90 * torch.randn(rows, 4, generator=generator)], -1)
    return x, params[:, None]


def errors(
    spec: SplineSpec, x: Tensor, params: Tensor, exact: Pair, found: Pair, at_least: float = 0.0
) -> tuple[float, float]:
    """Return the largest backward error, and the 99.9th percentile of the log-slope's error, both against float64.

    Backward errors below ``at_least`` are returned as ``at_least``.
    """
    y, log_slope = (output.double() for output in found)
    assert y.isfinite().all()
    assert log_slope.isfinite().all()
    backward = largest_backward_error(spec, x.double(), params.double(), y, exact[0], at_least)
    return backward, quantile((log_slope - exact[1]).abs(), 0.999)


def largest_backward_error(
    spec: SplineSpec, x: Tensor, params: Tensor, y: Tensor, exact: Tensor, at_least: float = 0.0
) -> float:
    """Return the largest backward error, or ``at_least`` if all errors are smaller.

    The backward error of a result is the least e for which the exact map takes some x' to some y' with |x' - x| <=
    e (1 + |x|) and |y' - y| <= e (1 + |y|).

    Both x and y may move, because one alone may have to move far. Beside a knot with a slope of nearly zero, between a
    steep bin and a flat bin, an error of one ulp in x may change y by many ulps. An error of one ulp in that y may then
    belong to any x in the flat bin.

    The error with x alone moved, and the error with y alone moved, are upper bounds. Only results whose bounds exceed
    ``at_least`` need a bisection, which takes most of the time.
    """
    inverse = spec._replace(inverse=not spec.inverse)
    back, _ = reference.evaluate(inverse, y, params)
    of_y, of_x = (y - exact).abs() / (1 + y.abs()), (back - x).abs() / (1 + x.abs())
    bounds, order = torch.minimum(of_y, of_x).flatten().sort(descending=True)
    largest, start, number = at_least, 0, FIRST
    while start < len(order) and bounds[start] > largest:  # the remaining bounds are below the largest error
        bound, worst = bounds[start : start + number], order[start : start + number]
        rows = params[worst // x.shape[-1], 0]
        found = bisected(spec, *(tensor.flatten()[worst] for tensor in (x, y, exact)), rows, bound)
        largest, start, number = max(largest, found.max().item()), start + number, 4 * number
    return largest


def bisected(spec: SplineSpec, x: Tensor, y: Tensor, exact: Tensor, params: Tensor, bound: Tensor) -> Tensor:
    """Return the least e of every result by bisection, to 1/1000 of a given upper bound for each result."""
    low, high, towards = torch.zeros_like(bound), bound, torch.sign(y - exact)
    for _ in range(10):
        e = (low + high) / 2
        moved = x + towards * e * (1 + x.abs())
        there, _ = reference.evaluate(spec, moved if spec.domain == "real" else moved.clamp(0, 1), params)
        reaches = towards * (y - there) <= e * (1 + y.abs())
        low, high = torch.where(reaches, low, e), torch.where(reaches, e, high)
    return high


def quantile(values: Tensor, share: float) -> float:
    """Return a quantile without interpolation, for any number of values."""
    ordered = values.flatten().sort().values
    return float(ordered[min(int(share * ordered.numel()), ordered.numel() - 1)])
