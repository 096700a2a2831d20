"""The checked description of one spline call, without its tensors.

A backend needs a :class:`SplineSpec` and the two tensors. The spec is hashable, so a backend can use it as the key of
compiled kernels. All checks of arguments are in this module.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cubicflow.arguments import positive
from cubicflow.splines.domains import find_domain
from cubicflow.splines.families import Family, find_family, known_slopes

DEFAULT_FLOOR = 1e-3


class SplineSpec(NamedTuple):
    """One spline call without its tensors."""

    family: str
    num_bins: int
    inverse: bool
    domain: str
    slopes: str | None
    min_bin_width: float
    min_bin_height: float


def num_params(family: str, num_bins: int, slopes: str | None = None) -> int:
    """Return the size of the params axis of a spline with ``num_bins`` bins. ``slopes`` of None are the default of the
    family's function.

    >>> num_params("cubic", 10, "steffen"), num_params("cubic", 10, "free"), num_params("quadratic", 10)
    (22, 31, 21)
    """
    return find_family(family, known_slopes(family, slopes)).num_params(positive("num_bins", num_bins))


def check_floating(name: str, value: Tensor) -> None:
    """Raise a TypeError unless ``value`` is a floating-point tensor. An integer result would lose its fraction."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}; wrap it in torch.as_tensor")
    if not value.is_floating_point():
        raise TypeError(f"{name} must be floating point, got {value.dtype}; convert it with {name}.float()")


def make_spec(
    x: Tensor,
    params: Tensor,
    family: str,
    inverse: bool,
    domain: str,
    slopes: str | None = None,
    min_bin_width: float | None = None,
    min_bin_height: float | None = None,
) -> SplineSpec:
    """Return the spec of a call, after all checks that do not read values."""
    check_floating("x", x)
    check_floating("params", params)
    if x.device != params.device:
        raise ValueError(f"x is on {x.device} and params on {params.device}; move one to the other's device")
    width = None if min_bin_width is None else _number("min_bin_width", min_bin_width)
    height = None if min_bin_height is None else _number("min_bin_height", min_bin_height)
    arguments = (x.shape, params.shape, family, bool(inverse), domain, slopes, width, height)
    if not torch.compiler.is_compiling():  # the compiler cannot trace a cache
        try:
            return _known_spec(*arguments)
        except TypeError:  # a symbolic size has no hash
            pass
    return _find_spec(*arguments)


def _find_spec(
    shape: torch.Size,
    params_shape: torch.Size,
    family: str,
    inverse: bool,
    domain: str,
    slopes: str | None,
    min_bin_width: float | None,
    min_bin_height: float | None,
) -> SplineSpec:
    periodic = find_domain(domain).periodic
    slopes = known_slopes(family, slopes)
    record = find_family(family, slopes)
    if periodic and record.make_circle is None:
        raise ValueError(
            f"a {family} spline does not support domain={domain!r}; use a cubic, quadratic or rational_quadratic spline"
        )
    num_bins = _num_bins(params_shape, record, family if slopes is None else f"{family} spline with slopes={slopes!r}")
    floors = {"min_bin_width": min_bin_width, "min_bin_height": min_bin_height}
    for name, value in floors.items():
        if value is not None and name not in record.floors:
            raise ValueError(f"a {family} spline has no {name}; it has {' and '.join(record.floors)}")
    try:
        output_shape(shape, params_shape)
    except (ValueError, RuntimeError):  # of NumPy or of torch
        raise ValueError(
            f"x of shape {tuple(shape)} does not broadcast with params of shape {tuple(params_shape)}; the last axis "
            "of params holds one spline's parameters, and all other axes must match those of x or be 1"
        ) from None
    return SplineSpec(
        family=family,
        num_bins=num_bins,
        inverse=inverse,
        domain=domain,
        slopes=slopes,
        **{name: _floor(name, value, num_bins) for name, value in floors.items()},
    )


_known_spec = lru_cache(maxsize=4096)(_find_spec)  # uncached checks take longer than a small kernel


def output_shape(shape: torch.Size, params_shape: torch.Size) -> torch.Size:
    """Return the shape of both results of a call: broadcast(x, params[..., 0]).

    >>> output_shape(torch.Size([5, 3]), torch.Size([3, 8])), output_shape(torch.Size([3]), torch.Size([5, 1, 8]))
    (torch.Size([5, 3]), torch.Size([5, 3]))
    """
    own = params_shape[:-1]
    # This shortcut exists because broadcast_shapes takes longer than a small kernel. Only the trailing axes are
    # compared: a symbolic batch size must not be compared with an axis of params.
    axes_before = len(shape) - len(own)
    if axes_before >= 0 and shape[axes_before:] == own:
        return shape
    if torch.compiler.is_compiling() or not all(type(size) is int for size in (*shape, *own)):
        both: torch.Size = torch.broadcast_shapes(shape, own)
        return both
    return torch.Size(np.broadcast_shapes(shape, own))  # torch's function imports sympy, which takes most of a second


def _num_bins(params_shape: torch.Size, family: Family, label: str) -> int:
    if not params_shape:
        raise ValueError("params must have at least one axis: the last one holds one spline's parameters")
    size = params_shape[-1]
    available = size - family.extra
    num_bins = available // family.per_bin  # divmod of a symbolic size does not compile
    if available % family.per_bin or num_bins < 1:
        examples = ", ".join(str(family.num_params(k)) for k in (1, 2, 3))
        nearest = max(1, num_bins)
        raise ValueError(
            f"the last axis of params has size {size}, but a {label} needs {family.formula} params for K >= 1 bins "
            f"({examples}, ...); {nearest} bins would need {family.num_params(nearest)}"
        )
    return num_bins


def _number(name: str, value: float) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, or None for the default; got {value!r}") from None


def _floor(name: str, value: float | None, num_bins: int) -> float:
    if value is None:
        return min(DEFAULT_FLOOR, 0.1 / num_bins)
    if not value > 0:
        raise ValueError(f"{name} must be above 0, so that every bin can be inverted; got {value}")
    if value * num_bins >= 1:
        raise ValueError(
            f"{name} x K must be below 1, got {value} x {num_bins} = {value * num_bins:g}: the floors alone would fill "
            f"the unit interval; use a {name} below {1 / num_bins:g}, fewer bins, or None for the default"
        )
    return value
