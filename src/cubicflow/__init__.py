"""Cubic-spline flows: exact densities, exact samples, one network pass in either direction."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cubicflow.accel import register_modules

if TYPE_CHECKING:
    from cubicflow import data, distributions, export, flows, integration, nets, splines, tables, training, transforms
    from cubicflow.estimator import CubicFlowConditional, CubicFlowDensity, CubicFlowImputer
    from cubicflow.flows import Flow, Mixture, load, register
    from cubicflow.integration import integrate

__version__ = "0.1.0"

__all__ = [
    "CubicFlowConditional",
    "CubicFlowDensity",
    "CubicFlowImputer",
    "Flow",
    "Mixture",
    "data",
    "distributions",
    "export",
    "flows",
    "integrate",
    "integration",
    "load",
    "nets",
    "register",
    "splines",
    "tables",
    "training",
    "transforms",
]

register_modules()

# Each name is imported on first use, so that the command line prints its help without importing torch.
_DEFINED_IN = {
    "CubicFlowConditional": "cubicflow.estimator",
    "CubicFlowDensity": "cubicflow.estimator",
    "CubicFlowImputer": "cubicflow.estimator",
    "Flow": "cubicflow.flows",
    "Mixture": "cubicflow.flows",
    "integrate": "cubicflow.integration",
    "load": "cubicflow.flows",
    "register": "cubicflow.flows",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'cubicflow' has no attribute {name!r}")
    found = (
        getattr(importlib.import_module(_DEFINED_IN[name]), name)
        if name in _DEFINED_IN
        else importlib.import_module(f"cubicflow.{name}")
    )
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
