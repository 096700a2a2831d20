"""Which map a layer applies to each element: a family of splines with its settings, or an affine or additive map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
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
AFFINE_PARAMS = 2
# Of the affine map before a spline. A conditional may be far narrower than its column: 1e-4 of it, within this bound.
LOG_SCALE_BOUND = 10.0


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
        domain: ``"real"``, ``"unit"`` or ``"circle"``, for splines; or one of these for each column of the rows (N, D)
            that a layer maps.
        affine_first: locate and scale, then bend: y = spline((x - m) exp(-s)), with two more params, for m and s,
            before those of the spline. For conditionals that are narrow beside their column; on the real line.
        min_bin_width, min_bin_height: floors on the bins; None for the default.
        backend: which implementation runs it.

    >>> ElementMap("cubic", num_bins=10).num_params, ElementMap("affine").num_params
    (22, 2)
    >>> ElementMap(domain=["unit", "circle"]).circles([1, 0])
    [True, False]
    """

    family: str = "cubic"
    num_bins: int = 10
    slopes: str = "steffen"
    domain: str | Sequence[str] = "real"
    min_bin_width: float | None = None
    min_bin_height: float | None = None
    backend: str = "auto"
    affine_first: bool = False

    def __post_init__(self) -> None:
        families = [*family_names(), *PLAIN_MAPS]
        if self.family not in families:
            raise ValueError(f"family must be one of {', '.join(map(repr, families))}, got {self.family!r}")
        if not isinstance(self.domain, str):
            object.__setattr__(self, "domain", tuple(self.domain))
            for name in set(self.domain):
                replace(self, domain=name)  # which checks it
            return
        title = find_domain(self.domain).title
        check_backend(self.backend)
        if self.affine_first and (self.domain != "real" or not is_spline(self.family)):
            raise ValueError("affine_first needs a spline on the real line: domain='real', and a family of splines")
        size = self._bend_params  # refuses wrong slopes and num_bins
        if is_spline(self.family):
            nothing = torch.zeros(0, 1, device="meta"), torch.zeros(size, device="meta")
            make_spec(*nothing, inverse=False, domain=self.domain, **self._settings)
        elif self.domain != "real":
            raise ValueError(f"an {self.family} map does not keep {title}; use domain='real' or a spline")

    @property
    def num_params(self) -> int:
        """How many numbers describe one map."""
        return self._bend_params + (AFFINE_PARAMS if self.affine_first else 0)

    def __call__(self, x: Tensor, params: Tensor, *, inverse: bool = False) -> tuple[Tensor, Tensor]:
        """(y, log_slope) of shape broadcast(x, params[..., 0])."""
        if not isinstance(self.domain, str):
            return self._by_column(x, params, inverse=inverse)
        if not self.affine_first:
            return self._bend(x, params, inverse=inverse)
        place, shape = params[..., :AFFINE_PARAMS], params[..., AFFINE_PARAMS:]
        if inverse:
            inner, log_slope = self._bend(x, shape, inverse=True)
            y, log_scale = splines.affine(inner, place, log_scale_bound=LOG_SCALE_BOUND)
        else:
            inner, log_scale = splines.affine(x, place, inverse=True, log_scale_bound=LOG_SCALE_BOUND)
            y, log_slope = self._bend(inner, shape, inverse=False)
        return y, log_slope + log_scale

    def columns(self, chosen: Sequence[int]) -> ElementMap:
        """The map of some columns of those that this one is for."""
        if isinstance(self.domain, str):
            return self
        domains = [self.domain[i] for i in chosen]
        return replace(self, domain=domains[0] if len(set(domains)) == 1 else tuple(domains))

    def circles(self, chosen: Sequence[int]) -> list[bool]:
        """For some columns, whether each is a circle."""
        return [find_domain(self.domain if isinstance(self.domain, str) else self.domain[i]).closed for i in chosen]

    def check_columns(self, features: int) -> None:
        """Refuse a layer of another number of columns than there are domains."""
        if not isinstance(self.domain, str) and len(self.domain) != features:
            raise ValueError(
                f"domain names {len(self.domain)} columns, and the layer has {features}; give one domain for each "
                "column, or one for all"
            )

    def _by_column(self, x: Tensor, params: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
        """Rows (N, D) with params (N, D, P) or (D, P): the columns of each domain together."""
        if x.ndim != 2 or x.shape[1] != len(self.domain):
            raise ValueError(f"domains by column need rows of shape (N, {len(self.domain)}), got {tuple(x.shape)}")
        order: list[int] = []
        parts: list[tuple[Tensor, Tensor]] = []
        for name in dict.fromkeys(self.domain):
            places = [i for i, own in enumerate(self.domain) if own == name]
            parts.append(replace(self, domain=name)(x[:, places], params[..., places, :], inverse=inverse))
            order += places
        restore = torch.tensor(order, device=x.device).argsort()
        y, log_slope = (torch.cat(part, dim=1).index_select(1, restore) for part in zip(*parts, strict=True))
        return y, log_slope

    def _bend(self, x: Tensor, params: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
        if self.family in PLAIN_MAPS:
            return PLAIN_MAPS[self.family][0](x, params, inverse=inverse)
        return splines.spline(
            x, params, inverse=inverse, domain=str(self.domain), backend=self.backend, **self._settings
        )

    @property
    def _bend_params(self) -> int:
        if self.family in PLAIN_MAPS:
            return PLAIN_MAPS[self.family][1]
        return splines.num_params(self.family, self.num_bins, self._slopes)

    def within_domain(self, x: Tensor) -> Tensor:
        """x as a network is to see it. Where a spline on the unit interval clamps its input there is no density, but
        numbers without bound would make the network's outputs NaN, and the log density NaN rather than -inf."""
        if not isinstance(self.domain, str):
            return torch.stack([self.columns([i]).within_domain(column) for i, column in enumerate(x.unbind(1))], dim=1)
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
        """The constructor's arguments. Files of before ``affine_first`` do not have it, and still describe the same."""
        settings = asdict(self)
        return settings if self.affine_first else {k: v for k, v in settings.items() if k != "affine_first"}
