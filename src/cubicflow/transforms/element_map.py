"""The map that a layer applies to each element: a spline with its settings, or a map with another formula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from cubicflow import splines
from cubicflow.arguments import one_of, positive
from cubicflow.nets.tracing import constant_tensor
from cubicflow.splines.dispatch import check_backend
from cubicflow.splines.domains import find_domain
from cubicflow.splines.families import FAMILIES, family_names
from cubicflow.splines.spec import SplineSpec, make_spec
from cubicflow.transforms.sigmoidal import num_shared_weights, num_sigmoidal_params, sigmoidal

# The maps that are not splines: functions, and numbers of params. All of them map the real line onto itself.
PLAIN_MAPS = {"affine": (splines.affine, 2), "additive": (splines.additive, 1), "leaky_relu": (splines.leaky_relu, 1)}
SIGMOIDAL_MAPS = {"deep_sigmoidal": False, "dense_sigmoidal": True}  # the values: whether layers are dense
AFFINE_PARAMS = 2
# The bound on the log-scale of the affine map before a spline. A conditional may be far narrower than its column. This
# bound allows scales down to 5e-5.
LOG_SCALE_BOUND = 10.0


def is_spline(family: str) -> bool:
    """Return whether an element map of this family is a spline. Other maps need the real line."""
    return family in family_names()


@dataclass(frozen=True)
class ElementMap:
    """A map of single elements with ``num_params`` unconstrained params. All-zero params are the identity.

    Args:
        family: a family of splines, ``"cubic"``, ``"quadratic"``, ``"linear"`` or ``"rational_quadratic"``; or
            ``"affine"``, ``"additive"``, ``"leaky_relu"``, ``"deep_sigmoidal"`` or ``"dense_sigmoidal"``. Dense
            sigmoidal maps of several layers share weights, which autoregressive layers have.
        num_bins: K, for splines; the number of units of each layer of a sigmoidal map.
        slopes: ``"steffen"`` or ``"free"``, for the cubic.
        domain: ``"real"``, ``"unit"`` or ``"circle"``, for splines. A sequence gives one domain for each column of the
            rows (N, D) that a layer maps.
        affine_first: shift and scale before the spline: y = spline((x - m) exp(-s)). The two params m and s come before
            the spline's params. Needs the real line. Useful for conditionals that are narrow compared with their
            column.
        min_bin_width, min_bin_height: floors on the bins; None for the default.
        backend: the spline backend, or ``"auto"``.
        depth: the number of layers of a sigmoidal map; see :func:`~cubicflow.transforms.sigmoidal.sigmoidal`.

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
    depth: int = 2

    _settings: ClassVar[dict[str, Any]]  # the spline arguments of this family
    _parts: ClassVar[list[tuple[ElementMap, list[int]]]]  # with a domain for each column: a map and its columns

    def __post_init__(self) -> None:
        one_of("family", self.family, [*family_names(), *PLAIN_MAPS, *SIGMOIDAL_MAPS])
        slopes = None if (self.family, None) in FAMILIES else self.slopes
        floors = {"min_bin_width": self.min_bin_width, "min_bin_height": self.min_bin_height}
        given = {name: floor for name, floor in floors.items() if floor is not None}
        if is_spline(self.family):
            self._keep("_settings", {"family": self.family, "slopes": slopes, **given})
        elif given:
            raise ValueError(f"a map of family {self.family!r} has no bins; leave out {' and '.join(given)}")
        if not isinstance(self.domain, str):
            self._keep("domain", tuple(self.domain))
            columns = {name: [i for i, own in enumerate(self.domain) if own == name] for name in self.domain}
            maps = {name: replace(self, domain=name) for name in columns}  # the constructor checks every domain
            self._keep("_parts", [(maps[name], places) for name, places in columns.items()])
            return
        title = find_domain(self.domain).title
        check_backend(self.backend)
        if self.affine_first and (self.domain != "real" or not is_spline(self.family)):
            raise ValueError("affine_first needs a spline on the real line: domain='real', and a family of splines")
        size = self._num_inner_params  # raises for wrong slopes and num_bins
        if is_spline(self.family):
            self.spec(torch.zeros(0, 1, device="meta"), torch.zeros(size, device="meta"))
        elif self.domain != "real":
            raise ValueError(f"an {self.family} map does not preserve {title}; use domain='real' or a spline")

    @property
    def num_params(self) -> int:
        """The number of params of one map."""
        return self._num_inner_params + (AFFINE_PARAMS if self.affine_first else 0)

    @property
    def num_shared(self) -> int:
        """The number of weights that all maps of a layer share; 0 for all but dense sigmoidal maps."""
        dense = SIGMOIDAL_MAPS.get(self.family, False)
        return num_shared_weights(self.num_bins, self.depth, dense=dense)

    def __call__(
        self, x: Tensor, params: Tensor, *, inverse: bool = False, shared: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return (y, log_slope), each of shape broadcast(x, params[..., 0]). ``shared`` has ``num_shared`` weights."""
        if not isinstance(self.domain, str):
            return self._by_column(x, params, inverse=inverse)
        if self.family in SIGMOIDAL_MAPS:
            dense = SIGMOIDAL_MAPS[self.family]
            return sigmoidal(x, params, shared, num_bins=self.num_bins, depth=self.depth, dense=dense, inverse=inverse)
        if not self.affine_first:
            return self._inner_map(x, params, inverse=inverse)
        affine_params, inner_params = params[..., :AFFINE_PARAMS], params[..., AFFINE_PARAMS:]
        if inverse:
            inner, log_slope = self._inner_map(x, inner_params, inverse=True)
            y, log_scale = splines.affine(inner, affine_params, log_scale_bound=LOG_SCALE_BOUND)
        else:
            inner, log_scale = splines.affine(x, affine_params, inverse=True, log_scale_bound=LOG_SCALE_BOUND)
            y, log_slope = self._inner_map(inner, inner_params, inverse=False)
        return y, log_slope + log_scale

    def spec(self, x: Tensor, params: Tensor) -> SplineSpec:
        """Return the description of the spline call with one domain for all columns."""
        return make_spec(x, params, inverse=False, domain=str(self.domain), **self._settings)

    def columns(self, chosen: Sequence[int]) -> ElementMap:
        """Return the map of the chosen columns."""
        if isinstance(self.domain, str):
            return self
        domains = [self.domain[i] for i in chosen]
        return replace(self, domain=domains[0] if len(set(domains)) == 1 else tuple(domains))

    def circles(self, chosen: Sequence[int]) -> list[bool]:
        """Return for each chosen column whether its domain is a circle."""
        return [find_domain(self.domain if isinstance(self.domain, str) else self.domain[i]).periodic for i in chosen]

    def map_box(self, ends: Tensor) -> Tensor | None:
        """Return a box, given by its two ends (2, N, ...), if it is the domain, which the map keeps. Otherwise return
        None."""
        names = [self.domain] * ends.shape[1] if isinstance(self.domain, str) else self.domain
        domains = [find_domain(name) for name in names]
        bounds = [(0.0, 1.0) if each.periodic else each.bounds or (-math.inf, math.inf) for each in domains]
        kept = torch.tensor(bounds, dtype=ends.dtype, device=ends.device).T
        return ends if bool((ends == kept.view(*kept.shape, *(1,) * (ends.ndim - 2))).all()) else None

    def check_columns(self, features: int, *, shares: bool = False) -> None:
        """Raise a ValueError if there is one domain per column and the number of columns is not ``features``, or if the
        maps share weights and the layer has none."""
        if self.num_shared and not shares:
            raise ValueError(
                f"{self.family} maps of depth={self.depth} share weights, which autoregressive layers have; use "
                "Autoregressive, or family='deep_sigmoidal'"
            )
        if not isinstance(self.domain, str) and len(self.domain) != features:
            raise ValueError(
                f"domain names {len(self.domain)} columns, and the layer has {features}; give one domain for each "
                "column, or one for all"
            )

    def _by_column(self, x: Tensor, params: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
        """Map rows (N, D) with params (N, D, P) or (D, P). Columns of the same domain are mapped together."""
        if x.ndim != 2 or x.shape[1] != len(self.domain):
            raise ValueError(f"domains by column need rows of shape (N, {len(self.domain)}), got {tuple(x.shape)}")
        parts: list[tuple[Tensor, Tensor]] = []
        for part, places in self._parts:
            chosen = constant_tensor(places, x.device)
            parts.append(part(x.index_select(1, chosen), params.index_select(-2, chosen), inverse=inverse))
        restore = constant_tensor([place for _, places in self._parts for place in places], x.device).argsort()
        y, log_slope = (torch.cat(part, dim=1).index_select(1, restore) for part in zip(*parts, strict=True))
        return y, log_slope

    def _inner_map(self, x: Tensor, params: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
        """Apply the spline or the plain map, without the affine map before it."""
        if self.family in PLAIN_MAPS:
            return PLAIN_MAPS[self.family][0](x, params, inverse=inverse)
        return splines.spline(
            x, params, inverse=inverse, domain=str(self.domain), backend=self.backend, **self._settings
        )

    @property
    def _num_inner_params(self) -> int:
        if self.family in PLAIN_MAPS:
            return PLAIN_MAPS[self.family][1]
        if self.family in SIGMOIDAL_MAPS:
            units, depth = positive("num_bins", self.num_bins), positive("depth", self.depth)
            return num_sigmoidal_params(units, depth, dense=SIGMOIDAL_MAPS[self.family])
        return splines.num_params(self.family, self.num_bins, self._settings["slopes"])

    def within_domain(self, x: Tensor) -> Tensor:
        """Return x clamped to the domain, as input of a network. Inputs outside the unit interval have log density
        -inf. Without the clamp, huge inputs could make the network's outputs and the log density NaN."""
        if isinstance(self.domain, str):
            bounds = find_domain(self.domain).bounds
            return x if bounds is None else x.clamp(*bounds)
        ends = [find_domain(name).bounds or (-math.inf, math.inf) for name in self.domain]
        low, high = (constant_tensor(side, x.device, x.dtype) for side in zip(*ends, strict=True))
        return x.clamp(low, high)

    def _keep(self, name: str, value: Any) -> None:
        """Set an attribute of this frozen object. Found here once: finding it in every call takes noticeable time for
        small batches, and a compiler cannot trace it."""
        object.__setattr__(self, name, value)

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments. ``affine_first`` and ``depth`` are left out if they are the defaults, so
        that configs equal those that were written before these arguments existed."""
        later = {"affine_first": False, "depth": 2}
        return {name: value for name, value in asdict(self).items() if name not in later or value != later[name]}
