"""The splines that a flow has learned: each layer's map of one feature, with the other features of a row held fixed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.flows import Flow, Mixture
from cubicflow.transforms import Compose, Transform

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = 201  # points of a curve
ROWS = 12  # rows, with one curve each
MOST_LAYERS = 12


@dataclass(frozen=True)
class Curves:
    """Curves of one layer's map of one feature: ``y`` (rows, points) over ``x`` (points,).

    >>> x = np.linspace(-1, 1, 5)
    >>> Curves("the identity", x, x[None]).y.shape
    (1, 5)
    """

    title: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    feature: int = 0


def learned_splines(curves: list[Curves]) -> Figure:
    """Draw a panel for each layer, with a line for each row and the identity for comparison.

    >>> x = np.linspace(-1, 1, 5)
    >>> learned_splines([Curves("cubes", x, x[None] ** 3)]).axes[0].get_title()
    'cubes'
    """
    from cubicflow.plots.style import DATA, INK, panel_grid  # the page, which draws by itself, needs no matplotlib

    figure, grid = panel_grid(len(curves), 2.6, 2.5)
    for axes, panel in zip(grid, curves, strict=True):
        axes.plot(panel.x, panel.x, color=INK, linewidth=0.6, linestyle=":")
        axes.plot(panel.x, panel.y.T, color=DATA, linewidth=0.8, alpha=0.6)
        axes.set_title(panel.title, fontsize=9)
        axes.tick_params(labelsize=7)
    return figure


@torch.no_grad()
def spline_curves(flow: Flow | Mixture, x: Tensor, context: Tensor | None) -> list[Curves]:
    """Return the curves of each nonlinear layer, for a few rows of x.

    The curves of a layer are those of the feature whose map differs most from a straight line, between the smallest and
    the largest value of the feature in x.

    >>> import cubicflow as cf
    >>> flow = cf.flows.tabular(2, num_layers=3, hidden_features=8)
    >>> len(spline_curves(flow, torch.randn(5, 2), None))
    3
    """
    flow = flow.flows[0] if isinstance(flow, Mixture) else flow
    conditions = None if context is None else flow.embed(context)
    found: list[Curves] = []
    for layer in layers_of(flow.transform):
        given = conditions if layer.context_features else None
        if not layer.affine:
            bent = most_bent(layer, x, given)
            found.append(replace(bent, title=f"layer {len(found) + 1}, feature {bent.feature + 1}"))
        x = layer(x, given)[0]
    return found[:MOST_LAYERS]


def layers_of(transform: Transform) -> list[Transform]:
    """Return the layers of a transform, from data to noise.

    >>> import cubicflow as cf
    >>> [type(layer).__name__ for layer in layers_of(cf.flows.tabular(2, num_layers=2, hidden_features=8).transform)]
    ['LULinear', 'Coupling', 'LULinear', 'Coupling', 'LULinear']
    """
    if isinstance(transform, Compose):
        return [layer for part in transform.transforms for layer in layers_of(part)]
    return [transform]


@torch.no_grad()
def most_bent(layer: Transform, rows: Tensor, context: Tensor | None = None, features: int | None = None) -> Curves:
    """Return curves of the feature with the most curved map in a layer, among the first ``features`` (default: all).

    Each feature in turn is moved over the range of all rows, or over [0, 1] if all values lie inside. The other
    features of the first ROWS rows are held fixed. The curvature is the mean second difference of the outputs, divided
    by their range.

    >>> from cubicflow.transforms import Sigmoid
    >>> most_bent(Sigmoid(), torch.tensor([[-1.0, -9.0], [1.0, 9.0]])).feature
    1
    """
    some = rows[:ROWS]
    given = None if context is None else context[:ROWS].repeat_interleave(POINTS, 0)
    best, bend = None, -1.0
    for feature in range(rows.shape[1])[:features]:
        low, high = float(rows[:, feature].min()), float(rows[:, feature].max())
        low, high = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
        grid = torch.linspace(low, high, POINTS, dtype=rows.dtype, device=rows.device)
        moved = some.repeat_interleave(POINTS, 0)
        moved[:, feature] = grid.repeat(len(some))
        y = layer(moved, given)[0][:, feature].reshape(len(some), POINTS)
        bent = float(y.diff(n=2).abs().mean() / (y.max() - y.min()).clamp(min=1e-12))
        if best is None or bent > bend:
            name = f"feature {feature + 1}"
            best, bend = Curves(name, grid.double().cpu().numpy(), y.double().cpu().numpy(), feature), bent
    if best is None:
        raise ValueError(f"cannot draw a spline of {type(layer).__name__}: it has no features")
    return best
