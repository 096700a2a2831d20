"""Means, errors, paired differences and mixtures of scores, compared with SciPy and with cf.Mixture."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from paper.scores import Difference, carried_over, estimate, mixture_scores, paired_difference
from scipy import stats

import cubicflow as cf


def test_one_seed_gives_the_error_of_a_paired_t_statistic() -> None:
    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, 500))
    found = paired_difference({7: first, 8: second}, {7: second})
    assert found is not None
    assert found.mean / (found.error / 2) == pytest.approx(stats.ttest_rel(first, second).statistic)
    assert (found.rows, found.seeds) == (500, 1)
    assert estimate([first]).error == pytest.approx(2 * stats.sem(first))


def test_several_seeds_widen_the_error_by_their_spread() -> None:
    random = np.random.default_rng(1)
    rows = random.normal(size=400)
    shifts = {0: 0.5, 1: -0.5, 2: 0.3}
    first = {seed: rows + shift for seed, shift in shifts.items()}
    second = {seed: np.zeros(400) for seed in shifts}
    found = paired_difference(first, second)
    assert found is not None
    of_rows = stats.sem(rows)
    of_seeds = stats.sem(list(shifts.values()))
    assert found.error == pytest.approx(2 * np.hypot(of_rows, of_seeds))
    assert found.mean == pytest.approx(rows.mean() + 0.1)
    assert estimate(list(first.values())).spread == pytest.approx(np.std([0.5, -0.5, 0.3], ddof=1))


def test_with_one_seed_the_spread_of_refits_counts_once_per_model() -> None:
    random = np.random.default_rng(2)
    first, second = random.normal(size=(2, 300))
    found = paired_difference({0: first}, {0: second}, refits=0.4)
    assert found is not None
    assert found.error == pytest.approx(2 * np.sqrt(stats.sem(first - second) ** 2 + 0.4**2 + 0.4**2))


def test_with_two_equal_seeds_the_spread_of_refits_counts_but_not_with_three() -> None:
    rows = np.random.default_rng(3).normal(size=(2, 300))

    def error(shifts: list[float], refits: float) -> float:
        found = paired_difference(
            {seed: rows[0] + shift for seed, shift in enumerate(shifts)},
            dict.fromkeys(range(len(shifts)), rows[1]),
            refits,
        )
        assert found is not None
        return found.error

    of_rows = stats.sem(rows[0] - rows[1])
    assert error([0.1, 0.1], refits=0.4) == pytest.approx(2 * np.sqrt(of_rows**2 + (0.4**2 + 0.4**2) / 2))
    assert error([2.0, -2.0], refits=0.4) == pytest.approx(2 * np.hypot(of_rows, stats.sem([2.0, -2.0])))
    assert error([0.1, 0.2, 0.3], refits=0.4) == pytest.approx(2 * np.hypot(of_rows, stats.sem([0.1, 0.2, 0.3])))


def test_models_without_a_seed_in_common_are_not_compared() -> None:
    assert paired_difference({0: np.zeros(3)}, {1: np.zeros(3)}) is None


@pytest.mark.parametrize(
    ("mean", "error", "verdict"),
    [(0.2, 0.1, "better"), (-0.2, 0.1, "worse"), (0.05, 0.1, "indistinguishable"), (0.0, 0.0, "indistinguishable")],
)
def test_verdicts(mean: float, error: float, verdict: str) -> None:
    assert Difference(mean, error, 10, 1).verdict == verdict


def test_a_mixture_of_scores_equals_the_mixture_of_flows() -> None:
    torch.manual_seed(0)
    flows = [cf.flows.tabular(3, num_layers=1, hidden_features=8, identity_start=False, seed=seed) for seed in range(3)]
    x = torch.randn(50, 3)
    with torch.no_grad():
        parts = [flow.log_prob(x).numpy() for flow in flows]
        whole = cf.Mixture(flows).log_prob(x).numpy()
    np.testing.assert_allclose(mixture_scores(parts), whole, rtol=1e-5)


def test_a_score_is_carried_over_by_the_prediction_of_a_regression() -> None:
    random = np.random.default_rng(4)
    control = random.normal(96, 60, size=300)
    fits = [150 + 0.7 * control + random.normal(0, 50, size=300) for _ in range(2)]
    found = carried_over(fits, control, elsewhere=99.0, rows=200)
    model = np.mean(fits, axis=0)
    line = stats.linregress(control, model)
    assert found.slope == pytest.approx(line.slope)
    assert found.correlation == pytest.approx(line.rvalue)
    assert found.mean == pytest.approx(line.intercept + line.slope * 99.0)
    # The error of a prediction of the mean of 200 responses: of the line at 99, and of the mean of 200 residuals.
    residuals = model - line.intercept - line.slope * control
    of_line = line.intercept_stderr**2 + (99.0 * line.stderr) ** 2
    of_line -= 2 * 99.0 * control.mean() * line.stderr**2  # the covariance of intercept and slope
    assert found.error == pytest.approx(2 * np.sqrt(of_line + (residuals**2).sum() / 298 / 200))


@pytest.mark.parametrize("model", ["related", "unrelated"])
def test_the_error_of_a_score_that_is_carried_over_is_the_one_of_repeated_draws(model: str) -> None:
    """Both draws have their own training rows, to which their Gaussian is fitted. The rows have heavy tails, and the
    model's score is no linear function of the Gaussian's."""
    random = np.random.default_rng(5)
    mixing = np.array([[1.0, 0.0, 0.0], [0.8, 0.5, 0.0], [-0.3, 0.4, 1.0]])
    rows, draws = 250, 600

    def draw(count: int) -> np.ndarray:
        return np.exp(0.3 * random.normal(size=(count, 1))) * (random.normal(size=(count, 3)) @ mixing.T)

    def gaussian() -> stats.rv_continuous:
        train = draw(4 * rows)
        return stats.multivariate_normal(train.mean(axis=0), np.cov(train.T))

    def score(x: np.ndarray) -> np.ndarray:
        return -np.abs(x).sum(axis=1) + np.cos(3 * x[:, 0]) if model == "related" else np.sin(5 * x[:, 0])

    deviations, gains = [], []
    for _ in range(draws):
        ours, theirs = draw(rows), draw(rows)
        found = carried_over([score(ours)], gaussian().logpdf(ours), gaussian().logpdf(theirs).mean(), rows)
        deviations.append((score(theirs).mean() - found.mean) / (found.error / 2))
        gains.append(found.error / (np.sqrt(2) * estimate([score(ours)]).error))
    # The mean of n deviations is normal with variance 1 / n, and n times their variance nearly chi-squared.
    assert np.mean(deviations) == pytest.approx(0, abs=4 / np.sqrt(draws))
    assert np.var(deviations) == pytest.approx(1, abs=4 * np.sqrt(2 / draws))
    assert np.mean(gains) < 0.8 if model == "related" else np.mean(gains) == pytest.approx(1, abs=0.01)
