"""How sharp a fitted density is, in pixels of the truth: which average of the truth over blocks is as far from it as the
fit, and how far a histogram of the same points is.

A block size is in pixels. Blocks are laid from the lower left corner, and those that reach over the upper or the right
edge of the square are cut there. The truth's mean over every block is a density of its own. Its gap is
E[log p - log p_blocks] under the truth p, exact up to rounding: log p_blocks is constant on a block, so its mean needs the
masses of the blocks alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cubicflow.data.plane import GaussianGrid, ImageDensity, pixel_shares

Values = NDArray[np.float64]
Density = GaussianGrid | ImageDensity


class BestHistogram(NamedTuple):
    """How far a histogram is from the truth, in nats, and its block size in pixels."""

    gap: float
    size: int


def block_edges(size: float, pixels: int) -> Values:
    """Where the blocks of one axis of ``pixels`` pixels begin and end, on [0, 1].

    >>> block_edges(3, 8)
    array([0.   , 0.375, 0.75 , 1.   ])
    """
    return np.append(np.arange(0, pixels, size), pixels) / pixels


def block_sizes(density: Density, pixels: int) -> list[float]:
    """The sizes that are tried: whole numbers of pixels, up to one block for the whole square. Gaussians have no pixels,
    so theirs begin at a quarter and go up by eighths to 2. A picture's do not: a block that cuts pixels averages across
    their edges, however small it is.

    >>> block_sizes(ImageDensity(np.ones((4, 4))), 4)
    [1, 2, 3, 4]
    """
    finer = [] if isinstance(density, ImageDensity) else [eighths / 8 for eighths in range(2, 16) if eighths != 8]
    return sorted([*finer, *range(1, pixels + 1)])


def gap_of_blocks(density: Density, size: float, pixels: int) -> float:
    """The gap of the truth's mean over blocks, in nats.

    >>> gap_of_blocks(ImageDensity([[0, 1], [0, 0]]), 2, 2) == math.log(4)  # a quarter of the square, spread over all
    True
    """
    edges = block_edges(size, pixels)
    masses = density.masses(edges)
    filled = masses > 0
    return density.expected_log_prob() - float(masses[filled] @ np.log((masses / _areas(edges))[filled]))


def size_with_gap(gap: float, sizes: Sequence[float], gaps: Sequence[float]) -> float | None:
    """The smallest block size whose gap is ``gap``, by a straight line between neighbours in the logarithm of the size.
    It is the first of ``sizes`` where its gap is no smaller, and None where all gaps are smaller.

    >>> size_with_gap(0.15, [1, 2, 8], [0.0, 0.1, 0.2]), size_with_gap(0.3, [1, 2, 8], [0.0, 0.1, 0.2])
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
    """The histogram of points, given as ``counts`` of pixels with the first row at the bottom. Every block has one point
    added to its own. The block size, a whole number of pixels, is the one under which each point is most likely when it
    is left out of the counts; the truth is not asked. The gap is that of unseen points, exact up to rounding.

    >>> best_histogram(np.array([[0.0, 0.0], [0.0, 9.0]]), ImageDensity([[0, 1], [0, 0]]))
    BestHistogram(gap=0.262364264467491, size=1)
    """
    pixels = len(counts)
    size = max(range(1, pixels + 1), key=lambda size: _left_out_score(*_blocks(counts, size)))
    counted, areas = _blocks(counts, size)
    log_histogram = np.log((counted + 1) / ((counted.sum() + counted.size) * areas))
    mean = float((density.masses(block_edges(size, pixels)) * log_histogram).sum())
    return BestHistogram(density.expected_log_prob() - mean, size)


def _left_out_score(counted: Values, areas: Values) -> float:
    """The mean log density of the points under the histogram of the others: a point finds its block's count less
    itself, and the one that is added."""
    filled = counted > 0
    left_out = counted[filled] / ((counted.sum() - 1 + counted.size) * areas[filled])
    return float(counted[filled] @ np.log(left_out)) / float(counted.sum())


def _blocks(counts: Values, size: int) -> tuple[Values, Values]:
    """The counts of blocks, and their areas, both (m, m)."""
    edges = block_edges(size, len(counts))
    shares = pixel_shares(edges, len(counts))
    return shares @ counts @ shares.T, _areas(edges)


def _areas(edges: Values) -> Values:
    widths = np.diff(edges)
    return np.outer(widths, widths)
