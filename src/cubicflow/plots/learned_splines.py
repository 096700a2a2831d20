"""The splines that a flow has learned: each layer's map of one feature, with the other features of a row held fixed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from cubicflow.flows import Flow, Mixture
from cubicflow.plots.style import DATA, INK, panel_grid
from cubicflow.transforms import Compose, Transform

POINTS = 201  # points of a curve
ROWS = 12  # rows, with one curve each
MOST_LAYERS = 12
HALF_WIDTH = 4.0  # curves are drawn from -HALF_WIDTH to HALF_WIDTH


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


def learned_splines(curves: list[Curves]) -> Figure:
    """Draw a panel for each layer, with a line for each row and the identity for comparison.

    >>> x = np.linspace(-1, 1, 5)
    >>> learned_splines([Curves("cubes", x, x[None] ** 3)]).axes[0].get_title()
    'cubes'
    """
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

    The curves of a layer are those of the feature whose map differs most from a straight line.

    >>> import cubicflow as cf
    >>> flow = cf.flows.tabular(2, num_layers=3, hidden_features=8)
    >>> len(spline_curves(flow, torch.randn(5, 2), None))
    3
    """
    if isinstance(flow, Mixture):
        flow = next(part for part in flow.modules() if isinstance(part, Flow))
    rows, conditions = x[:ROWS], None if context is None else flow.embed(context[:ROWS])
    found: list[Curves] = []
    for layer in _layers(flow.transform):
        if not layer.affine:
            found.append(_least_linear(layer, rows, conditions, number=len(found) + 1))
        rows = layer(rows, conditions if layer.context_features else None)[0]
    return found[:MOST_LAYERS]


def _layers(transform: Transform) -> list[Transform]:
    if isinstance(transform, Compose):
        return [layer for part in transform.transforms for layer in _layers(part)]
    return [transform]


def _least_linear(layer: Transform, rows: Tensor, conditions: Tensor | None, number: int) -> Curves:
    """Return the curves of the feature with the largest mean second difference.

    Each feature in turn is moved over a grid, with the other features held fixed.
    """
    n, features = rows.shape
    grid = torch.linspace(-HALF_WIDTH, HALF_WIDTH, POINTS, dtype=rows.dtype, device=rows.device)
    context = None if conditions is None or not layer.context_features else conditions.repeat_interleave(POINTS, 0)
    curves = []
    for feature in range(features):
        moved = rows.repeat_interleave(POINTS, 0)
        moved[:, feature] = grid.repeat(n)
        curves.append(layer(moved, context)[0][:, feature].reshape(n, POINTS))
    feature, y = max(enumerate(curves), key=lambda curve: float(curve[1].diff(n=2).abs().mean()))
    return Curves(f"layer {number}, feature {feature + 1}", grid.double().cpu().numpy(), y.double().cpu().numpy())
