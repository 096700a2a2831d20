"""The families of splines. Each family is one record in one table.

A new family needs a record here and a file for its unit map. It then runs on the reference backend through
:func:`cubicflow.splines.spline`. The fast backends need a branch in ``native/csrc/unit.h`` and in ``triton/unit.py``,
and the name of those branches in the record.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from cubicflow.arguments import one_of
from cubicflow.splines.bins import Bins
from cubicflow.splines.cubic import CUBIC, cubic_bins, cubic_circle
from cubicflow.splines.evaluation import UnitMap
from cubicflow.splines.linear import LINEAR, linear_bins
from cubicflow.splines.quadratic import QUADRATIC, quadratic_bins, quadratic_circle
from cubicflow.splines.rational_quadratic import RATIONAL_QUADRATIC, rational_quadratic_bins, rational_quadratic_circle


class Family(NamedTuple):
    """One family of splines.

    per_bin, extra: a spline of K bins takes ``per_bin * K + extra`` params.
    make_bins: (params, num_bins, min_bin_width, min_bin_height) -> Bins.
    make_circle: the same for the circle. The first slope param is the slope at the seam, and the last param is a
               rotation. None if the family has no slopes that could agree across the seam.
    unit_map:  the map in one bin, and its inverse.
    floors:    the names of the floors on bins that the family has.
    kernel:    the name of the family in the kernels of both fast backends, or None if they do not have the family.
    """

    per_bin: int
    extra: int
    make_bins: Callable[..., Bins]
    unit_map: UnitMap
    floors: tuple[str, ...] = ("min_bin_width", "min_bin_height")
    kernel: str | None = None
    make_circle: Callable[..., Bins] | None = None

    def num_params(self, num_bins: int) -> int:
        """Return the number of params of a spline with this many bins."""
        return self.per_bin * num_bins + self.extra

    @property
    def formula(self) -> str:
        """The number of params as text, such as ``"2K + 2"``."""
        bins = "K" if self.per_bin == 1 else f"{self.per_bin}K"
        return bins if self.extra == 0 else f"{bins} + {self.extra}"


# The keys are (family, slopes). slopes is None for families without a choice of slopes.
FAMILIES: dict[tuple[str, str | None], Family] = {
    ("cubic", "steffen"): Family(
        2, 2, partial(cubic_bins, slopes="steffen"), CUBIC, kernel="STEFFEN",
        make_circle=partial(cubic_circle, slopes="steffen"),
    ),
    ("cubic", "free"): Family(
        3, 1, partial(cubic_bins, slopes="free"), CUBIC, kernel="FREE",
        make_circle=partial(cubic_circle, slopes="free"),
    ),
    ("quadratic", None): Family(2, 1, quadratic_bins, QUADRATIC, kernel="QUADRATIC", make_circle=quadratic_circle),
    ("linear", None): Family(1, 0, linear_bins, LINEAR, floors=("min_bin_height",)),
    ("rational_quadratic", None): Family(
        3, 1, rational_quadratic_bins, RATIONAL_QUADRATIC, kernel="RATIONAL", make_circle=rational_quadratic_circle
    ),
}  # fmt: skip


def family_names() -> list[str]:
    """Return the names of all families of splines, in the order of the table."""
    return list(dict.fromkeys(name for name, _ in FAMILIES))


def known_slopes(family: str, slopes: str | None) -> str | None:
    """Return the slopes, or for None the first choice of the family: ``"steffen"`` for the cubic."""
    choices = [choice for name, choice in FAMILIES if name == family]
    return choices[0] if slopes is None and choices else slopes


def find_family(family: str, slopes: str | None) -> Family:
    """Return the record of a family. Raise a ValueError that lists the choices if there is none."""
    if (family, slopes) not in FAMILIES:
        one_of("family", family, sorted(family_names()))
        one_of(f"slopes of a {family} spline", slopes, [choice for name, choice in FAMILIES if name == family])
    return FAMILIES[family, slopes]
