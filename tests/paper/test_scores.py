"""Means, errors, paired differences and mixtures of scores, compared with SciPy and with cf.Mixture."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from paper.scores import Difference, estimate, mixture_scores, paired_difference
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
