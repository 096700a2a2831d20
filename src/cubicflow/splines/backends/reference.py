"""The reference backend: eager torch, for every family, device and dtype. The other backends are tested against it."""

from __future__ import annotations

from torch import Tensor

from cubicflow.splines.domains import find_domain
from cubicflow.splines.families import find_family
from cubicflow.splines.spec import SplineSpec


def unavailable() -> str | None:
    return None


def refuses(spec: SplineSpec, x: Tensor, params: Tensor) -> str | None:
    return None


def evaluate(spec: SplineSpec, x: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
    family = find_family(spec.family, spec.slopes)
    domain = find_domain(spec.domain)
    make_bins = family.make_circle if domain.periodic and family.make_circle is not None else family.make_bins
    bins = make_bins(params, spec.num_bins, spec.min_bin_width, spec.min_bin_height)
    return domain.evaluate(x, bins, family.unit_map, spec.inverse)
