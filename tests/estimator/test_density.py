"""Densities: normalisation, held-out scores, samples, and each step of the fit on its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.integrate
import scipy.stats
import torch
from sklearn.datasets import load_digits
from sklearn.mixture import GaussianMixture

import cubicflow as cf
from cubicflow.distributions import NormalMixture
from cubicflow.estimator.cross_fitting import stacking_weights
from cubicflow.estimator.expectation_maximisation import fit_normals

SMALL = {"n_members": 2, "max_steps": 6, "max_components": 2, "random_state": 0}
TINY = {**SMALL, "max_steps": 2, "max_components": 1, "num_layers": 1, "hidden_features": 8}


def test_a_density_of_one_column_integrates_to_one() -> None:
    generator = np.random.default_rng(0)
    x = np.concatenate([generator.normal(-3, 0.3, 60), generator.exponential(2, 60)])[:, None]
    density = cf.CubicFlowDensity(**SMALL).fit(x)
    grid = np.linspace(-60, 60, 40_001)
    total = scipy.integrate.simpson(np.exp(density.score_samples(grid[:, None])), x=grid)
    assert total == pytest.approx(1, abs=1e-5)


def test_a_density_of_two_columns_integrates_to_one() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(90, 2)) @ [[30.0, 0.2], [0.0, 0.1]]
    x[:, 1] += 1e-3 * x[:, 0] ** 2
    density = cf.CubicFlowDensity(**SMALL).fit(x)
    centre, spread = x.mean(axis=0), x.std(axis=0)
    # The trapezoidal rule converges geometrically for smooth densities that vanish at the ends.
    axes = [np.linspace(c - 14 * s, c + 14 * s, 281) for c, s in zip(centre, spread, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    values = np.exp(density.score_samples(grid))
    total = values.sum() * np.prod([axis[1] - axis[0] for axis in axes])
    assert total == pytest.approx(1, abs=1e-3)


def test_scores_change_with_the_units_by_the_jacobian() -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    metres = cf.CubicFlowDensity(**SMALL).fit(x)
    centimetres = cf.CubicFlowDensity(**SMALL).fit(100 * x)
    difference = metres.score_samples(x) - centimetres.score_samples(100 * x)
    assert difference == pytest.approx(np.full(60, 2 * np.log(100)), abs=1e-3)


def test_the_held_out_score_predicts_the_score_of_new_rows() -> None:
    generator = np.random.default_rng(3)
    scale = generator.normal(size=(5, 5))
    train, test = (generator.normal(size=(n, 5)) @ scale for n in (200, 4_000))
    density = cf.CubicFlowDensity(**{**SMALL, "n_members": 5}).fit(train)
    covariance = scale.T @ scale
    truth = scipy.stats.multivariate_normal(np.zeros(5), covariance)
    error = 2 * truth.logpdf(train).std() / np.sqrt(200)
    assert abs(density.held_out_score_ - density.score(test)) < error + 0.1  # members see four fifths of the rows
    # A full-covariance normal fitted to 200 rows is (parameters / 2N) = 20 / 400 nats below the truth.
    assert truth.logpdf(test).mean() - density.score(test) < 0.15


def test_samples_have_the_moments_of_the_rows() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(150, 2)) @ [[1.0, 0.8], [0.0, 0.5]] + [5.0, -7.0]
    density = cf.CubicFlowDensity(**SMALL).fit(x)
    drawn = density.sample(20_000, random_state=0)
    # Each of two members sees 120 of 150 rows: the error of the mean is about 1/11 of a standard deviation.
    assert drawn.mean(axis=0) == pytest.approx(x.mean(axis=0), abs=0.2)
    assert np.corrcoef(drawn.T)[0, 1] == pytest.approx(np.corrcoef(x.T)[0, 1], abs=0.1)


def test_expectation_maximisation_agrees_with_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    centres = np.array([[-4.0, 0.0], [4.0, 1.0], [0.0, 6.0]])
    x = centres[generator.integers(0, 3, 900)] + generator.normal(size=(900, 2)) @ [[1.0, 0.3], [0.0, 0.7]]
    ours = fit_normals(x, np.ones(900), 3, 0.0, np.random.default_rng(0))
    theirs = GaussianMixture(3, random_state=0, tol=1e-8).fit(x)
    order, other = np.argsort(ours.means[:, 0]), np.argsort(theirs.means_[:, 0])
    assert ours.means[order] == pytest.approx(theirs.means_[other], abs=5e-3)
    assert ours.covariances[order] == pytest.approx(theirs.covariances_[other], abs=1e-2)
    assert ours.log_prob(x).mean() == pytest.approx(theirs.score(x), abs=1e-3)


def test_weights_of_expectation_maximisation_act_like_repeated_rows() -> None:
    generator = np.random.default_rng(0)
    x, counts = generator.normal(size=(40, 3)), generator.integers(1, 4, 40)
    weighted = fit_normals(x, counts.astype(float), 1, 2.0, np.random.default_rng(0))
    repeated = fit_normals(np.repeat(x, counts, axis=0), np.ones(counts.sum()), 1, 2.0, np.random.default_rng(0))
    assert weighted.covariances == pytest.approx(repeated.covariances, abs=1e-12)


def test_correlated_mixtures_are_mixtures_of_normals() -> None:
    generator = np.random.default_rng(0)
    weights, means = np.array([0.3, 0.7]), generator.normal(size=(2, 3))
    factors = generator.normal(size=(2, 3, 3))
    covariances = factors @ np.swapaxes(factors, 1, 2) + 0.1 * np.eye(3)
    base = NormalMixture(3, 2, correlated=True).double()
    base.set_(*map(torch.from_numpy, (weights, means, covariances)))
    z = generator.normal(size=(50, 3))
    parts = [
        w * scipy.stats.multivariate_normal(m, c).pdf(z) for w, m, c in zip(weights, means, covariances, strict=True)
    ]
    assert base.log_prob(torch.from_numpy(z)).detach().numpy() == pytest.approx(np.log(sum(parts)), abs=1e-9)
    drawn = base.sample(200_000, generator=torch.Generator().manual_seed(0)).detach().numpy()
    mean = weights @ means
    expected = np.einsum("k,kij->ij", weights, covariances + np.einsum("ki,kj->kij", means - mean, means - mean))
    assert np.cov(drawn.T) == pytest.approx(expected, rel=0.03, abs=0.03)


def test_stacking_finds_the_mixing_weights_of_a_known_mixture() -> None:
    generator = np.random.default_rng(0)
    x = np.where(generator.uniform(size=20_000) < 0.3, generator.normal(0, 1, 20_000), generator.normal(3, 1, 20_000))
    parts = [scipy.stats.norm(mean).logpdf(x) for mean in (0, 3)]
    assert stacking_weights(parts, np.ones(20_000)) == pytest.approx([0.3, 0.7], abs=0.01)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(bad: float) -> None:
    x: Any = np.random.default_rng(0).normal(size=(20, 2))
    x[3, 1] = bad
    with pytest.raises(ValueError, match="Input X contains"):
        cf.CubicFlowDensity(**SMALL).fit(x)


def test_equal_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="all rows are the same"):
        cf.CubicFlowDensity(**SMALL).fit(np.ones((20, 2)))


def degenerate(case: str) -> Any:
    """Return rows that lie in a hyperplane."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(120, 3))
    return {
        "constant": np.c_[x, np.full(120, 0.1)],
        "duplicate": np.c_[x, x[:, 0]],
        "duplicate in a frame": pd.DataFrame(np.c_[x, x[:, 0]], columns=list("abcd")),
        "collinear": np.c_[x, x @ [1.0, 2.0, 3.0]],
        "sum to one": generator.dirichlet([1.0, 2.0, 3.0], 120),
        "more columns than rows": generator.normal(size=(20, 30)),
        "digits": load_digits().data[:80],
    }[case]


