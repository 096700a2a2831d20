"""The modules that are exported. Each computes one result of a model for rows (N, ...)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from cubicflow.advice import Advice
from cubicflow.distributions import Base
from cubicflow.flows import Flow, Mixture
from cubicflow.transforms import Compose, Inverse, MultiScale, Transform
from cubicflow.transforms.transform import context_for

if TYPE_CHECKING:
    from cubicflow.tables import ColumnsModel

Model = TypeVar("Model", bound=nn.Module)
LOG_DENSITY, SAMPLER = "log_density", "sampler"
MOST_COPIES = 64  # copies of networks and splines in one graph; each takes seconds to trace
PRECISIONS = {"float32": torch.float32, "float64": torch.float64}


class ExportError(ValueError):
    """An error raised for a model that cannot be exported. The message names the part of the model and the reason.

    >>> import cubicflow as cf
    >>> from cubicflow.export import export_model
    >>> flow = cf.flows.tabular(3, num_layers=1, hidden_features=8)
    >>> export_model(flow, "model.tflite")
    Traceback (most recent call last):
    ...
    cubicflow.export.graphs.ExportError: model.tflite: the file name must end in .onnx or .pt2
    """


@dataclass(frozen=True)
class Graph:
    """A module with its inputs (name to shape of a row), the names of its outputs, and a description of its noise."""

    module: nn.Module
    inputs: Mapping[str, tuple[int, ...]]
    outputs: tuple[str, ...]
    dtype: torch.dtype = torch.float32
    noise: str | None = None


class FromNoise(nn.Module):
    """The map from noise to samples and their log densities."""

    def __init__(self, model: Flow) -> None:
        super().__init__()
        self.model = model

    def forward(self, noise: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return samples and log densities: (N, noise) [, (N, C)] -> (N, *shape), (N,)."""
        context = self.model.embed(context)
        z = self.model.base.from_noise(noise)
        x, log_det = self.model.transform.inverse(z, context_for(self.model.transform, context))
        return x, self.model.noise_log_prob(z, context) - log_det


class CellsDensity(nn.Module):
    """The log density of rows of cells, and of every cell given the cells before it."""

    def __init__(self, model: ColumnsModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, cells: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return log densities of rows and of cells: (N, 4 D) [, (N, 4 C)] -> (N,), (N, D)."""
        log_conditionals = self.model.conditionals(cells, context)
        return log_conditionals.sum(1), log_conditionals


class NextCells(nn.Module):
    """The map from noise to an outcome and a place in [0, 1] for every column, given the cells before the column.

    A sampler fills cells from the first column to the last. For column i it runs this graph, takes column i of both
    results, converts them to a value and a cell with the column's encoding, and continues with column i + 1.
    """

    def __init__(self, model: ColumnsModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, cells: Tensor, noise: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return outcomes and places: (N, 4 D), (N, 2 D) [, (N, 4 C)] -> (N, D) integers, (N, D)."""
        return self.model.next_cells(cells, noise, context)


def graph_of(model: nn.Module, *, sampler: bool, precision: str = "float32") -> Graph:
    """Return the graph of a model's log density or sampler. Raises ExportError if the model has no such graph.

    >>> import cubicflow as cf
    >>> graph = graph_of(cf.flows.tabular(3, num_layers=1, hidden_features=8, context_features=2), sampler=False)
    >>> graph.inputs, graph.outputs
    ({'x': (3,), 'context': (2,)}, ('log_prob',))
    """
    if precision not in PRECISIONS:
        raise ExportError(Advice(f"there is no precision {precision!r}; choose one", precision=tuple(PRECISIONS)))
    dtype = PRECISIONS[precision]
    if isinstance(model, Mixture) and sampler:
        raise ExportError(
            "a Mixture has no map from noise to samples; export the sampler of each flow in mixture.flows, and choose "
            "among the flows by the mixture's weights"
        )
    if isinstance(model, Flow | Mixture):
        check_loops(model, inverse=sampler)
        model = frozen(model, dtype)
        context = {"context": model.context_shape} if model.context_shape else {}
        if isinstance(model, Flow) and sampler:
            base = model.base
            inputs = {"noise": (base.noise_features,), **context}
            noise = base.noise or f"draws of the base, {type(base).__name__}"
            return Graph(FromNoise(model), inputs, ("x", "log_prob"), dtype, noise)
        return Graph(model, {"x": tuple(model.shape), **context}, ("log_prob",), dtype)
    from cubicflow.tables import ColumnsModel

    if not isinstance(model, ColumnsModel):
        raise ExportError(
            f"a {type(model).__name__} cannot be exported; give a Flow, a Mixture, a ColumnsModel or a FittedTable"
        )
    columns = frozen(model, dtype)
    context = {"context": (columns.context_features,)} if columns.context_features else {}
    cells = columns.shape
    if sampler:
        inputs = {"cells": cells, "noise": (2 * len(columns.outcomes),), **context}
        return Graph(NextCells(columns), inputs, ("outcomes", "places"), dtype, "uniform on [0, 1)")
    return Graph(CellsDensity(columns), {"cells": cells, **context}, ("log_prob", "log_conditionals"), dtype)


@torch.no_grad()
def frozen(model: Model, dtype: torch.dtype = torch.float32) -> Model:
    """Return a copy of a model for export: of one precision, on the CPU, in evaluation mode, with LU factors multiplied
    out. The given model does not change.

    An exported graph is never trained. So values that depend only on parameters are computed once, here. This also
    keeps triangular solves out of the graph; ONNX has no operator for them.

    >>> import cubicflow as cf
    >>> flow = cf.flows.tabular(3, num_layers=2, hidden_features=8).double()
    >>> copy = frozen(flow)
    >>> [type(part).__name__ for part in copy.transform.transforms][0], copy.base.anchor.dtype
    ('FixedLinear', torch.float32)
    """
    copy = deepcopy(model).to("cpu", dtype).eval().requires_grad_(False)
    for module in list(copy.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Transform | Base):
                setattr(module, name, child.fixed())
    return copy


# --- layers that process features one by one in one direction ---


def check_loops(model: Flow | Mixture, *, inverse: bool) -> None:
    """Raise ExportError if the graph of a model would have more than MOST_COPIES copies of networks.

    >>> import cubicflow as cf
    >>> flow = cf.flows.tabular(40, num_layers=2, hidden_features=8, layer="autoregressive")
    >>> check_loops(flow, inverse=False)
    >>> check_loops(flow, inverse=True)
    Traceback (most recent call last):
    ...
    cubicflow.export.graphs.ExportError: a graph that draws samples has a copy of the networks of \
transform.transforms.1 (Autoregressive) and 1 more for each feature: 80 copies, and at most 64 are possible; export \
log densities, or fit coupling layers
    """
    flows = [model] if isinstance(model, Flow) else model.flows
    found = [loop for flow in flows for loop in _loops(flow.transform, "transform", inverse=inverse)]
    steps = sum(layer.inverse_passes for _, layer in found)
    if steps > MOST_COPIES:
        name = f"{found[0][0]} ({type(found[0][1]).__name__})"
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        doing, instead = ("draws samples", "log densities") if inverse else ("scores rows", "the sampler")
        raise ExportError(
            f"a graph that {doing} has a copy of the networks of {name}{more} for each feature: {steps} copies, and at "
            f"most {MOST_COPIES} are possible; export {instead}, or fit coupling layers"
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
