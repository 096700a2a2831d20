"""Eager torch, every family, every device and dtype: the specification the other backends are tested against."""

from __future__ import annotations

import torch
from torch import Tensor

from cubicflow.splines.cubic import CUBIC, cubic_bins
from cubicflow.splines.evaluate import evaluate_real, evaluate_unit
from cubicflow.splines.linear import LINEAR, linear_bins
from cubicflow.splines.quadratic import QUADRATIC, quadratic_bins
from cubicflow.splines.rational_quadratic import RATIONAL_QUADRATIC, rational_quadratic_bins
from cubicflow.splines.spec import SplineSpec

FAMILIES = {
    "cubic": (cubic_bins, CUBIC),
    "quadratic": (quadratic_bins, QUADRATIC),
    "linear": (linear_bins, LINEAR),
    "rational_quadratic": (rational_quadratic_bins, RATIONAL_QUADRATIC),
}


def at_home_on(device: torch.device) -> bool:
    return True


def unavailable() -> str | None:
    return None


def refuses(spec: SplineSpec, x: Tensor, params: Tensor) -> str | None:
    return None


def evaluate(spec: SplineSpec, x: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
    make_bins, family = FAMILIES[spec.family]
    evaluate_domain = evaluate_real if spec.domain == "real" else evaluate_unit
    return evaluate_domain(x, make_bins(params, spec), family, spec.inverse)
