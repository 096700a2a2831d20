"""The figure of plane densities: its layout, and the position of points."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from cubicflow.data.plane import GaussianGrid, ImageDensity
from cubicflow.plots.plane import TITLES, PlaneRow, histogram_image, plane_figure, truth_image


def test_points_are_counted_in_their_pixel():
    image = histogram_image(np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.6]]), 4)
    assert image.sum() == 3
    assert image[0, 3] == 2, "x points right, y points up from the first row"
    assert image[2, 0] == 1


def test_four_titled_columns_and_a_named_row_for_each_density():
    counts, truth, density, samples = np.random.default_rng(0).random((4, 8, 8)) * [[[3]], [[1]], [[2]], [[4]]]
    figure = plane_figure([PlaneRow(name, counts, truth, density, samples) for name in ("one", "two")])
    axes = np.array(figure.axes).reshape(2, 4)
    assert [axis.get_title() for axis in axes[0]] == list(TITLES)
    assert [axis.get_title() for axis in axes[1]] == ["", "", "", ""]
    assert [axis.get_ylabel() for axis in axes[:, 0]] == ["one", "two"]
    data, true, model, drawn = (axis.images[0].get_clim() for axis in axes[0])
    assert true == model == (0, np.quantile(truth, 0.995)), "both densities have the same scale"
    assert data == drawn == (0, np.quantile(counts / counts.mean(), 0.995)), "data and samples have the same scale"
    plt.close(figure)


def test_the_panel_of_the_truth_is_the_picture():
    picture = np.random.default_rng(0).random((16, 16))
    truth = truth_image(ImageDensity(picture), 16)
    figure = plane_figure([PlaneRow("noise", truth, truth, truth, truth)])
    shown = figure.axes[TITLES.index("true density")].images[0]
    assert shown.origin == "lower"
    upright = np.asarray(shown.get_array())[::-1]
    np.testing.assert_allclose(upright, picture / picture.mean(), rtol=1e-12)
    plt.close(figure)


def test_the_true_density_is_evaluated_at_the_middles_of_pixels():
    grid = GaussianGrid(side=2, std=0.1)
    image = truth_image(grid, 8)
    for row, column in ((0, 0), (1, 6), (5, 2)):
        middle = [[(column + 0.5) / 8, (row + 0.5) / 8]]
        np.testing.assert_allclose(image[row, column], np.exp(grid.log_prob(middle)[0]), rtol=1e-12)
