"""Weighted mixtures of normals by expectation-maximisation, with a prior on the covariances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cubicflow.weights import Floats

MOST_ITERATIONS = 200
TOLERANCE = 1e-3  # nats per row
FLOOR = 1e-6  # added to the variances of standardised columns, so that a constant column has a density
SINGULAR = 1e-12  # fraction of the largest variance; smaller variances are lost in the float32 of training
LEAST_PRIOR = 1e-4  # fraction of a component's rows; smallest prior of a component with a singular covariance


@dataclass(frozen=True)
class Normals:
    """Mixture of K normals: ``weights`` (K,), ``means`` (K, D), ``covariances`` (K, D, D)."""

    weights: Floats
    means: Floats
    covariances: Floats

    def log_parts(self, x: Floats) -> Floats:
        """Return the log of weight times density of each component at each row, of shape (N, K)."""
        factors = np.linalg.cholesky(self.covariances)  # (K, D, D)
        deviations = x[None] - self.means[:, None]  # (K, N, D)
        squares = np.square(deviations @ np.swapaxes(np.linalg.inv(factors), 1, 2)).sum(2)  # (K, N)
        log_dets = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(1)
        constant = 0.5 * x.shape[1] * np.log(2 * np.pi)
        parts: Floats = (np.log(self.weights) - log_dets - constant)[:, None] - 0.5 * squares
        return parts.T

    def log_prob(self, x: Floats) -> Floats:
        """Return the log density of each row, of shape (N,)."""
        result: Floats = np.logaddexp.reduce(self.log_parts(x), axis=1)
        return result


def fit_normals(
    x: Floats, weights: Floats, components: int, prior_rows: float, generator: np.random.Generator
) -> Normals:
    """Return the mixture with the highest posterior density, given rows (N, D) and weights (N,).

    Each covariance is shrunk towards the pooled covariance of all components. The pooled covariance counts as
    ``prior_rows`` rows: a conjugate prior whose scale is learned. So components with few rows stay well conditioned.
    With many components and many prior rows, the mixture becomes a kernel density estimate whose kernel has the shape
    of the data.

    Constant columns, collinear columns, or more columns than rows make a covariance singular. Only a singular
    covariance gets a stronger prior.
    """
    shares = _clusters(x, weights, components, generator)
    found, before = _maximise(x, weights, shares, prior_rows), -np.inf
    for _ in range(MOST_ITERATIONS):
        parts = found.log_parts(x)
        log_prob = np.logaddexp.reduce(parts, axis=1)
        after = float(np.average(log_prob, weights=weights))
        if components == 1 or abs(after - before) < TOLERANCE:
            break
        before = after
        found = _maximise(x, weights, np.exp(parts - log_prob[:, None]), prior_rows)
    return found


def _maximise(x: Floats, weights: Floats, shares: Floats, prior_rows: float) -> Normals:
    counts = shares * weights[:, None]  # (N, K)
    rows = counts.sum(0)
    kept = rows > 1e-8 * weights.sum()  # drops components without rows
    counts, rows = counts[:, kept], rows[kept]
    means = counts.T @ x / rows[:, None]
    scatters = np.empty((len(rows), x.shape[1], x.shape[1]))
    for k, mean in enumerate(means):
        deviations = (x - mean) * np.sqrt(counts[:, k, None])
        scatters[k] = deviations.T @ deviations
    total = rows.sum()
    pooled = shrunk(scatters.sum(0) / total, total)
    covariances = (scatters + prior_rows * pooled) / (rows + prior_rows)[:, None, None]
    for k, covariance in enumerate(covariances):
        if _is_singular(covariance):
            stronger = max(prior_rows, LEAST_PRIOR * rows[k])
            covariances[k] = (scatters[k] + stronger * pooled) / (rows[k] + stronger)
    # Each component gets one pseudo-row, so that a small component keeps some weight.
    return Normals((rows + 1) / (total + len(rows)), means, covariances)


def shrunk(covariance: Floats, rows: float) -> Floats:
    """Return a covariance shrunk towards its diagonal, which counts as D / 10 rows.

    The result has full rank even with fewer rows than columns. With many rows it hardly differs from ``covariance``.
    """
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
    """Return the clusters of k-means as a one-hot matrix (N, K)."""
    from sklearn.cluster import KMeans

    # KMeans raises for more clusters than distinct rows. The rows of x are distinct: equal rows were merged.
    found = KMeans(min(components, len(x)), n_init=1, max_iter=10, random_state=int(generator.integers(2**31)))
    shares: Floats = np.eye(found.n_clusters)[found.fit(x, sample_weight=weights).labels_]
    return shares