@pytest.mark.parametrize("weight", [1.0, 1e9])
@pytest.mark.parametrize(
    "case",
    [
        "constant",
        "duplicate",
        "duplicate in a frame",
        "collinear",
        "sum to one",
        "more columns than rows",
        "digits",
    ],
)
def test_rows_in_a_plane_have_finite_scores(case: str, weight: float) -> None:
    x = degenerate(case)
    density = cf.CubicFlowDensity(**TINY).fit(x, sample_weight=np.full(len(x), weight))
    assert np.isfinite(density.score_samples(x)).all()
    assert np.isfinite(density.held_out_score_)
    assert np.isfinite(np.asarray(density.sample(20, random_state=0))).all()


def test_a_copy_of_a_column_is_sampled_as_a_copy() -> None:
    x = degenerate("duplicate")
    drawn = cf.CubicFlowDensity(**SMALL).fit(x).sample(2_000, random_state=0)
    assert np.corrcoef(drawn[:, 0], drawn[:, 3])[0, 1] > 0.999
    assert np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1] == pytest.approx(np.corrcoef(x[:, 0], x[:, 1])[0, 1], abs=0.2)


def test_a_regular_covariance_is_not_changed() -> None:
    x = np.random.default_rng(0).normal(size=(100, 2)) @ [[1.0, 1.0], [0.0, 1e-4]]  # a correlation of 1 - 5e-9
    found = fit_normals(x, np.ones(100), 1, 0.0, np.random.default_rng(0))
    assert found.covariances[0] == pytest.approx(np.cov(x.T, bias=True), rel=1e-12)
