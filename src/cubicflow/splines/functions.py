"""The public spline functions: argument checks, precision, dispatch."""

from __future__ import annotations

import torch
from torch import Tensor

from cubicflow.splines import dispatch
from cubicflow.splines.domains import find_domain
from cubicflow.splines.spec import make_spec

_INNER = (torch.float32, torch.float64)


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
    """Monotone cubic spline, element by element: ``(y, log_slope)``, each of shape broadcast(x, params[..., 0]).

    Args:
        x: inputs, any shape; the outputs of the forward map when ``inverse``.
        params: unconstrained parameters in the last axis: K widths, K heights and the two edge slopes (2K + 2 in all),
            or with ``slopes="free"`` K widths, K heights and K + 1 slopes (3K + 1). All zeros are the identity map.
        inverse: evaluate the inverse map, with its own log-slope.
        domain: ``"real"``, the map logit . spline . sigmoid of the whole real line, exact in the far tails;
            ``"unit"``, the spline on [0, 1], outside of which y is clamped and log_slope is -inf; or ``"circle"``, the
            spline on the circle of circumference 1: x is taken modulo 1, value and slope agree where 1 meets 0, the
            first of the slopes is that of this seam, and the last of the params is a rotation in radians.
        slopes: ``"steffen"``, interior slopes from the neighbouring bins; or ``"free"``, from params of their own.
        min_bin_width, min_bin_height: floors on the bins; by default 1e-3, or 0.1 / K where that is smaller.
        validate: on the unit domain, raise a ValueError for inputs outside [0, 1]. It looks at values, so it waits for
            the device and breaks compiled graphs.
        backend: ``"auto"``, or the name of one backend, which then must be able to run.

    Computes in the widest of float32 and the dtypes of x and params. y has x's dtype; log_slope is at least float32.
    NaN stays in its own element, and on the real line ±inf maps to ±inf.

    >>> x = torch.linspace(-3, 3, 5)
    >>> y, log_slope = cubic_spline(x, torch.zeros(22))  # K = 10
    >>> torch.allclose(y, x, atol=1e-6), torch.allclose(log_slope, torch.zeros(5), atol=1e-6)
    (True, True)
    >>> params = torch.randn(5, 22, generator=torch.Generator().manual_seed(0))
    >>> y, log_slope = cubic_spline(x, params)
    >>> torch.allclose(cubic_spline(y, params, inverse=True)[0], x, atol=1e-5)
    True
    """
    return _evaluate(x, params, "cubic", slopes, inverse, domain, min_bin_width, min_bin_height, validate, backend)


def quadratic_spline(
    x: Tensor,
    params: Tensor,
    *,
    inverse: bool = False,
    domain: str = "real",
    min_bin_width: float | None = None,
    min_bin_height: float | None = None,
    validate: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Monotone quadratic spline: the integral of a piecewise-linear density. The arguments are those of
    :func:`cubic_spline`; params are K widths and K + 1 vertex densities (2K + 1).

    >>> quadratic_spline(torch.tensor(0.25), torch.zeros(9), domain="unit")
    (tensor(0.2500), tensor(0.))
    """
    return _evaluate(x, params, "quadratic", None, inverse, domain, min_bin_width, min_bin_height, validate, backend)


def linear_spline(
    x: Tensor,
    params: Tensor,
    *,
    inverse: bool = False,
    domain: str = "real",
    min_bin_height: float | None = None,
    validate: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Monotone linear spline with bins of equal width. The arguments are those of :func:`cubic_spline`; params are K
    heights.

    >>> linear_spline(torch.tensor(0.25), torch.zeros(4), domain="unit")
    (tensor(0.2500), tensor(0.))
    """
    return _evaluate(x, params, "linear", None, inverse, domain, None, min_bin_height, validate, backend)


def rational_quadratic_spline(
    x: Tensor,
    params: Tensor,
    *,
    inverse: bool = False,
    domain: str = "real",
    min_bin_width: float | None = None,
    min_bin_height: float | None = None,
    validate: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Monotone rational-quadratic spline. The arguments are those of :func:`cubic_spline`; params are K widths,
    K heights and K + 1 slopes (3K + 1).

    >>> rational_quadratic_spline(torch.tensor(0.25), torch.zeros(13), domain="unit")
    (tensor(0.2500), tensor(0.))
    """
    return _evaluate(
        x, params, "rational_quadratic", None, inverse, domain, min_bin_width, min_bin_height, validate, backend
    )


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
    """Monotone spline of any family, by its name. The other functions are this one with the family filled in.

    Args:
        family, slopes: as in :func:`num_params`; slopes is None for every family but the cubic.

    All other arguments are those of :func:`cubic_spline`. The linear spline, whose bins are of equal width, refuses
    ``min_bin_width``.

    >>> spline(torch.tensor(0.25), torch.zeros(10), "cubic", "steffen", domain="unit")
    (tensor(0.2500), tensor(0.))
    """
    return _evaluate(x, params, family, slopes, inverse, domain, min_bin_width, min_bin_height, validate, backend)


def _evaluate(
    x: Tensor,
    params: Tensor,
    family: str,
    slopes: str | None,
    inverse: bool,
    domain: str,
    min_bin_width: float | None,
    min_bin_height: float | None,
    validate: bool,
    backend: str,
) -> tuple[Tensor, Tensor]:
    dispatch.check_backend(backend)
    spec = make_spec(x, params, family, inverse, domain, slopes, min_bin_width, min_bin_height)
    if validate and (bounds := find_domain(domain).bounds) is not None:
        check_inside(x, *bounds)
    dtype = inner_dtype(x, params)
    if x.dtype == params.dtype == dtype:  # asking is faster than to(), which small batches notice
        return dispatch.evaluate(spec, x, params, backend)
    y, log_slope = dispatch.evaluate(spec, x.to(dtype), params.to(dtype), backend)
    return y.to(x.dtype), log_slope


def inner_dtype(x: Tensor, params: Tensor) -> torch.dtype:
    """The precision a call is computed in: the widest of float32 and the dtypes of x and params.

    >>> inner_dtype(torch.zeros(3), torch.zeros(3, 8, dtype=torch.bfloat16))
    torch.float32
    """
    if x.dtype == params.dtype and x.dtype in _INNER:  # as nearly all are; small batches notice the general answer
        return x.dtype
    return torch.promote_types(torch.promote_types(x.dtype, params.dtype), torch.float32)


def check_inside(x: Tensor, low: float | Tensor, high: float | Tensor) -> None:
    """Raise unless every element of x is in [low, high]. NaN is let through: it marks its own element."""
    outside = (x < low) | (x > high)
    if bool(outside.any()):
        raise ValueError(
            f"{int(outside.sum())} of {x.numel()} inputs lie outside the spline's domain (they run from "
            f"{float(x.min()):g} to {float(x.max()):g}); rescale them, use domain='real', or leave validate=False to "
            "have them clamped with a log-slope of -inf"
        )
