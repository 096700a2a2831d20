"""What one spline call asks for, checked once and free of tensors.

A :class:`SplineSpec` is all a backend needs beside the two tensors: it is hashable, so a backend can key compiled
kernels on it, and every message about a wrong argument is written here and nowhere else.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

DOMAINS = ("real", "unit")
DEFAULT_FLOOR = 1e-3


class ParamCount(NamedTuple):
    """The size of the params axis as ``per_bin * K + extra``."""

    per_bin: int
    extra: int

    def size(self, num_bins: int) -> int:
        return self.per_bin * num_bins + self.extra

    def __str__(self) -> str:
        bins = "K" if self.per_bin == 1 else f"{self.per_bin}K"
        return bins if self.extra == 0 else f"{bins} + {self.extra}"


# (family, slopes) -> how many params a spline of K bins takes.
PARAM_COUNTS = {
    ("cubic", "steffen"): ParamCount(2, 2),
    ("cubic", "free"): ParamCount(3, 1),
    ("quadratic", None): ParamCount(2, 1),
    ("linear", None): ParamCount(1, 0),
    ("rational_quadratic", None): ParamCount(3, 1),
}


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
    """The size of the params axis of a spline with ``num_bins`` bins.

    >>> num_params("cubic", 10, "steffen"), num_params("cubic", 10, "free"), num_params("quadratic", 10)
    (22, 31, 21)
    """
    if isinstance(num_bins, bool) or not isinstance(num_bins, int):
        raise TypeError(f"num_bins must be an int, got {type(num_bins).__name__}")
    if num_bins < 1:
        raise ValueError(f"num_bins must be at least 1, got {num_bins}")
    return _param_count(family, slopes).size(num_bins)


def check_floating(name: str, value: Tensor) -> None:
    """Whole numbers are refused: a result of their type would lose its fraction."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}; wrap it in torch.as_tensor")
    if not value.is_floating_point():
        raise TypeError(f"{name} must be floating point, got {value.dtype}; convert it with {name}.float()")


def make_spec(
    x: Tensor,
    params: Tensor,
    *,
    family: str,
    inverse: bool,
    domain: str,
    slopes: str | None = None,
    min_bin_width: float | None = None,
    min_bin_height: float | None = None,
) -> SplineSpec:
    """Check everything about a call that can be checked without looking at values."""
    check_floating("x", x)
    check_floating("params", params)
    if x.device != params.device:
        raise ValueError(f"x is on {x.device} and params on {params.device}; move one to the other's device")
    width = None if min_bin_width is None else _number("min_bin_width", min_bin_width)
    height = None if min_bin_height is None else _number("min_bin_height", min_bin_height)
    arguments = (x.shape, params.shape, family, bool(inverse), domain, slopes, width, height)
    if not torch.compiler.is_compiling():  # which takes no caches
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
    if domain not in DOMAINS:
        raise ValueError(f"domain must be one of {', '.join(map(repr, DOMAINS))}, got {domain!r}")
    num_bins = _num_bins(params_shape, family, slopes)
    try:
        output_shape(shape, params_shape)
    except RuntimeError:
        raise ValueError(
            f"x of shape {tuple(shape)} does not broadcast with params of shape {tuple(params_shape)}, "
            "whose last axis holds one spline's parameters; all its other axes must match x's or be 1"
        ) from None
    return SplineSpec(
        family=family,
        num_bins=num_bins,
        inverse=inverse,
        domain=domain,
        slopes=slopes,
        min_bin_width=_floor("min_bin_width", min_bin_width, num_bins),
        min_bin_height=_floor("min_bin_height", min_bin_height, num_bins),
    )


_known_spec = lru_cache(maxsize=4096)(_find_spec)  # the checks take longer than a small kernel


def output_shape(shape: torch.Size, params_shape: torch.Size) -> torch.Size:
    """The shape of both results of a call: broadcast(x, params[..., 0]).

    >>> output_shape(torch.Size([5, 3]), torch.Size([3, 8])), output_shape(torch.Size([3]), torch.Size([5, 1, 8]))
    (torch.Size([5, 3]), torch.Size([5, 3]))
    """
    own = params_shape[:-1]
    # The general answer takes longer than a small kernel.
    if shape == own or shape[max(0, len(shape) - len(own)) :] == own:
        return shape
    both: torch.Size = torch.broadcast_shapes(shape, own)
    return both


def _param_count(family: str, slopes: str | None) -> ParamCount:
    try:
        return PARAM_COUNTS[family, slopes]
    except KeyError:
        pass
    families = sorted({name for name, _ in PARAM_COUNTS})
    if family not in families:
        raise ValueError(f"family must be one of {', '.join(map(repr, families))}, got {family!r}")
    choices = [repr(choice) for name, choice in PARAM_COUNTS if name == family]
    raise ValueError(f"slopes of a {family} spline must be one of {', '.join(choices)}, got {slopes!r}")


def _num_bins(params_shape: torch.Size, family: str, slopes: str | None) -> int:
    count = _param_count(family, slopes)
    if not params_shape:
        raise ValueError("params must have at least one axis: the last one holds one spline's parameters")
    size = params_shape[-1]
    available = size - count.extra
    num_bins, rest = available // count.per_bin, available % count.per_bin  # divmod of a symbolic size does not compile
    if rest or num_bins < 1:
        label = family if slopes is None else f"{family} spline with slopes={slopes!r}"
        examples = ", ".join(str(count.size(k)) for k in (1, 2, 3))
        nearest = max(1, num_bins)
        raise ValueError(
            f"the last axis of params has size {size}, but a {label} needs {count} of them for K >= 1 bins "
            f"({examples}, ...); {nearest} bins would need {count.size(nearest)}"
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
