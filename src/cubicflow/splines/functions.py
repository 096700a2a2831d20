"""The public spline functions. They check arguments, choose the precision and dispatch to a backend."""

from __future__ import annotations

from typing import TypedDict, Unpack

import torch
from torch import Tensor

from cubicflow.splines import dispatch
from cubicflow.splines.domains import find_domain
from cubicflow.splines.spec import make_spec

_INNER = (torch.float32, torch.float64)


class SplineSettings(TypedDict, total=False):
    """Settings of every spline, described in :func:`cubic_spline`."""

    inverse: bool
    domain: str
    min_bin_width: float | None
    min_bin_height: float | None
    validate: bool
    backend: str


def cubic_spline(
    x: Tensor,
    params: Tensor,
    *,
    inverse: bool = False,
    domain: str = "real",
    slopes: str = "steffen",
    min_bin_width: float | None = None,
    min_bin_height: float | None = None,
    validate: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Evaluate a monotone cubic spline, element by element.

    Return ``(y, log_slope)``, each of shape broadcast(x, params[..., 0]).

    Args:
        x: inputs of any shape. With ``inverse``, outputs of the forward map.
        params: unconstrained parameters in the last axis. ``slopes="steffen"`` takes K widths, K heights and two edge
            slopes (2K + 2). ``slopes="free"`` takes K widths, K heights and K + 1 slopes (3K + 1). All-zero params are
            the identity map.
        inverse: evaluate the inverse map and its log-slope.
        domain: ``"real"``, ``"unit"`` or ``"circle"``. ``"real"`` is the map logit . spline . sigmoid on the whole real
            line, exact in the far tails. ``"unit"`` is the spline on [0, 1]; outside, y is clamped and log_slope is
            -inf. ``"circle"`` is the spline on the circle of circumference 1. x is taken modulo 1. Value and slope
            agree at the seam, where 1 meets 0. The first slope param is the slope at the seam, and the last param is a
            rotation in radians.
        slopes: ``"steffen"`` computes interior slopes from the neighbouring bins. ``"free"`` takes them from params.
        min_bin_width, min_bin_height: floors on the bins. The default is 1e-3, or 0.1 / K if that is smaller.
        validate: on the unit domain, raise a ValueError for inputs outside [0, 1]. The check reads values, so it
            synchronises with the device and breaks compiled graphs.
        backend: ``"auto"``, or the name of a backend. A named backend that cannot run the call raises a RuntimeError.

    The computation runs in the widest of float32 and the dtypes of x and params. y has x's dtype, and log_slope is at
    least float32. NaN stays in its own element. On the real line ±inf maps to ±inf.

    >>> x = torch.linspace(-3, 3, 5)
    >>> y, log_slope = cubic_spline(x, torch.zeros(22))  # K = 10
    >>> torch.allclose(y, x, atol=1e-6), torch.allclose(log_slope, torch.zeros(5), atol=1e-6)
    (True, True)
    >>> params = torch.randn(5, 22, generator=torch.Generator().manual_seed(0))
    >>> y, log_slope = cubic_spline(x, params)
    >>> torch.allclose(cubic_spline(y, params, inverse=True)[0], x, atol=1e-5)
    True
    """
    return spline(
        x,
        params,
        "cubic",
        slopes,
        inverse=inverse,
        domain=domain,
        min_bin_width=min_bin_width,
        min_bin_height=min_bin_height,
        validate=validate,
        backend=backend,
    )


def quadratic_spline(x: Tensor, params: Tensor, **settings: Unpack[SplineSettings]) -> tuple[Tensor, Tensor]:
    """Evaluate a monotone quadratic spline: the integral of a piecewise-linear density.

    params are K widths and K + 1 vertex densities (2K + 1). The other arguments are as in :func:`cubic_spline`.

    >>> quadratic_spline(torch.tensor(0.25), torch.zeros(9), domain="unit")
    (tensor(0.2500), tensor(0.))
    """
    return spline(x, params, "quadratic", **settings)


def linear_spline(x: Tensor, params: Tensor, **settings: Unpack[SplineSettings]) -> tuple[Tensor, Tensor]:
    """Evaluate a monotone linear spline with bins of equal width.

    params are K heights. The other arguments are as in :func:`cubic_spline`.

    >>> linear_spline(torch.tensor(0.25), torch.zeros(4), domain="unit")
    (tensor(0.2500), tensor(0.))
    """
    return spline(x, params, "linear", **settings)


def rational_quadratic_spline(x: Tensor, params: Tensor, **settings: Unpack[SplineSettings]) -> tuple[Tensor, Tensor]:
    """Evaluate a monotone rational-quadratic spline.

    params are K widths, K heights and K + 1 slopes (3K + 1). The other arguments are as in :func:`cubic_spline`.

    >>> rational_quadratic_spline(torch.tensor(0.25), torch.zeros(13), domain="unit")
    (tensor(0.2500), tensor(0.))
    """
    return spline(x, params, "rational_quadratic", **settings)


def spline(
    x: Tensor,
    params: Tensor,
    family: str,
    slopes: str | None = None,
    *,
    inverse: bool = False,
    domain: str = "real",
    min_bin_width: float | None = None,
    min_bin_height: float | None = None,
    validate: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Evaluate a monotone spline of the named family. The other functions call this one with a fixed family.

    Args:
        family, slopes: as in :func:`num_params`.

    All other arguments are as in :func:`cubic_spline`. The linear spline has bins of equal width and refuses
    ``min_bin_width``.

    >>> spline(torch.tensor(0.25), torch.zeros(10), "cubic", "steffen", domain="unit")
    (tensor(0.2500), tensor(0.))
    """
    dispatch.check_backend(backend)
    spec = make_spec(x, params, family, inverse, domain, slopes, min_bin_width, min_bin_height)
    if validate and (bounds := find_domain(domain).bounds) is not None:
        check_inside(x, *bounds)
    dtype = inner_dtype(x, params)
    if x.dtype == params.dtype == dtype:  # this test is faster than to(); the difference shows in small batches
        return dispatch.evaluate(spec, x, params, backend)
    y, log_slope = dispatch.evaluate(spec, x.to(dtype), params.to(dtype), backend)
    return y.to(x.dtype), log_slope


def inner_dtype(x: Tensor, params: Tensor) -> torch.dtype:
    """Return the dtype of a call's computation: the widest of float32 and the dtypes of x and params.

    >>> inner_dtype(torch.zeros(3), torch.zeros(3, 8, dtype=torch.bfloat16))
    torch.float32
    """
    if x.dtype == params.dtype and x.dtype in _INNER:  # the common case; promote_types is slow for small batches
        return x.dtype
    return torch.promote_types(torch.promote_types(x.dtype, params.dtype), torch.float32)


def check_inside(x: Tensor, low: float | Tensor, high: float | Tensor) -> None:
    """Raise a ValueError unless every element of x is in [low, high]. NaN passes the check."""
    outside = (x < low) | (x > high)
    if bool(outside.any()):
        raise ValueError(
            f"{int(outside.sum())} of {x.numel()} inputs lie outside the spline's domain (inputs range from "
            f"{float(x.min()):g} to {float(x.max()):g}); rescale the inputs, use domain='real', or pass validate=False "
            "to clamp them with a log-slope of -inf"
        )
