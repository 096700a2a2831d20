"""Weighted mixtures of normals by expectation-maximisation, with a prior that lends rows to thin components."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST_ITERATIONS = 200
TOLERANCE = 1e-3  # nats per row
FLOOR = 1e-6  # of the variance of standardised columns: a constant one keeps a density
SINGULAR = 1e-12  # of the largest variance: spread below it is lost in the float32 of training
LENT = 1e-4  # of its rows: what a component with a singular covariance borrows, if it would have borrowed less


@dataclass(frozen=True)
class Normals:
    """A mixture of K normals: ``weights`` (K,), ``means`` (K, D), ``covariances`` (K, D, D)."""

    weights: Floats
    means: Floats
    covariances: Floats

    def log_parts(self, x: Floats) -> Floats:
        """(N, K): the log density of each row times each component's weight."""
        factors = np.linalg.cholesky(self.covariances)  # (K, D, D)
        apart = x[None] - self.means[:, None]  # (K, N, D)
        squares = np.square(apart @ np.swapaxes(np.linalg.inv(factors), 1, 2)).sum(2)  # (K, N)
        log_dets = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(1)
        constant = 0.5 * x.shape[1] * np.log(2 * np.pi)
        parts: Floats = (np.log(self.weights) - log_dets - constant)[:, None] - 0.5 * squares
        return parts.T

    def log_prob(self, x: Floats) -> Floats:
        """(N,)."""
        result: Floats = np.logaddexp.reduce(self.log_parts(x), axis=1)
        return result


def fit_normals(
    x: Floats, weights: Floats, components: int, borrowed: float, generator: np.random.Generator
) -> Normals:
    """Maximise the posterior of a mixture, given rows (N, D) and how often each occurs.

    Every component's covariance is estimated from its own rows and ``borrowed`` more that are spread as the rows of all
    components are about their means: a conjugate prior whose scale is learned. It shares what the components have in
    common, so thin components stay well conditioned, and with many components and much borrowed the mixture becomes a
    kernel density whose kernel has the data's own shape.

    Constant or collinear columns, or more columns than rows, make a covariance singular: such a component borrows a
    little more, and only such a one.
    """
    shares = _clusters(x, weights, components, generator)
    found, before = _maximise(x, weights, shares, borrowed), -np.inf
    for _ in range(MOST_ITERATIONS):
        parts = found.log_parts(x)
        log_prob = np.logaddexp.reduce(parts, axis=1)
        after = float(np.average(log_prob, weights=weights))
        if components == 1 or abs(after - before) < TOLERANCE:
            break
        before = after
        found = _maximise(x, weights, np.exp(parts - log_prob[:, None]), borrowed)
    return found


def _maximise(x: Floats, weights: Floats, shares: Floats, borrowed: float) -> Normals:
    counts = shares * weights[:, None]  # (N, K)
    rows = counts.sum(0)
    kept = rows > 1e-8 * weights.sum()  # a component that no row belongs to is gone
    counts, rows = counts[:, kept], rows[kept]
    means = counts.T @ x / rows[:, None]
    scatters = np.empty((len(rows), x.shape[1], x.shape[1]))
    for k, mean in enumerate(means):
        apart = (x - mean) * np.sqrt(counts[:, k, None])
        scatters[k] = apart.T @ apart
    total = rows.sum()
    pooled = shrunk(scatters.sum(0) / total, total)
    covariances = (scatters + borrowed * pooled) / (rows + borrowed)[:, None, None]
    for k, covariance in enumerate(covariances):
        if _is_singular(covariance):
            lent = max(borrowed, LENT * rows[k])
            covariances[k] = (scatters[k] + lent * pooled) / (rows[k] + lent)
    # one pseudo-row to each component: a small one keeps some weight
    return Normals((rows + 1) / (total + len(rows)), means, covariances)


def shrunk(covariance: Floats, rows: float) -> Floats:
    """A covariance as if D / 10 more rows had been seen in which the columns vary as much, each for itself: hardly
    changed by many rows, and of full rank even with fewer rows than columns."""
    features = len(covariance)
    share = 0.1 * features / (0.1 * features + rows)
    return (1 - share) * covariance + share * np.diag(np.diag(covariance)) + FLOOR * np.eye(features)


def _is_singular(covariance: Floats) -> bool:
    try:
        pivots = np.square(np.diagonal(np.linalg.cholesky(covariance)))
    except np.linalg.LinAlgError:
        return True
    return bool(pivots.min() < SINGULAR * np.diagonal(covariance).max())


def _clusters(x: Floats, weights: Floats, components: int, generator: np.random.Generator) -> Floats:
    """(N, K): 1 where a row belongs to a cluster of k-means."""
    from sklearn.cluster import KMeans

    # More components than different rows would be refused. Rows were merged where they are the same.
    found = KMeans(min(components, len(x)), n_init=1, max_iter=10, random_state=int(generator.integers(2**31)))
    shares: Floats = np.eye(found.n_clusters)[found.fit(x, sample_weight=weights).labels_]
    return shares
