"""Which map a layer applies to each element: a family of splines with its settings, or an affine or additive map."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cubicflow import splines
from cubicflow.splines.dispatch import check_backend
from cubicflow.splines.domains import find_domain
from cubicflow.splines.families import FAMILIES, family_names
from cubicflow.splines.spec import make_spec

# The maps that are no splines, and how many numbers describe one. All of them map the real line to itself.
PLAIN_MAPS = {"affine": (splines.affine, 2), "additive": (splines.additive, 1)}


def is_spline(family: str) -> bool:
    """Whether an element map of this family is a spline, which has a version of the unit interval."""
    return family in family_names()


@dataclass(frozen=True)
class ElementMap:
    """A map of single elements told what to do by ``num_params`` unconstrained numbers; all zeros are the identity.

    Args:
        family: ``"cubic"``, ``"quadratic"``, ``"linear"``, ``"rational_quadratic"``, ``"affine"`` or ``"additive"``.
        num_bins: K, for splines.
        slopes: ``"steffen"`` or ``"free"``, for the cubic.
        domain: ``"real"`` or ``"unit"``, for splines.
        min_bin_width, min_bin_height: floors on the bins; None for the default.
        backend: which implementation runs it.

    >>> ElementMap("cubic", num_bins=10).num_params, ElementMap("affine").num_params
    (22, 2)
    """

    family: str = "cubic"
    num_bins: int = 10
    slopes: str = "steffen"
    domain: str = "real"
    min_bin_width: float | None = None
    min_bin_height: float | None = None
    backend: str = "auto"

    def __post_init__(self) -> None:
        families = [*family_names(), *PLAIN_MAPS]
        if self.family not in families:
            raise ValueError(f"family must be one of {', '.join(map(repr, families))}, got {self.family!r}")
        title = find_domain(self.domain).title
        check_backend(self.backend)
        size = self.num_params  # refuses wrong slopes and num_bins
        if is_spline(self.family):
            nothing = torch.zeros(0, 1, device="meta"), torch.zeros(size, device="meta")
            make_spec(*nothing, inverse=False, domain=self.domain, **self._settings)
        elif self.domain != "real":
            raise ValueError(f"an {self.family} map does not keep {title}; use domain='real' or a spline")

    @property
    def num_params(self) -> int:
        """How many numbers describe one map."""
        if self.family in PLAIN_MAPS:
            return PLAIN_MAPS[self.family][1]
        return splines.num_params(self.family, self.num_bins, self._slopes)

    def __call__(self, x: Tensor, params: Tensor, *, inverse: bool = False) -> tuple[Tensor, Tensor]:
        """(y, log_slope) of shape broadcast(x, params[..., 0])."""
        if self.family in PLAIN_MAPS:
            return PLAIN_MAPS[self.family][0](x, params, inverse=inverse)
        return splines.spline(x, params, inverse=inverse, domain=self.domain, backend=self.backend, **self._settings)

    def within_domain(self, x: Tensor) -> Tensor:
        """x as a network is to see it. Where a spline on the unit interval clamps its input there is no density, but
        numbers without bound would make the network's outputs NaN, and the log density NaN rather than -inf."""
        bounds = find_domain(self.domain).bounds
        return x if bounds is None else x.clamp(*bounds)

    @property
    def _slopes(self) -> str | None:
        return None if (self.family, None) in FAMILIES else self.slopes

    @cached_property
    def _settings(self) -> dict[str, Any]:
        """The family of splines, and what it has settings for: small batches notice the time to find that out."""
        slopes = self._slopes
        floors = {name: getattr(self, name) for name in FAMILIES[self.family, slopes].floors}
        return {"family": self.family, "slopes": slopes, **floors}

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return asdict(self)
