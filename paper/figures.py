"""Figures of the paper: single splines, and grids of grey images in the layout of its Figure 3."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from cubicflow.plots.style import DATA, INK, SAMPLES, make_figure

Floats = NDArray[np.float64]


def spline_and_derivative(x: Floats, y: Floats, slope: Floats, x_knots: Floats, y_knots: Floats) -> Figure:
    """Draw a map with its knots on the left, and its derivative on the right."""
    figure = make_figure(8, 3.6)
    left, right = figure.subplots(1, 2)
    left.plot(x, y, color=DATA)
    left.plot(x_knots, y_knots, "o", color=INK, markersize=4)
    left.set(title="monotone cubic spline", xlabel="x", ylabel="g(x)")
    right.plot(x, slope, color=SAMPLES)
    right.plot(x_knots, np.interp(x_knots, x, slope), "o", color=INK, markersize=4)
    right.set(title="its derivative", xlabel="x", ylabel="g'(x)", ylim=(0, None))
    return figure


class KnotPanel(NamedTuple):
    """Panel with a cubic and a quadratic spline over x, and their common knots."""

    title: str
    x: Floats
    cubic: Floats
    quadratic: Floats
    x_knots: Floats
    y_knots: Floats


def through_knots(panels: Sequence[KnotPanel]) -> Figure:
    """Draw a panel for each set of knots."""
    figure = make_figure(4.2 * len(panels), 3.6)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        axes.plot(panel.x, panel.quadratic, color=SAMPLES, label="quadratic")
        axes.plot(panel.x, panel.cubic, color=DATA, label="cubic")
        axes.plot(panel.x_knots, panel.y_knots, "o", color=INK, markersize=4)
        axes.set(title=panel.title, xlabel="x")
        axes.legend(frameon=False)
    return figure


def image_grids(grids: Mapping[str, NDArray[np.floating[Any]]], top: float = 256.0) -> Figure:
    """Draw a square grid of images (n, height, width) for each title. The value ``top`` is white."""
    figure = make_figure(4 * len(grids), 4.3)
    for axes, (title, pictures) in zip(figure.subplots(1, len(grids), squeeze=False)[0], grids.items(), strict=True):
        axes.imshow(tiled(pictures), cmap="gray", vmin=0, vmax=top, interpolation="nearest")
        axes.set(title=title, xticks=[], yticks=[])
    return figure


def tiled(pictures: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """Return n images as one image: the smallest square grid that holds them, filled row by row.

    >>> tiled(np.arange(4.0).reshape(4, 1, 1))
    array([[0., 1.],
           [2., 3.]])
    """
    n, height, width = pictures.shape
    side = math.ceil(math.sqrt(n))
    padded = np.zeros((side * side, height, width), pictures.dtype)
    padded[:n] = pictures
    return padded.reshape(side, side, height, width).swapaxes(1, 2).reshape(side * height, side * width)
