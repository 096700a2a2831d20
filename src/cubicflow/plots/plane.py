"""Two-dimensional densities in the layout of Figure 2 of the paper, with a fourth panel for the true density."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cubicflow.data.plane import GaussianGrid, ImageDensity
from cubicflow.flows import Flow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Image = NDArray[np.floating]
TITLES = ("data", "true density", "model density", "model samples")


class PlaneRow(NamedTuple):
    """Row of a figure: the name of a density, and four square images of it.

    >>> image = np.ones((8, 8))
    >>> PlaneRow("uniform", image, image, image, image).name
    'uniform'
    """

    name: str
    data: Image
    truth: Image
    density: Image
    samples: Image


def histogram_image(points: NDArray[np.floating], size: int) -> Image:
    """Count points (n, 2) of the unit square in pixels: (size, size), the first row at the bottom.

    >>> histogram_image(np.array([[0.9, 0.1], [0.8, 0.2]]), 2)
    array([[0., 2.],
           [0., 0.]])
    """
    counts: Image = np.histogram2d(points[:, 1], points[:, 0], bins=size, range=[[0, 1], [0, 1]])[0]
    return counts


@torch.no_grad()
def density_image(flow: Flow, size: int) -> Image:
    """Return the flow's density at the centre of every pixel: (size, size), the first row at the bottom.

    >>> import cubicflow as cf
    >>> density_image(cf.flows.plane(num_bins=8), 2)  # an untrained plane flow is the uniform density
    array([[1., 1.],
           [1., 1.]], dtype=float32)
    """
    points = torch.from_numpy(_centres(size)).float().to(next(flow.parameters()).device)
    return flow.log_prob(points, batch_size=65_536).exp().cpu().numpy()


def truth_image(density: GaussianGrid | ImageDensity, size: int) -> Image:
    """Return the true density at the centre of every pixel: (size, size), the first row at the bottom.

    >>> truth_image(ImageDensity([[0, 1], [1, 2]]), 2)  # a picture has its first row at the top
    array([[1., 2.],
           [0., 1.]])
    """
    return np.exp(density.log_prob(_centres(size).reshape(-1, 2))).reshape(size, size)


def plane_figure(rows: Sequence[PlaneRow], cut: float = 0.995) -> Figure:
    """Draw a figure with one line of panels for each row.

    The two density panels of a row share a grey scale, from 0 to the ``cut`` quantile of the true density. Data and
    samples share another scale, up to the ``cut`` quantile of the data: counts scatter far above the density, so the
    densities would be pale on the scale of the counts.

    >>> image = np.ones((8, 8))
    >>> len(plane_figure([PlaneRow("uniform", image, image, image, image)]).axes)
    4
    """
    from cubicflow.plots.style import make_figure

    figure = make_figure(3 * len(TITLES), 3 * len(rows) + 0.3)
    axes = figure.subplots(len(rows), len(TITLES), squeeze=False, subplot_kw={"aspect": "equal"})
    for number, (line, row) in enumerate(zip(axes, rows, strict=True)):
        data, samples = (_as_density(image) for image in (row.data, row.samples))
        top_of_counts, top_of_densities = (float(np.quantile(image, cut)) for image in (data, row.truth))
        tops = (top_of_counts, top_of_densities, top_of_densities, top_of_counts)
        for axis, image, top, title in zip(line, (data, row.truth, row.density, samples), tops, TITLES, strict=True):
            axis.imshow(
                image, origin="lower", extent=(0, 1, 0, 1), cmap="gray_r", vmin=0, vmax=top, interpolation="nearest"
            )
            axis.set(xticks=[], yticks=[], title="" if number else title)
        line[0].set_ylabel(row.name)
    return figure


def _centres(size: int) -> Image:
    """Return the centre (x, y) of every pixel: (size, size, 2), the first row at the bottom."""
    axis = (np.arange(size) + 0.5) / size
    y, x = np.meshgrid(axis, axis, indexing="ij")
    return np.stack([x, y], axis=-1)


def _as_density(counts: Image) -> Image:
    return counts * (counts.size / max(float(counts.sum()), 1))
