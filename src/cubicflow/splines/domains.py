"""The domains of splines: where inputs and outputs live, and what every backend makes of that.

A domain is one record. A backend that has no name for one refuses it, so no domain is ever taken for another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from cubicflow.splines.bins import Bins
from cubicflow.splines.evaluation import UnitMap, evaluate_circle, evaluate_real, evaluate_unit


class Domain(NamedTuple):
    """One domain.

    evaluate: (x, bins, unit_map, inverse) -> (y, log_slope), in eager torch.
    bounds:   inputs outside these are clamped and have no density; None where there are no such inputs.
    closed:   the ends are one point; a family makes its bins by ``make_ring``.
    native, triton: the name of the domain in the kernels of that backend, or None where they do not have it.
    """

    title: str
    evaluate: Callable[[Tensor, Bins, UnitMap, bool], tuple[Tensor, Tensor]]
    bounds: tuple[float, float] | None = None
    closed: bool = False
    native: str | None = None
    triton: str | None = None


DOMAINS = {
    "real": Domain("the real line", evaluate_real, native="REAL_LINE", triton="REAL_LINE"),
    "unit": Domain("the unit interval", evaluate_unit, (0.0, 1.0), native="UNIT_INTERVAL", triton="UNIT_INTERVAL"),
    "circle": Domain("the circle", evaluate_circle, closed=True),
}


def find_domain(name: str) -> Domain:
    """The record of a domain, or a ValueError that names all of them."""
    if name not in DOMAINS:
        raise ValueError(f"domain must be one of {', '.join(map(repr, DOMAINS))}, got {name!r}")
    return DOMAINS[name]
