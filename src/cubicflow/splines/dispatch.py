"""Choose the backend of a spline call. No other module imports the backends."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from cubicflow.splines.backends import native, reference, triton
from cubicflow.splines.calls import calls
from cubicflow.splines.spec import SplineSpec


class Backend(Protocol):
    """A backend: a module with these functions. x and params have one floating dtype, float32 or float64, and one
    device."""

    def unavailable(self) -> str | None:
        """Return the reason why the backend cannot run on this machine, or None."""

    def refuses(self, spec: SplineSpec, x: Tensor, params: Tensor) -> str | None:
        """Return the reason why the backend cannot run this call, or None."""

    def evaluate(self, spec: SplineSpec, x: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        """Return (y, log_slope)."""


BACKENDS: dict[str, Backend] = {"triton": triton, "native": native, "reference": reference}
OF_SLICES = triton  # the backend that also evaluates slices of rows, for cubicflow.accel
FAST = {"cuda": "triton", "cpu": "native"}  # by device: "auto" takes this backend, or else the reference


def check_backend(name: str) -> None:
    """Raise a ValueError unless ``name`` is "auto" or the name of a backend."""
    if name != "auto" and name not in BACKENDS:
        choices = ", ".join(map(repr, ["auto", *BACKENDS]))
        raise ValueError(f"backend must be one of {choices}, got {name!r}")


@cache
def warn_if_slow() -> None:
    """Warn once per process that the CPU kernel is missing, with the reason and the remedy."""
    if reason := native.unavailable():
        warnings.warn(f"splines run many times slower without the backend 'native': {reason}", stacklevel=2)


def evaluate(spec: SplineSpec, x: Tensor, params: Tensor, backend: str) -> tuple[Tensor, Tensor]:
    """Run a call on the named backend, or for "auto" on the fast backend of the device if it accepts the call.

    Raise a RuntimeError if a named backend cannot run. In forward mode, "auto" takes the reference, because kernels do
    not support forward mode. An exported or traced graph must run without cubicflow, so it always holds the reference.
    """
    if torch.compiler.is_exporting() or torch.jit.is_tracing():  # type: ignore[attr-defined]
        return reference.evaluate(spec, x, params)
    if backend != "auto":
        chosen = BACKENDS[backend]
        if reason := chosen.unavailable() or chosen.refuses(spec, x, params):
            raise RuntimeError(f"backend={backend!r} cannot run this call: {reason}; backend='auto' picks one that can")
        return chosen.evaluate(spec, x, params)
    if calls.in_forward_mode():
        return reference.evaluate(spec, x, params)
    if x.device.type in FAST:
        fast = BACKENDS[FAST[x.device.type]]
        if fast.unavailable() is None and fast.refuses(spec, x, params) is None:
            return fast.evaluate(spec, x, params)
    if x.device.type == "cpu" and not torch.compiler.is_compiling():
        warn_if_slow()
    return reference.evaluate(spec, x, params)
