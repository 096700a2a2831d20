"""The figure of plane densities: its layout, and that points end up where they are."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from cubicflow.plots.plane import TITLES, PlaneRow, histogram_image, plane_figure


def test_points_are_counted_where_they_lie():
    image = histogram_image(np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.6]]), 4)
    assert image.sum() == 3
    assert image[0, 3] == 2, "x to the right, y upwards from the first row"
    assert image[2, 0] == 1


def test_three_titled_columns_and_a_named_row_for_each_density():
    square = np.random.default_rng(0).random((8, 8))
    figure = plane_figure([PlaneRow("one", square, square, square), PlaneRow("two", square, square, square)])
    axes = np.array(figure.axes).reshape(2, 3)
    assert [axis.get_title() for axis in axes[0]] == list(TITLES)
    assert [axis.get_title() for axis in axes[1]] == ["", "", ""]
    assert [axis.get_ylabel() for axis in axes[:, 0]] == ["one", "two"]
    limits = {axis.images[0].get_clim() for axis in axes[0]}
    assert len(limits) == 1, "one scale of density for all three"
    plt.close(figure)
