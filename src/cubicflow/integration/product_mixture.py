"""A mixture of products of one-dimensional densities on the unit cube: a mixture of vegas grids.

vegas adapts one product. A mixture of K products can also describe several separate peaks, in any number of dimensions.
The mixture is fitted to weighted points by expectation maximisation. Its normalisation, densities and quantiles are
exact.

Every factor is piecewise linear: a sum of hat functions on the nodes of its column, with nonnegative coefficients. All
products share the nodes of a column, so the interval of a point is looked up once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from cubicflow.weights import effective_size, systematic

PRIOR_POINTS = 2.0  # uniform pseudo-points added to the points that each factor is fitted to


class Places(NamedTuple):
    """For every column of every point, the number of its interval and the position in it, in [0, 1]: both (D, N)."""

    interval: Tensor
    position: Tensor


class ProductMixture:
    """The density sum_k share_k prod_d p_kd(u_d).

    Args:
        nodes: (D, B + 1), increasing from 0 to 1 in every row.
        heights: (K, D, B + 1), the values of the factors at the nodes; they need not be normalised.
        shares: (K,), positive.
        circles: for each column, whether 0 and 1 are the same point; factors are then equal at both ends.

    ``below`` (K, D, B + 1) has the mass of each factor below each node.

    >>> nodes = torch.linspace(0, 1, 3, dtype=torch.float64).expand(1, 3)
    >>> hat = ProductMixture(nodes, torch.tensor([[[0.0, 1.0, 0.0]]], dtype=torch.float64), torch.ones(1), [False])
    >>> hat.log_densities(torch.tensor([[0.5]], dtype=torch.float64)).exp()
    tensor([[2.]], dtype=torch.float64)
    >>> hat.draw(0, torch.tensor([[0.125]], dtype=torch.float64))
    tensor([[0.2500]], dtype=torch.float64)
    """

    def __init__(self, nodes: Tensor, heights: Tensor, shares: Tensor, circles: list[bool]) -> None:
        self.nodes = nodes.contiguous()
        self.widths = nodes.diff(dim=1)  # (D, B)
        self.circles = circles
        heights = _closed(heights, circles)
        masses = (heights[..., :-1] + heights[..., 1:]) / 2 * self.widths
        below = pad(masses.cumsum(-1), (1, 0))
        self.heights, self.below = heights / below[..., -1:], below / below[..., -1:]
        self.shares = shares.double() / shares.sum()

    def __len__(self) -> int:
        """Return the number of products, K."""
        return len(self.shares)

    def places(self, u: Tensor) -> Places:
        """Return the intervals of points (N, D), and the positions in them."""
        columns = u.T.contiguous()
        interval = (torch.searchsorted(self.nodes, columns, right=True) - 1).clamp(0, self.widths.shape[1] - 1)
        return Places(interval, (columns - self.nodes.gather(1, interval)) / self.widths.gather(1, interval))

    def log_densities(self, u: Tensor) -> Tensor:
        """Return the log density of every product at every point: (N, D) -> (N, K)."""
        places = self.places(u)
        return torch.stack([self._factors(k, places)[2].log().sum(0) for k in range(len(self))], dim=1)

    def draw(self, part: int, noise: Tensor) -> Tensor:
        """Map uniform noise to points of one product, column by column with quantile functions: (n, D) -> (n, D)."""
        heights, below = self.heights[part], self.below[part]
        v = noise.T.contiguous()
        interval = (torch.searchsorted(below, v, right=True) - 1).clamp(0, self.widths.shape[1] - 1)
        low, high = heights.gather(1, interval), heights.gather(1, interval + 1)
        width = self.widths.gather(1, interval)
        rest = (v - below.gather(1, interval)).clamp(min=0) / width
        # Solve low t + (high - low) t^2 / 2 = rest. In this form of the root the denominator has no cancellation.
        root = (low.square() + 2 * (high - low) * rest).clamp(min=0).sqrt()
        t = (2 * rest / (low + root).clamp(min=1e-300)).clamp(0, 1)
        return (self.nodes.gather(1, interval) + width * t).T

    def to_noise(self, part: int, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return the noise that :meth:`draw` maps to the points u, (N, D), and the log density at u, (N,)."""
        places = self.places(u)
        low = self.heights[part].gather(1, places.interval)
        high = self.heights[part].gather(1, places.interval + 1)
        t = places.position
        inside = self.widths.gather(1, places.interval) * t * (low + (high - low) * t / 2)
        noise = self.below[part].gather(1, places.interval) + inside
        return noise.T.clamp(0, 1), (low + (high - low) * t).clamp(min=1e-300).log().sum(0)

    def _factors(self, k: int, places: Places) -> tuple[Tensor, Tensor, Tensor]:
        """Return the terms of the left and the right hat in each factor of product k, and their sum: (D, N) each."""
        low = self.heights[k].gather(1, places.interval) * (1 - places.position)
        high = self.heights[k].gather(1, places.interval + 1) * places.position
        return low, high, (low + high).clamp(min=1e-300)

    def score(self, u: Tensor) -> float:
        """Return the mean log density of the mixture."""
        return float((self.log_densities(u) + self.shares.log()).logsumexp(1).mean())

    def improved(self, u: Tensor, weights: Tensor, steps: int) -> ProductMixture:
        """Return the mixture after ``steps`` steps of expectation maximisation on weighted points.

        ``weights`` must sum to the effective number of points: the prior of PRIOR_POINTS is on that scale.
        """
        mixture, places = self, self.places(u)
        for _ in range(steps):
            mixture = mixture._step(places, weights)
        return mixture

    def _step(self, places: Places, weights: Tensor) -> ProductMixture:
        factors = [self._factors(k, places) for k in range(len(self))]
        logs = torch.stack([total.log().sum(0) for _, _, total in factors])  # (K, N)
        memberships = (logs + self.shares.log()[:, None]).softmax(0) * weights
        areas = (pad(self.widths, (0, 1)) + pad(self.widths, (1, 0))) / 2  # of the hat functions, (D, B + 1)
        heights = []
        for (low, high, total), membership in zip(factors, memberships, strict=True):
            per_height = membership / total
            counts = PRIOR_POINTS * areas
            counts = counts.scatter_add(1, places.interval, low * per_height)
            counts = counts.scatter_add(1, places.interval + 1, high * per_height)
            heights.append(_closed(counts, self.circles) / _closed(areas, self.circles))
        return ProductMixture(self.nodes, torch.stack(heights), memberships.sum(1) + 1e-6, self.circles)

    def on_nodes(self, nodes: Tensor) -> ProductMixture:
        """Return the same factors, interpolated on other nodes."""
        places = self.places(nodes.T)
        heights = torch.stack([self._factors(k, places)[2] for k in range(len(self))])
        return ProductMixture(nodes, heights, self.shares, self.circles)

    def without_small(self, least: float) -> ProductMixture:
        """Return the mixture without products of a share below ``least``. At least one product stays."""
        keep = self.shares >= min(least, float(self.shares.max()))
        return ProductMixture(self.nodes, self.heights[keep], self.shares[keep], self.circles)


