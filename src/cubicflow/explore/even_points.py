"""Points of a known density on the unit square, spread evenly, so that a picture of them has little noise.

The square is cut into blocks, and each block gets its expected number of points, rounded up or down (systematic
sampling). The position of a point in its block is random. With independent random points, the count in a cell of n
points has a relative error of 1 / sqrt(n). With these points, the error is much smaller.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from cubicflow.weights import Floats, systematic

BLOCKS = 256  # blocks on each side of the square


class KnownDensity(Protocol):
    """A density on the unit square whose masses of blocks are known."""

    def masses(self, edges: Floats) -> Floats:
        """Return the probability of every block between the edges on both axes, bottom row first."""


def even_points(density: KnownDensity, n: int, seed: int = 0) -> Floats:
    """Return n points (n, 2) of a density on the unit square, spread evenly.

    >>> from cubicflow.data.plane import ImageDensity
    >>> points = even_points(ImageDensity([[0, 1], [0, 3]]), 1000)  # the lower right pixel has 3/4 of the mass
    >>> points.shape, float((points[:, 1] < 0.5).mean()), float(points[:, 0].min()) >= 0.5
    ((1000, 2), 0.75, True)
    """
    generator = np.random.default_rng(seed)
    masses = density.masses(np.linspace(0, 1, BLOCKS + 1))
    row, column = np.divmod(systematic(masses.ravel(), n, generator.random()), BLOCKS)
    found: Floats = (np.stack([column, row], axis=1) + generator.random((n, 2))) / BLOCKS
    return found
