"""Densities on the unit square whose log density is known exactly: a grid of Gaussians, and any picture.

Both classes have the same four methods. ``sample`` draws points as an (n, 2) float32 array. ``log_prob`` returns the
true log density in float64. ``expected_log_prob`` returns its mean under the density itself, which is the best score
that a model can have. ``masses`` returns the probabilities of the blocks of a grid.
Coordinates are (x, y) with y upwards, so a scatter plot of a picture's points is upright.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cubicflow.arguments import number, one_of, positive
from cubicflow.extras import need
from cubicflow.weights import systematic

Points = NDArray[np.float32]
Values = NDArray[np.float64]

BLOCKS = 256  # blocks on each side of the square, for points that are spread evenly
_ROWS_AT_ONCE = 1 << 16  # bounds the (rows, side) arrays in GaussianGrid.log_prob


class GaussianGrid:
    """Mixture of ``side`` x ``side`` equal Gaussians with centres (i + 1/2) / side, truncated to the unit square.

    The mixture is a product of two equal one-dimensional mixtures m(x) m(y), because every pair of centres occurs once
    with the same weight. Points outside [0, 1]^2 are rejected, which divides m by its mass Z on [0, 1]:

        log p(x, y) = log m(x) + log m(y) - 2 log Z        on the square, -inf outside

    with Z a sum of normal cdfs. With the default ``std`` the outermost centres are 5 standard deviations inside, so
    1 - Z is 4e-8. The truncation changes no figure, but it makes the log density exact.

    >>> grid = GaussianGrid()
    >>> f"{grid.expected_log_prob():.4f}"
    '1.7673'
    >>> x = grid.sample(100_000, 0)
    >>> abs(grid.log_prob(x).mean() - grid.expected_log_prob()) < 4 * grid.log_prob(x).std() / 100_000**0.5
    np.True_
    """

    def __init__(self, side: int = 15, std: float = 1 / 150) -> None:
        self.side = positive("side", side)
        self.std = number("std", std, above=0)
        self.centres = (np.arange(side) + 0.5) / side
        # erfc, not 1 - erf: the mass outside is tiny, and the subtraction would lose its digits.
        outside = sum(0.5 * math.erfc(c / (std * math.sqrt(2))) for c in (*self.centres, *(1 - self.centres))) / side
        self.log_mass = math.log1p(-outside)  # log Z of one axis

    def sample(self, n: int, generator: np.random.Generator | int) -> Points:
        """Draw ``n`` points; the same generator state or seed gives the same points."""
        generator = np.random.default_rng(generator)
        # The axes are independent, so all 2n coordinates come from the same one-dimensional mixture.
        values = self._coordinates(2 * n, generator)
        outside = np.flatnonzero((values < 0) | (values > 1))
        while outside.size:  # ends with probability 1: about half of each component's mass or more is inside
            values[outside] = self._coordinates(outside.size, generator)
            outside = outside[(values[outside] < 0) | (values[outside] > 1)]
        return values.reshape(n, 2).astype(np.float32)

    def log_prob(self, x: ArrayLike) -> Values:
        """Return the exact log density at points (n, 2); -inf outside the square."""
        points = _points(x)
        result = np.full(len(points), -np.inf)
        inside = np.flatnonzero(((points >= 0) & (points <= 1)).all(axis=1))
        for start in range(0, inside.size, _ROWS_AT_ONCE):
            rows = inside[start : start + _ROWS_AT_ONCE]
            result[rows] = self._log_axis(points[rows, 0]) + self._log_axis(points[rows, 1])
        return result

    def expected_log_prob(self) -> float:
        """Return E[log p] by quadrature with 40 Gauss-Legendre nodes in each piece of the interval.

        Each centre's cell is cut into 16 pieces. The interval is also cut at 0, 2.5, 5, ... 40 standard deviations
        from every centre, so that narrow Gaussians are resolved.
        """
        nodes, weights = np.polynomial.legendre.leggauss(40)
        steps = self.std * 2.5 * 2.0 ** np.arange(5)
        around = self.centres[:, None] + np.concatenate([-steps, [0.0], steps])
        edges = np.unique(np.concatenate([np.linspace(0, 1, 16 * self.side + 1), around.ravel().clip(0, 1)]))
        widths = np.diff(edges)[:, None]
        x = (edges[:-1, None] + widths * (nodes + 1) / 2).ravel()
        log_axis = self._log_axis(x)
        return float(2 * (((widths * weights / 2).ravel() * np.exp(log_axis)) @ log_axis))

    def masses(self, edges: Values) -> Values:
        """Return the probability of every block between ``edges`` (m + 1,) on both axes: (m, m), bottom row first.

        >>> GaussianGrid(side=2).masses(np.array([0, 0.5, 1]))
        array([[0.25, 0.25],
               [0.25, 0.25]])
        """
        distances = (edges[:, None] - self.centres) / (self.std * math.sqrt(2))  # (m + 1, side)
        below = np.vectorize(math.erf, otypes=[np.float64])(distances).mean(axis=1) / 2
        axis = np.diff(below) / math.exp(self.log_mass)
        return np.outer(axis, axis)

    def _coordinates(self, n: int, generator: np.random.Generator) -> Values:
        return self.centres[generator.integers(self.side, size=n)] + self.std * generator.standard_normal(n)

    def _log_axis(self, x: Values) -> Values:
        exponents = -0.5 * ((x[:, None] - self.centres) / self.std) ** 2
        largest = exponents.max(axis=1)
        total = np.exp(exponents - largest[:, None]).sum(axis=1)  # at least 1, which is the largest term
        norm = math.log(self.side * self.std * math.sqrt(2 * math.pi)) + self.log_mass
        return np.asarray(largest + np.log(total) - norm)


class ImageDensity:
    """Picture as a density: draw a pixel in proportion to its weight, then a uniform point inside the pixel.

    Args:
        weights: (size, size), row 0 at the top, as pictures are stored. ``size`` is a power of two, so that pixel
            edges are exact in float32 and a point never rounds into another pixel.

    :meth:`from_file` reads the weights from a picture.

    >>> quarter = ImageDensity([[0, 1], [0, 0]])  # all weight in the upper right pixel
    >>> np.exp(quarter.log_prob([[0.75, 0.75], [0.25, 0.75]]))
    array([4., 0.])
    """

    def __init__(self, weights: ArrayLike) -> None:
        weights = np.asarray(weights, dtype=np.float64)
        if weights.ndim != 2 or weights.shape[0] != weights.shape[1]:
            raise ValueError(f"weights must be a square array, got shape {weights.shape}")
        self.size = _power_of_two(weights.shape[0])
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise ValueError(f"weights must be finite and not negative, got {weights.min()} to {weights.max()}")
        total = weights.sum()
        if total == 0:
            raise ValueError(
                "every pixel has weight 0, so there is no density: a white picture has no darkness and a black "
                "picture has no light; try the other of by='darkness' and by='light'"
            )
        self.probabilities: Values = weights / total

    @classmethod
    def from_file(
        cls,
        path: str | Path | None = None,
        *,
        size: int = 512,
        by: Literal["darkness", "light"] = "darkness",
        fit: Literal["crop", "stretch"] = "crop",
    ) -> ImageDensity:
        """Read a picture as grey levels, scaled to ``size`` x ``size`` pixels.

        Args:
            path: the picture. Default: matplotlib's portrait of Grace Hopper.
            size: pixels per side, a power of two.
            by: ``"darkness"`` gives dark pixels a large weight, ``"light"`` gives light pixels a large weight.
            fit: ``"crop"`` takes the largest centred square; ``"stretch"`` keeps the whole picture and changes its
                proportions.
        """
        one_of("by", by, ("darkness", "light"))
        grey = read_grey(path, size=size, fit=fit).astype(np.float64)
        return cls(255.0 - grey if by == "darkness" else grey)

    def sample(self, n: int, generator: np.random.Generator | int) -> Points:
        """Draw ``n`` points; the same generator state or seed gives the same points."""
        generator = np.random.default_rng(generator)
        pixels = generator.choice(self.size**2, size=n, p=self.probabilities.ravel())
        row, column = np.divmod(pixels, self.size)
        corner = np.stack([column, self.size - 1 - row], axis=1)  # the lower left corner, y upwards
        points = ((corner + generator.random((n, 2))) / self.size).astype(np.float32)
        # Rounding to float32 may reach the upper edge, which belongs to the next pixel: stay just below the edge.
        edge = ((corner + 1) / self.size).astype(np.float32)
        return np.minimum(points, np.nextafter(edge, np.float32(0)))

    def log_prob(self, x: ArrayLike) -> Values:
        """Return the exact log density at points (n, 2); -inf outside the square and in pixels of weight 0."""
        points = _points(x)
        result = np.full(len(points), -np.inf)
        inside = ((points >= 0) & (points <= 1)).all(axis=1)
        # A coordinate of 1 is in the last pixel.
        cell = np.minimum((points[inside] * self.size).astype(np.intp), self.size - 1)
        with np.errstate(divide="ignore"):
            result[inside] = np.log(self.probabilities[self.size - 1 - cell[:, 1], cell[:, 0]] * self.size**2)
        return result

    def expected_log_prob(self) -> float:
        """Return E[log p], a finite sum."""
        p = self.probabilities[self.probabilities > 0]
        return float(p @ np.log(p * self.size**2))

    def masses(self, edges: Values) -> Values:
        """Return the probability of every block between ``edges`` (m + 1,) on both axes: (m, m), bottom row first.

        A pixel that an edge cuts is divided between the blocks in proportion to area.

        >>> ImageDensity([[0, 1], [0, 0]]).masses(np.array([0, 0.75, 1]))
        array([[0.25, 0.25],
               [0.25, 0.25]])
        """
        shares = pixel_shares(edges, self.size)
        upright = self.probabilities[::-1]
        return np.asarray(shares @ upright @ shares.T)


def even_points(density: GaussianGrid | ImageDensity, n: int, seed: int = 0) -> Values:
    """Return n points (n, 2) of a density, spread evenly, so that a picture of them has little noise.

    The square is cut into blocks, and each block gets its expected number of points, rounded up or down (systematic
    sampling). The position of a point in its block is random. With independent random points, the count in a cell of n
    points has a relative error of 1 / sqrt(n). With these points, the error is much smaller.

    >>> points = even_points(ImageDensity([[0, 1], [0, 3]]), 1000)  # the lower right pixel has 3/4 of the mass
    >>> points.shape, float((points[:, 1] < 0.5).mean()), float(points[:, 0].min()) >= 0.5
    ((1000, 2), 0.75, True)
    """
    generator = np.random.default_rng(seed)
    masses = density.masses(np.linspace(0, 1, BLOCKS + 1))
    row, column = np.divmod(systematic(masses.ravel(), n, generator.random()), BLOCKS)
    found: Values = (np.stack([column, row], axis=1) + generator.random((n, 2))) / BLOCKS
    return found


def pixel_shares(edges: Values, size: int) -> Values:
    """Return the fraction of each of ``size`` pixels of an axis in each interval between ``edges``: (m, size).

    >>> pixel_shares(np.array([0, 0.75, 1]), 2)
    array([[1. , 0.5],
           [0. , 0.5]])
    """
    ends, pixels = edges * size, np.arange(size)
    overlap: Values = np.minimum(ends[1:, None], pixels + 1) - np.maximum(ends[:-1, None], pixels)
    return overlap.clip(0)


def read_grey(
    path: str | Path | None = None, *, size: int = 512, fit: Literal["crop", "stretch"] = "crop"
) -> NDArray[np.uint8]:
    """Return a picture's grey levels (ITU-R 601 luma), ``size`` x ``size``, row 0 at the top.

    :meth:`ImageDensity.from_file` describes the arguments.

    >>> read_grey(size=64).shape  # matplotlib's Grace Hopper
    (64, 64)
    """
    _power_of_two(size)
    one_of("fit", fit, ("crop", "stretch"))
    need("pillow", "reading pictures")
    from PIL import Image, ImageOps, UnidentifiedImageError

    path = _grace_hopper() if path is None else Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such picture: {path}; check the path")
    try:
        with Image.open(path) as opened:
            picture = ImageOps.exif_transpose(opened)
            if picture.has_transparency_data:  # transparent pixels become white
                paper = Image.new("RGBA", picture.size, "white")
                picture = Image.alpha_composite(paper, picture.convert("RGBA"))
            if picture.mode.startswith("I;16"):  # Pillow would clip at 255
                picture = Image.fromarray(np.round(np.asarray(picture) / 257).astype(np.uint8))
            if picture.mode in ("I", "F"):
                raise ValueError(
                    f"{path} has 32-bit pixels, whose value for white is unknown; save the picture with 8 bits"
                )
            picture = picture.convert("L")
    except UnidentifiedImageError as error:
        raise ValueError(f"{path} is not a picture that Pillow can read; convert it to PNG or JPEG") from error
    except OSError as error:
        raise ValueError(f"{path} is not a complete picture ({error}); save it again") from error
    scale = Image.Resampling.LANCZOS
    picture = ImageOps.fit(picture, (size, size), scale) if fit == "crop" else picture.resize((size, size), scale)
    return np.asarray(picture, dtype=np.uint8)


def _grace_hopper() -> Path:
    need("matplotlib", "the built-in picture")
    from matplotlib import cbook

    return Path(str(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)))


def _power_of_two(size: int) -> int:
    if size < 1 or size & (size - 1):
        raise ValueError(f"size must be a power of two, so that pixel edges are exact in float32; got {size}")
    return size


def _points(x: ArrayLike) -> Values:
    points = np.asarray(x, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"points must have shape (n, 2), got {points.shape}")
    return points