def _closed(values: Tensor, circles: list[bool]) -> Tensor:
    """Replace the values at both ends of a circular column by their mean: (..., D, B + 1) -> (..., D, B + 1)."""
    ends = (values[..., :1] + values[..., -1:]) / 2
    closed = torch.cat([ends, values[..., 1:-1], ends], dim=-1)
    return torch.where(torch.tensor(circles)[:, None], closed, values)


def uniform_mixture(features: int, circles: list[bool]) -> ProductMixture:
    """Return the uniform density on the cube, as a mixture of one product."""
    nodes = torch.linspace(0, 1, 3, dtype=torch.float64).expand(features, 3)
    return ProductMixture(nodes, torch.ones(1, features, 3, dtype=torch.float64), torch.ones(1), circles)


def find_nodes(u: Tensor, weights: Tensor, intervals: int) -> Tensor:
    """Return nodes (D, B + 1): half of them evenly spaced, half at quantiles of the weighted points."""
    fine = torch.linspace(0, 1, 257, dtype=torch.float64)
    levels = torch.linspace(0, 1, intervals + 1, dtype=torch.float64)
    rows = []
    for column in u.T:
        order = column.argsort()
        mass = weights[order].cumsum(0)
        # Average the distribution function of the points with the uniform one, so that it is strictly increasing.
        positions = torch.cat([torch.zeros(1), column[order], torch.ones(1)]).double()
        values = torch.cat([torch.zeros(1), mass / mass[-1], torch.ones(1)]).double()
        stops = torch.cat([fine, _interpolate(levels, values, positions)]).sort().values
        mixed = (_interpolate(stops, positions, values) + stops) / 2
        nodes = _interpolate(levels, mixed, stops)
        nodes[0], nodes[-1] = 0.0, 1.0
        least = 1e-9 * torch.arange(intervals + 1, dtype=torch.float64)  # keeps coinciding nodes apart
        nodes = (nodes + least) / (1 + least[-1])
        rows.append(nodes)
    return torch.stack(rows)


