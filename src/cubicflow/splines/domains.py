"""The domains of splines: the set of inputs and outputs, and its name in the kernels. A domain is one record."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from cubicflow.splines.bins import Bins
from cubicflow.splines.evaluation import UnitMap, evaluate_circle, evaluate_real, evaluate_unit


class Domain(NamedTuple):
    """One domain.

    title:    a short noun phrase for people.
    evaluate: (x, bins, unit_map, inverse) -> (y, log_slope), in eager torch.
    bounds:   the lowest and highest input. Inputs outside are clamped and have log-slope -inf. None: no bounds.
    periodic: whether both ends are one point. A family then makes its bins by ``make_circle``.
    kernel:   the name of the domain in the kernels of both fast backends, or None if they do not have the domain.
    """

    title: str
    evaluate: Callable[[Tensor, Bins, UnitMap, bool], tuple[Tensor, Tensor]]
    bounds: tuple[float, float] | None = None
    periodic: bool = False
    kernel: str | None = None


DOMAINS = {
    "real": Domain("the real line", evaluate_real, kernel="REAL_LINE"),
    "unit": Domain("the unit interval", evaluate_unit, (0.0, 1.0), kernel="UNIT_INTERVAL"),
    "circle": Domain("the circle", evaluate_circle, periodic=True),
}


def find_domain(name: str) -> Domain:
    """Return the record of a domain. Raise a ValueError that lists the domains if the name is unknown."""
    if name not in DOMAINS:
        raise ValueError(f"domain must be one of {', '.join(map(repr, DOMAINS))}, got {name!r}")
    return DOMAINS[name]
