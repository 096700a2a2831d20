"""Sharpness in pixels: gaps of averaged densities and of histograms, compared with loops over pixels and points."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from paper.sharpness import (
    ADDED,
    best_histogram,
    block_edges,
    block_sizes,
    cost_of_points,
    gaps_of_blocks,
    size_with_gap,
)

from cubicflow.data.plane import GaussianGrid, ImageDensity
from cubicflow.plots.plane import histogram_image


@pytest.fixture
def picture() -> ImageDensity:
    """Return a density of 16 x 16 random pixels, some of weight 0."""
    weights = np.random.default_rng(0).random((16, 16))
    weights[weights < 0.1] = 0
    return ImageDensity(weights)


def gap_by_pixels(picture: ImageDensity, size: int) -> float:
    """Return the mean of log p - log p_blocks by a loop over pixels. The blocks start at the lower left."""
    upright, gap = picture.probabilities[::-1], 0.0
    for row, column in itertools.product(range(picture.size), repeat=2):
        mass = upright[row, column]
        bottom, left = row // size * size, column // size * size
        if mass > 0:
            gap += mass * math.log(mass / upright[bottom : bottom + size, left : left + size].mean())
    return gap


def test_gaps_of_blocks_agree_with_a_loop_over_pixels(picture: ImageDensity) -> None:
    sizes = block_sizes(picture, 16)
    assert sizes == list(range(1, 17))  # including sizes that do not divide 16
    expected = [gap_by_pixels(picture, size) for size in range(1, 17)]
    np.testing.assert_allclose(gaps_of_blocks(picture, sizes, 16), expected, rtol=0, atol=1e-13)


def test_pixels_have_no_gap_and_one_block_has_the_gap_of_the_uniform_density(picture: ImageDensity) -> None:
    pixels, square = gaps_of_blocks(picture, [1, 16], 16)
    assert pixels == pytest.approx(0, abs=1e-14)
    assert square == pytest.approx(picture.expected_log_prob(), abs=1e-14)


def test_blocks_within_blocks_have_smaller_gaps(picture: ImageDensity) -> None:
    assert (np.diff(gaps_of_blocks(picture, [1, 2, 4, 8, 16], 16)) > 0).all()
    gaussians = gaps_of_blocks(GaussianGrid(), [0.25, 0.5, 1, 2, 4, 8, 16], 64)
    assert gaussians[0] > 0
    assert (np.diff(gaussians) > 0).all()


def test_gaps_of_gaussians_against_points() -> None:
    grid, size, pixels = GaussianGrid(side=3, std=0.05), 3, 32
    points = grid.sample(200_000, 0)
    edges = block_edges(size, pixels)
    # The block of each point, and the mean of the true density over it at 9 x 9 Gauss-Legendre nodes.
    nodes, weights = np.polynomial.legendre.leggauss(9)
    x = (edges[:-1, None] + np.diff(edges)[:, None] * (nodes + 1) / 2).ravel()
    y_grid, x_grid = np.meshgrid(x, x, indexing="ij")
    density = np.exp(grid.log_prob(np.stack([x_grid, y_grid], -1).reshape(-1, 2)))
    blocks = len(edges) - 1
    means = np.einsum("iajb,a,b->ij", density.reshape(blocks, 9, blocks, 9), weights / 2, weights / 2)
    column, row = (np.searchsorted(edges, points, side="right") - 1).clip(0, blocks - 1).T
    differences = grid.log_prob(points) - np.log(means[row, column])
    error = differences.std() / math.sqrt(len(points))
    (gap,) = gaps_of_blocks(grid, [size], pixels)
    assert error < gap / 50
    assert abs(gap - differences.mean()) < 4 * error


def test_sizes_are_interpolated_in_their_logarithm() -> None:
    sizes, gaps = [1, 2, 4, 16], [0.0, 0.1, 0.3, 0.2]
    assert [size_with_gap(gap, sizes, gaps) for gap in gaps] == pytest.approx([1, 2, 4, 2 * 2**0.5])
    share = 0.25
    found = size_with_gap(0.1 + share * 0.2, sizes, gaps)
    assert found is not None
    assert math.log(found) == pytest.approx((1 - share) * math.log(2) + share * math.log(4))
    assert size_with_gap(-0.1, sizes, gaps) == 1
    assert size_with_gap(0.31, sizes, gaps) is None


def test_the_sharpness_of_a_picture_averaged_over_blocks_is_the_block_size(picture: ImageDensity) -> None:
    sizes = block_sizes(picture, 16)
    gaps = gaps_of_blocks(picture, sizes, 16)
    averaged = picture.probabilities.reshape(4, 4, 4, 4).mean(axis=(1, 3), keepdims=True)
    blurred = ImageDensity(np.broadcast_to(averaged, (4, 4, 4, 4)).reshape(16, 16))
    filled = picture.probabilities > 0
    p, q = picture.probabilities[filled], blurred.probabilities[filled]
    found = size_with_gap(float(p @ np.log(p / q)), sizes, gaps)
    assert found is not None
    assert found == pytest.approx(4, rel=1e-9)


def histogram_score(train: np.ndarray, test: np.ndarray, size: int, added: float, pixels: int) -> np.ndarray:
    """Return log densities of test points under a histogram of training points, by comparing their blocks."""
    first, last = ((points * pixels).astype(int) // size for points in (train, test))
    side = -(-pixels // size)
    widths = np.minimum(size, pixels - size * np.arange(side)) / pixels
    same = (last[:, None, :] == first[None]).all(axis=2).sum(axis=1)
    areas = widths[last[:, 0]] * widths[last[:, 1]]
    return np.log((same + added) / (len(train) + added * side**2) / areas)


def test_the_histogram_maximises_the_leave_one_out_score(picture: ImageDensity) -> None:
    points = picture.sample(150, 0)
    scores = {
        (size, added): np.mean(
            [
                histogram_score(np.delete(points, place, axis=0), points[place : place + 1], size, added, 16)
                for place in range(len(points))
            ]
        )
        for size in range(1, 17)
        for added in ADDED
    }
    found = best_histogram(histogram_image(points, 16), picture)
    assert (found.size, found.added) == max(scores, key=lambda choice: scores[choice])


def test_the_gap_of_a_histogram_is_its_mean_over_all_pixels(picture: ImageDensity) -> None:
    points = picture.sample(3_000, 0)
    found = best_histogram(histogram_image(points, 16), picture)
    axis = (np.arange(16) + 0.5) / 16
    middles = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    log_density = picture.log_prob(middles)
    scores = histogram_score(points, middles, found.size, found.added, 16)
    filled = np.isfinite(log_density)
    masses = np.exp(log_density[filled]) / 16**2
    assert found.gap == pytest.approx(float(masses @ (log_density - scores)[filled]), abs=1e-12)


def test_the_cost_of_finite_points_is_half_the_difference_of_the_gaps(picture: ImageDensity) -> None:
    """A histogram is a maximum-likelihood fit. Its best density is the true density averaged over blocks."""
    points, draws = 20_000, 1_000
    truth = picture.probabilities[::-1]
    filled = truth > 0
    counts = np.random.default_rng(0).multinomial(points, truth.ravel(), size=draws).reshape(draws, 16, 16)
    blocks = counts.reshape(draws, 8, 2, 8, 2).sum(axis=(2, 4), keepdims=True) / (4 * points)
    fitted = np.broadcast_to(blocks, (draws, 8, 2, 8, 2)).reshape(draws, 16, 16)
    differences = np.log(truth[filled] / fitted[:, filled])  # (draws, pixels)
    gaps = differences @ truth[filled]
    training_gaps = (differences * counts[:, filled]).sum(axis=1) / points
    costs = [cost_of_points(*pair) for pair in zip(gaps, training_gaps, strict=True)]
    (best,) = gaps_of_blocks(picture, [2], 16)
    error = np.std(np.array(costs) - (gaps - best)) / math.sqrt(draws)
    expected = float(np.mean(gaps)) - best
    assert error < expected / 20
    assert abs(np.mean(costs) - expected) < 4 * error


def test_a_histogram_of_gaussians_adds_little_to_empty_blocks() -> None:
    counts = histogram_image(GaussianGrid().sample(20_000, 0), 64)
    found = best_histogram(counts, GaussianGrid())
    assert found.added == min(ADDED)
    assert 0 < found.gap < GaussianGrid().expected_log_prob()
