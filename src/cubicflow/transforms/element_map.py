"""Which map a layer applies to each element: a family of splines with its settings, or an affine or additive map."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from cubicflow import splines
from cubicflow.splines.dispatch import check_backend
from cubicflow.splines.spec import make_spec

SPLINES = ("cubic", "quadratic", "linear", "rational_quadratic")
FAMILIES = (*SPLINES, "affine", "additive")


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
        if self.family not in FAMILIES:
            raise ValueError(f"family must be one of {', '.join(map(repr, FAMILIES))}, got {self.family!r}")
        if self.domain not in ("real", "unit"):
            raise ValueError(f"domain must be 'real' or 'unit', got {self.domain!r}")
        if self.domain == "unit" and self.family not in SPLINES:
            raise ValueError(f"an {self.family} map does not keep the unit interval; use domain='real' or a spline")
        check_backend(self.backend)
        size = self.num_params  # refuses wrong slopes and num_bins
        if self.family in SPLINES:
            nothing = torch.zeros(0, 1, device="meta"), torch.zeros(size, device="meta")
            make_spec(*nothing, family=self.family, inverse=False, domain=self.domain, **self._settings())

    @property
    def num_params(self) -> int:
        """How many numbers describe one map."""
        if self.family == "affine":
            return 2
        if self.family == "additive":
            return 1
        return splines.num_params(self.family, self.num_bins, self.slopes if self.family == "cubic" else None)

    def __call__(self, x: Tensor, params: Tensor, *, inverse: bool = False) -> tuple[Tensor, Tensor]:
        """(y, log_slope) of shape broadcast(x, params[..., 0])."""
        if self.family == "affine":
            return splines.affine(x, params, inverse=inverse)
        if self.family == "additive":
            return splines.additive(x, params, inverse=inverse)
        settings = {**self._settings(), "inverse": inverse, "domain": self.domain, "backend": self.backend}
        if self.family == "linear":
            return splines.linear_spline(x, params, **settings)
        if self.family == "quadratic":
            return splines.quadratic_spline(x, params, **settings)
        if self.family == "rational_quadratic":
            return splines.rational_quadratic_spline(x, params, **settings)
        return splines.cubic_spline(x, params, **settings)

    def within_domain(self, x: Tensor) -> Tensor:
        """x as a network is to see it. Where a spline on the unit interval clamps its input there is no density, but
        numbers without bound would make the network's outputs NaN, and the log density NaN rather than -inf."""
        return x.clamp(0, 1) if self.domain == "unit" else x

    def _settings(self) -> dict[str, Any]:
        """What this family has settings for."""
        settings: dict[str, Any] = {"min_bin_height": self.min_bin_height}
        if self.family != "linear":
            settings["min_bin_width"] = self.min_bin_width
        if self.family == "cubic":
            settings["slopes"] = self.slopes
        return settings

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return asdict(self)
