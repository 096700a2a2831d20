"""Layers that process features one by one in one direction. A graph holds one copy of their network per feature."""

from __future__ import annotations

from collections.abc import Iterator

from cubicflow.export.export_error import ExportError
from cubicflow.flows import Flow, Mixture
from cubicflow.transforms import Compose, Inverse, MultiScale, Transform

MOST_COPIES = 64  # copies of networks and splines in one graph; each takes seconds to trace


def check_loops(model: Flow | Mixture, *, inverse: bool) -> None:
    """Raise ExportError if the graph of a model would have more than MOST_COPIES copies of networks.

    >>> import cubicflow as cf
    >>> flow = cf.flows.tabular(40, num_layers=2, hidden_features=8, layer="autoregressive")
    >>> check_loops(flow, inverse=False)
    >>> check_loops(flow, inverse=True)
    Traceback (most recent call last):
    ...
    cubicflow.export.export_error.ExportError: transform.transforms.1 (Autoregressive) and 1 more layer go through \
80 features one by one when they draw samples, and a graph holds at most 64 such steps; export log densities, or fit \
coupling layers
    """
    flows = [model] if isinstance(model, Flow) else model.flows
    found = [loop for flow in flows for loop in _loops(flow.transform, "transform", inverse=inverse)]
    steps = sum(layer.inverse_passes for _, layer in found)
    if steps > MOST_COPIES:
        name, others = f"{found[0][0]} ({type(found[0][1]).__name__})", len(found) - 1
        more = f" and {others} more layer{'s' if others > 1 else ''}" if others else ""
        doing, instead = ("draw samples", "log densities") if inverse else ("score rows", "the sampler")
        go, they = ("go", "they") if others else ("goes", "it")
        doing = doing if others else doing.replace("draw", "draws").replace("score", "scores")
        raise ExportError(
            f"{name}{more} {go} through {steps} features one by one when {they} {doing}, and a graph holds at most "
            f"{MOST_COPIES} such steps; export {instead}, or fit coupling layers"
        )


def _loops(transform: Transform, name: str, *, inverse: bool) -> Iterator[tuple[str, Transform]]:
    if transform.inverse_passes > 1 and inverse:
        yield name, transform
    elif isinstance(transform, Inverse):
        yield from _loops(transform.transform, f"{name}.transform", inverse=not inverse)
    elif isinstance(transform, Compose):
        for i, part in enumerate(transform.transforms):
            yield from _loops(part, f"{name}.transforms.{i}", inverse=inverse)
    elif isinstance(transform, MultiScale):
        for i, level in enumerate(transform.levels):
            yield from _loops(level, f"{name}.levels.{i}", inverse=inverse)
