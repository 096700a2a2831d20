"""Two-dimensional densities in the layout of the paper's second figure: data, density, samples, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cubicflow.flows import Flow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Image = NDArray[np.floating]
TITLES = ("data", "model density", "model samples")


class PlaneRow(NamedTuple):
    """One density: its name, and three square images of it.

    >>> image = np.ones((8, 8))
    >>> PlaneRow("uniform", image, image, image).name
    'uniform'
    """

    name: str
    data: Image
    density: Image
    samples: Image


def histogram_image(points: NDArray[np.floating], size: int) -> Image:
    """Points (n, 2) of the unit square as counts, (size, size), the first row at the bottom.

    >>> histogram_image(np.array([[0.9, 0.1], [0.8, 0.2]]), 2)
    array([[0., 2.],
           [0., 0.]])
    """
    counts: Image = np.histogram2d(points[:, 1], points[:, 0], bins=size, range=[[0, 1], [0, 1]])[0]
    return counts


@torch.no_grad()
def density_image(flow: Flow, size: int) -> Image:
    """The flow's density at the middle of every pixel, (size, size), the first row at the bottom.

    >>> import cubicflow as cf
    >>> density_image(cf.flows.plane(num_bins=8), 2)  # it starts as the uniform density
    array([[1., 1.],
           [1., 1.]], dtype=float32)
    """
    axis = (torch.arange(size) + 0.5) / size
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    points = torch.stack([x, y], dim=-1).to(next(flow.parameters()).device)
    return flow.log_prob(points, batch_size=65_536).exp().cpu().numpy()


def plane_figure(rows: Sequence[PlaneRow], cut: float = 0.995) -> Figure:
    """A figure of the rows. Within a row all three images share one scale of density, from 0 to the ``cut`` quantile of
    the data's, so that brightness means the same in each.

    >>> image = np.ones((8, 8))
    >>> len(plane_figure([PlaneRow("uniform", image, image, image)]).axes)
    3
    """
    from cubicflow.plots.style import make_figure

    figure = make_figure(9, 3 * len(rows) + 0.3)
    axes = figure.subplots(len(rows), 3, squeeze=False, subplot_kw={"aspect": "equal"})
    for number, (line, row) in enumerate(zip(axes, rows, strict=True)):
        data, samples = (_as_density(image) for image in (row.data, row.samples))
        top = float(np.quantile(data, cut))
        for axis, image, title in zip(line, (data, row.density, samples), TITLES, strict=True):
            axis.imshow(
                image, origin="lower", extent=(0, 1, 0, 1), cmap="gray_r", vmin=0, vmax=top, interpolation="nearest"
            )
            axis.set(xticks=[], yticks=[], title="" if number else title)
        line[0].set_ylabel(row.name)
    return figure


def _as_density(counts: Image) -> Image:
    return counts * (counts.size / max(float(counts.sum()), 1))
