"""The sharpness of a fitted density, in pixels.

The sharpness is the block size for which the true density, averaged over blocks, has the same gap as the fit. For
comparison, this module also computes the gap of the best histogram of the same points.

A block size is in pixels. Blocks start at the lower left corner; blocks that cross the upper or the right edge of the
square are cut off there. The mean of the truth over every block is again a density. Its gap is
E[log p - log p_blocks] under the truth p. The gap is exact up to rounding: log p_blocks is constant on a block, so its
mean needs only the masses of the blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cubicflow.data.plane import GaussianGrid, ImageDensity, pixel_shares

Values = NDArray[np.float64]
Density = GaussianGrid | ImageDensity
ADDED = (1.0, 0.1)  # constants tried for histogram counts; 0.1 suits densities near 0 on most of the square


class BestHistogram(NamedTuple):
    """The gap of a histogram in nats, its block size in pixels, and the constant added to each count.

    >>> BestHistogram(gap=0.01, size=7, added=1.0).size
    7
    """

    gap: float
    size: int
    added: float


def block_edges(size: float, pixels: int) -> Values:
    """Return the edges of the blocks on one axis of ``pixels`` pixels, in [0, 1].

    >>> block_edges(3, 8)
    array([0.   , 0.375, 0.75 , 1.   ])
    """
    return np.append(np.arange(0, pixels, size), pixels) / pixels


def block_sizes(density: Density, pixels: int) -> list[float]:
    """Return the block sizes to try: whole numbers of pixels, up to one block for the whole square.

    Gaussians have no pixels, so their sizes start at a quarter of a pixel and go up in eighths to 2. Pictures get no
    fractions: a block that cuts pixels averages across the edges of pixels, however small the block is.

    >>> block_sizes(ImageDensity(np.ones((4, 4))), 4)
    [1, 2, 3, 4]
    """
    finer = [] if isinstance(density, ImageDensity) else [eighths / 8 for eighths in range(2, 16) if eighths != 8]
    return sorted([*finer, *range(1, pixels + 1)])


def gaps_of_blocks(density: Density, sizes: Sequence[float], pixels: int) -> list[float]:
    """Return, for each block size, the gap of the truth's mean over blocks, in nats.

    >>> gaps = gaps_of_blocks(ImageDensity([[0, 1], [0, 0]]), [1, 2], 2)
    >>> np.exp(gaps)  # all mass is in a quarter of the square; one block spreads it over the whole square
    array([1., 4.])
    """
    truth = density.expected_log_prob()
    gaps = []
    for size in sizes:
        edges = block_edges(size, pixels)
        masses = density.masses(edges)
        filled = masses > 0
        gaps.append(truth - float(masses[filled] @ np.log((masses / _areas(edges))[filled])))
    return gaps


def size_with_gap(gap: float, sizes: Sequence[float], gaps: Sequence[float]) -> float | None:
    """Return the smallest block size with gap ``gap``, interpolated linearly in the logarithm of the size.

    Returns the first size if all gaps are larger than ``gap``, and None if all gaps are smaller.

    >>> size_with_gap(1.5, [1, 2, 8], [0, 1, 2]), size_with_gap(3, [1, 2, 8], [0, 1, 2])
    (4.0, None)
    """
    above = next((place for place, value in enumerate(gaps) if value >= gap), None)
    if above is None:
        return None
    if above == 0:
        return float(sizes[0])
    share = (gap - gaps[above - 1]) / (gaps[above] - gaps[above - 1])
    return float(sizes[above - 1] * (sizes[above] / sizes[above - 1]) ** share)


def best_histogram(counts: Values, density: Density) -> BestHistogram:
    """Return the best histogram of points, given as ``counts`` of pixels with the first row at the bottom.

    The block size, a whole number of pixels, and the constant added to every block's count are chosen together by
    leave-one-out cross-validation, without the truth. The gap is the expected gap on unseen points, computed under the
    truth and exact up to rounding.

    >>> best = best_histogram(np.array([[9.0, 0.0], [0.0, 0.0]]), ImageDensity([[0, 0], [1, 0]]))
    >>> best.size, best.added, round(best.gap, 4)  # the histogram gives (9 + 0.1) / (9 + 0.4) of its mass to that pixel
    (1, 0.1, 0.0324)
    """
    sizes = range(1, len(counts) + 1)
    _, size, added = max((_left_out_score(*_blocks(counts, size), a), size, a) for size in sizes for a in ADDED)
    counted, areas = _blocks(counts, size)
    log_histogram = np.log((counted + added) / ((counted.sum() + added * counted.size) * areas))
    mean = float((density.masses(block_edges(size, len(counts))) * log_histogram).sum())
    return BestHistogram(density.expected_log_prob() - mean, size, added)


def cost_of_points(gap: float, training_gap: float) -> float:
    """Estimate how much of the ``gap`` on unseen points, in nats, is due to the finite number of training points.

    Relative to the best density of the model class, a maximum likelihood fit loses this much on unseen points and gains
    as much on its training points (Akaike). For a fit that was stopped early, the estimate is only approximate.

    >>> cost_of_points(gap=5.0, training_gap=1.0)  # the best density of the class has a gap of 3
    2.0
    """
    return (gap - training_gap) / 2


def _left_out_score(counted: Values, areas: Values, added: float) -> float:
    """Return the mean log density of the points, each under the histogram of all other points."""
    filled, points = counted > 0, float(counted.sum())
    left_out = (counted[filled] - 1 + added) / ((points - 1 + added * counted.size) * areas[filled])
    return float(counted[filled] @ np.log(left_out)) / points


def _blocks(counts: Values, size: int) -> tuple[Values, Values]:
    """Return the counts and the areas of blocks, both (m, m)."""
    edges = block_edges(size, len(counts))
    shares = pixel_shares(edges, len(counts))
    return shares @ counts @ shares.T, _areas(edges)


def _areas(edges: Values) -> Values:
    widths = np.diff(edges)
    return np.outer(widths, widths)
