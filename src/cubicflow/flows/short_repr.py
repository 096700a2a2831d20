"""The short text of a flow: sizes, base and layers. The text of ``flow.transform`` has all modules, as usual in
torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch.nn.parameter import is_lazy

from cubicflow.transforms import Compose, Inverse, MultiScale, Transform
from cubicflow.transforms.element_map import is_spline

if TYPE_CHECKING:
    from cubicflow.flows.flow import Flow


def short_repr(flow: Flow) -> str:
    """Return a few lines about a flow."""
    count = sum(math.prod(parameter.shape) for parameter in flow.parameters() if not is_lazy(parameter))
    sizes = [f"{flow.shape[0]} features" if len(flow.shape) == 1 else f"shape {flow.shape}"]
    if flow.context_shape:
        one = f"{flow.context_features} context features" if len(flow.context_shape) == 1 else ""
        sizes += [one or f"contexts of shape {flow.context_shape}"]
    layers = Counter(_label(layer) for layer in _layers(flow.transform))
    lines = [
        ", ".join([*sizes, f"{count:,} parameters"]),
        f"base: {type(flow.base).__name__}",
        *([] if flow.embedding_net is None else [f"embedding_net: {type(flow.embedding_net).__name__}"]),
        f"layers: {', '.join(f'{n} {label}' for label, n in layers.items()) or 'none'}",
    ]
    return "\n  ".join([f"{type(flow).__name__}(", *lines]) + "\n)"


def _layers(transform: Transform) -> Iterator[Transform]:
    """Yield the layers inside compositions, inverses and levels of images."""
    if isinstance(transform, Compose):
        parts = list(transform.transforms)
    elif isinstance(transform, MultiScale):
        parts = list(transform.levels)
    elif type(transform) is Inverse:  # a Logit is a layer
        parts = [transform.transform]
    else:
        yield transform
        return
    for part in parts:
        yield from _layers(part)


def _label(layer: Transform) -> str:
    element_map, network = getattr(layer, "element_map", None), getattr(layer, "network", None)
    words = []
    if element_map is not None:
        words.append(element_map.family)
        words += [f"K={element_map.num_bins}"] if is_spline(element_map.family) else []
    if network is not None:
        words.append(type(network).__name__)
    return type(layer).__name__ + (f"({', '.join(words)})" if words else "")
