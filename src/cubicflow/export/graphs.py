"""What is exported: modules whose forward is one question to a model, on rows (N, ...) of float32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from cubicflow.distributions import Base, ByColumn, StandardNormal, Uniform
from cubicflow.export.export_error import ExportError
from cubicflow.export.frozen import FixedMixture, frozen
from cubicflow.export.loops import check_loops
from cubicflow.flows import Flow, Mixture
from cubicflow.splines import cubic_spline

if TYPE_CHECKING:
    from cubicflow.tables.columns_model import ColumnsModel

LOG_DENSITY, SAMPLER = "log_density", "sampler"


@dataclass(frozen=True)
class Graph:
    """A module and how it is called: the names of its inputs and outputs, the shape of a row of each input, and what
    its noise is."""

    module: nn.Module
    inputs: Mapping[str, tuple[int, ...]]
    outputs: tuple[str, ...]
    noise: str | None = None


class LogDensity(nn.Module):
    """log p of rows, past the checks of shapes that :class:`~cubicflow.Flow` makes for people."""

    def __init__(self, model: Flow | Mixture) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """(N, *shape) [, (N, C)] -> (N,)."""
        if isinstance(self.model, Flow):
            return _log_prob(self.model, x, context)
        parts = [_log_prob(flow, x, context) for flow in self.model.flows]
        return torch.logsumexp(torch.stack(parts, dim=-1) + self.model.log_weights, dim=-1)


class Sampler(nn.Module):
    """Samples of given noise, and their log densities."""

    def __init__(self, model: Flow) -> None:
        super().__init__()
        self.model = model

    def forward(self, noise: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(N, noise) [, (N, C)] -> (N, *shape), (N,)."""
        base = self.model.base
        z = base.drawn(noise) if isinstance(base, FixedMixture) else noise
        x, log_det = self.model.transform.inverse(z, context)
        return x, base.log_prob(z) - log_det


class CellsDensity(nn.Module):
    """log p of rows of cells, and of every cell given those before it."""

    def __init__(self, model: ColumnsModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, cells: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(N, 4 D) [, (N, 4 C)] -> (N,), (N, D)."""
        log_conditionals = self.model.conditionals(cells, context)
        return log_conditionals.sum(1), log_conditionals


class NextCells(nn.Module):
    """Of every column an outcome and a place on [0, 1], drawn with given noise, told the cells before it.

    A sampler fills cells from the first column to the last: it runs this graph, takes column i of both results, makes
    a value and a cell of it by the column's encoding, and runs the graph again for column i + 1.
    """

    def __init__(self, model: ColumnsModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, cells: Tensor, noise: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(N, 4 D), (N, 2 D) [, (N, 4 C)] -> (N, D) whole numbers, (N, D)."""
        model = self.model
        cells = model._cells(cells, context)
        hidden = model._hidden(cells)
        kinds = cells[:, model._num_context :, 0].long()
        outcomes, places = [], []
        for i, number in enumerate(model.outcomes):
            uniform = noise[:, 2 * i : 2 * i + 2]
            outcome = kinds[:, i] * 0
            if number > 1:
                ends = torch.softmax(model._logits(i, hidden[:, i], kinds), dim=1).cumsum(1)[:, :-1]
                outcome = (ends < uniform[:, :1]).long().sum(1)
            u = uniform[:, 1]
            if model.shapes[i]:
                u = cubic_spline(u, model.splines[i](hidden[:, i]), inverse=True, domain="unit")[0]
            outcomes.append(outcome)
            places.append(u)
        return torch.stack(outcomes, dim=1), torch.stack(places, dim=1)


def graph_of(model: nn.Module, *, sampler: bool) -> Graph:
    """What to trace of a model. Refuses a sampler that no graph can hold.

    >>> import cubicflow as cf
    >>> graph = graph_of(cf.flows.tabular(3, num_layers=1, hidden_features=8, context_features=2), sampler=False)
    >>> graph.inputs, graph.outputs
    ({'x': (3,), 'context': (2,)}, ('log_prob',))
    """
    if isinstance(model, Mixture) and sampler:
        raise ExportError(
            "a Mixture has no map from noise to samples; export the samplers of its flows, mixture.flows, and choose "
            "among them by its weights"
        )
    if isinstance(model, Flow | Mixture):
        check_loops(model, inverse=sampler)
        model = frozen(model)
        told = {"context": (model.context_features,)} if model.context_features else {}
        if isinstance(model, Flow) and sampler:
            features = model.base.features + isinstance(model.base, FixedMixture)
            return Graph(Sampler(model), {"noise": (features,), **told}, ("x", "log_prob"), noise_of(model.base))
        return Graph(LogDensity(model), {"x": tuple(model.shape), **told}, ("log_prob",))
    from cubicflow.tables.columns_model import ColumnsModel

    if not isinstance(model, ColumnsModel):
        raise ExportError(
            f"a {type(model).__name__} cannot be exported; give a Flow, a Mixture, a ColumnsModel or a FittedTable"
        )
    columns = frozen(model)
    told = {"context": (columns.context_features,)} if columns.context_features else {}
    cells = columns.shape
    if sampler:
        inputs = {"cells": cells, "noise": (2 * len(columns.outcomes),), **told}
        return Graph(NextCells(columns), inputs, ("outcomes", "places"), "uniform on [0, 1)")
    return Graph(CellsDensity(columns), {"cells": cells, **told}, ("log_prob", "log_conditionals"))


def noise_of(base: Base) -> str:
    """What the noise of a sampler is, in words for whoever draws it."""
    if isinstance(base, StandardNormal):
        return "standard normal"
    if isinstance(base, Uniform):
        return "uniform on [0, 1)"
    if isinstance(base, FixedMixture):
        return "standard normal; the last column uniform on [0, 1)"
    if isinstance(base, ByColumn):
        names = ["standard normal" if domain == "real" else "uniform on [0, 1)" for domain in base.domains]
        return "by column: " + ", ".join(names)
    return f"draws of the base, {type(base).__name__}"


def _log_prob(flow: Flow, x: Tensor, context: Tensor | None) -> Tensor:
    z, log_det = flow.transform(x, context)
    log_prob: Tensor = flow.base.log_prob(z) + log_det
    return log_prob
