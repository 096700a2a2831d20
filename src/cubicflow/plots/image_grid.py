"""Grids of grey images, in the layout of Figure 3 of the paper."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from cubicflow.plots.style import make_figure


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
