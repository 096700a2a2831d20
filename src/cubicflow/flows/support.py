"""The support of a flow: the data that have a density."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from cubicflow.transforms.transform import OWN_SHAPES, is_unbounded

if TYPE_CHECKING:
    from cubicflow.flows.flow import Flow
    from cubicflow.flows.mixture import Mixture


class PositiveDensity(constraints.Constraint):
    """The support of a distribution whose support is not known to be a box: wherever its density is positive. It has no
    bijection to the reals."""

    def __init__(self, distribution: Distribution) -> None:
        self.distribution = distribution
        super().__init__()

    @property
    def event_dim(self) -> int:  # type: ignore[override] # a class attribute in torch, and a property in its subclasses
        return len(self.distribution.event_shape)

    @torch.no_grad()
    def check(self, value: Tensor) -> Tensor:
        return self.distribution.log_prob(value) > -math.inf


def box_of(model: Flow | Mixture) -> constraints.Constraint | None:
    """Return the support of a flow if it is a box: an interval, a half-line or the real line for every feature.
    Otherwise return None. The support of a mixture is a box if its flows have the same box."""
    ends, *others = [data_ends(flow) for flow in getattr(model, "flows", [model])]
    if ends is None or any(other is None or not torch.equal(other, ends) for other in others):
        return None
    if is_unbounded(ends):
        return constraints.independent(constraints.real, len(model.shape))
    low, high = ends.unbind(0)
    if bool(ends.isfinite().all()):
        return constraints.independent(constraints.interval(low, high), len(model.shape))
    if len(model.shape) != 1:
        return None
    each = [_side(*pair) for pair in zip(low.unbind(0), high.unbind(0), strict=True)]
    return constraints.independent(constraints.cat(each, dim=-1), 1)


def data_ends(flow: Flow) -> Tensor | None:
    """Return the lowest and the highest value of every feature, (2, *shape), or None if the support of the flow is not
    known to be a box."""
    bounds = flow.base.bounds()
    return None if bounds is None else _data_box(flow, bounds)


def check_shapes(flow: Flow) -> None:
    """Raise a ValueError if the base, the layers and the shape of the data do not fit together. Layers after a box that
    is not known are not checked."""
    sizes = {part.context_features for part in (flow.base, flow.transform) if part.context_features}
    if len(sizes) > 1:
        raise ValueError(
            f"the base takes {flow.base.context_features} context features, and the transform takes "
            f"{flow.transform.context_features}; give both the same context_features="
        )
    if (flow.context_shape or flow.embedding_net is not None) and not sizes:
        raise ValueError("context_shape= and embedding_net= need layers or a base with context_features=")
    if flow.embedding_net is None and sizes and flow.context_features not in sizes:
        raise ValueError(
            f"contexts of shape {flow.context_shape} do not fit layers with context_features={sizes.pop()}; give an "
            "embedding_net=, or build the layers for that size"
        )
    if flow.base.anchor.is_meta:  # a meta tensor has no values to compare
        return
    # Layers that lose the box of the base may keep all of space, which has the same shape.
    for ends in (data_ends(flow), _data_box(flow, [(-math.inf, math.inf)] * flow.base.features)):
        if ends is not None and ends.shape[1:] != flow.shape:
            raise ValueError(
                f"the base and the transform give data of shape {tuple(ends.shape[1:])}, and this flow has shape="
                f"{flow.shape}; leave out shape=, or change the layers; {OWN_SHAPES}"
            )


def _data_box(flow: Flow, bounds: list[tuple[float, float]]) -> Tensor | None:
    """Return the image of a box of noise, given by the bounds of every feature, as :func:`data_ends` does."""
    anchor = flow.base.anchor
    with torch.no_grad():
        ends = torch.tensor(bounds, dtype=anchor.dtype, device=anchor.device).T
        return flow.transform.map_box(ends, inverse=True)


def _side(low: Tensor, high: Tensor) -> constraints.Constraint:
    if bool(low.isinf() & high.isinf()):
        return constraints.real
    if bool(high.isinf()):
        return constraints.greater_than_eq(low)
    return constraints.less_than(high) if bool(low.isinf()) else constraints.interval(low, high)