def _interpolate(at: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Interpolate the points (x, y) linearly; x must be sorted."""
    return torch.from_numpy(np.interp(at.numpy(), x.numpy(), y.numpy()))


class FitData(NamedTuple):
    """Weighted points for fitting, and held-out points for choosing. Weights sum to the effective number of points."""

    u: Tensor
    weights: Tensor
    held_out: Tensor
    held_out_weights: Tensor


MOST_PRODUCTS = 16
FRESH_STEPS, LATER_STEPS = 15, 4  # steps of expectation maximisation from a new start, and for an earlier mixture
FEW_POINTS = 8_192  # points used to choose the number of products


def fit_mixture(data: FitData, before: ProductMixture, generator: torch.Generator, *, search: bool) -> ProductMixture:
    """Return the mixture that fits the points best.

    Without ``search``, expectation maximisation improves the mixture ``before``. With ``search``, mixtures of 1, 2, 4,
    ... products are also fitted from new starts, and the mixture with the best score on held-out points is improved.
    """
    worth = float(data.weights.sum())
    intervals = int(min(64, max(6, 2 * worth ** (1 / 3))))
    nodes = find_nodes(data.u, data.weights, intervals)
    best = before.on_nodes(nodes)
    if search:
        few = min(len(data.u), FEW_POINTS)
        chosen = resample(data.weights, few, generator)
        u, weights = data.u[chosen], torch.full((few,), min(worth, few) / few, dtype=torch.float64)
        candidates = [best.improved(u, weights, LATER_STEPS)] if len(before.nodes[0]) > 3 else []
        most = min(MOST_PRODUCTS, int(worth / 10)) if u.shape[1] > 1 else 1
        held_out = resample(data.held_out_weights, few // 2, generator)
        scores = [candidate.score(data.held_out[held_out]) for candidate in candidates]
        count = 1
        while count <= max(1, most):
            candidates.append(
                _fresh_start(nodes, u, count, before.circles, generator).improved(u, weights, FRESH_STEPS)
            )
            scores.append(candidates[-1].score(data.held_out[held_out]))
            if scores[-1] < max(scores) - 0.05:  # more products made the score worse
                break
            count *= 2
        best = candidates[max(range(len(scores)), key=lambda i: scores[i])]
    least = 2.0 / max(worth, 4.0)
    return best.improved(data.u, data.weights, LATER_STEPS).without_small(least)


def resample(weights: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Draw n indices in proportion to their weights, by systematic resampling."""
    offset = float(torch.rand(1, generator=generator, dtype=torch.float64))
    return torch.from_numpy(systematic(weights.numpy(), n, offset))


def _fresh_start(
    nodes: Tensor, u: Tensor, count: int, circles: list[bool], generator: torch.Generator
) -> ProductMixture:
    """Return a mixture of bumps around distant points, chosen as in k-means++; one product starts uniform."""
    spread = u.std(0).clamp(min=1e-6)
    z = u / spread
    centers = [int(torch.randint(len(u), (1,), generator=generator))]
    distance = (z - z[centers[0]]).square().sum(1)
    while len(centers) < count:
        centers.append(int(torch.multinomial(distance.clamp(min=1e-12), 1, generator=generator)))
        distance = torch.minimum(distance, (z - z[centers[-1]]).square().sum(1))
    width = spread * (1.0 if count == 1 else 0.7)
    offsets = (nodes - u[centers][:, :, None]) / width[:, None]  # (K, D, B + 1)
    heights = (-offsets.square() / 2).exp() + 0.02
    if count == 1:
        heights = torch.ones_like(heights)
    return ProductMixture(nodes, heights, torch.ones(count), circles)


def flattened(weights: Tensor, wanted: float) -> Tensor:
    """Return weights^b, scaled to sum to their effective number of points.

    The power b is the largest on a grid in (0, 1] that gives ``wanted`` effective points. In early rounds a few points
    have most of the weight; the flatter target keeps the fit from concentrating on them.
    """
    weights = weights / weights.max()
    power = 1.0
    while effective_size(weights**power) < min(wanted, 0.5 * len(weights)) and power > 0.05:
        power *= 0.85
    flat = weights**power
    return flat * (effective_size(flat) / float(flat.sum()))
