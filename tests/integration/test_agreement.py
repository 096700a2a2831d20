"""The test of whether rounds agree: it keeps its size with few replicates, and sees rounds that disagree."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm, t

import cubicflow as cf
from cubicflow.integration import Integrator
from cubicflow.integration.agreement import Round, agreement, equality_p_value, normal_deviate
from cubicflow.integration.integral import SMALL_CHANCE

CASES = 40_000


def simulated(rounds: int, replicates: int, unlike: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw values with mean 0, their estimated errors and degrees, each (CASES, rounds).

    The logarithms of the true errors have the standard deviation ``unlike``.
    """
    rng = np.random.default_rng(rounds)
    errors = np.exp(unlike * rng.normal(size=(CASES, rounds)))
    values = errors * rng.normal(size=(CASES, rounds))
    degrees = np.full((CASES, rounds), replicates - 1.0)
    estimated = errors * np.sqrt(rng.chisquare(degrees) / degrees)
    return torch.from_numpy(values), torch.from_numpy(estimated), torch.from_numpy(degrees)


@pytest.mark.parametrize(("rounds", "replicates"), [(24, 12), (12, 6)])
@pytest.mark.parametrize("unlike", [0.0, 1.5])
def test_rounds_that_agree_give_as_many_false_warnings_as_they_should(
    rounds: int, replicates: int, unlike: float
) -> None:
    """A binomial number exceeds the bounds with probability 1e-6. The chi-square distribution would give 27 and 80
    times as many warnings."""
    p_values = equality_p_value(*simulated(rounds, replicates, unlike))
    warnings = int((p_values < SMALL_CHANCE).sum())
    assert binom.ppf(1e-6, CASES, SMALL_CHANCE) <= warnings <= binom.isf(1e-6, CASES, SMALL_CHANCE)


@pytest.mark.parametrize(("rounds", "replicates"), [(24, 12), (12, 6)])
def test_rounds_that_disagree_are_seen(rounds: int, replicates: int) -> None:
    """Half of the rounds are shifted by five standard errors: nearly every case gives a warning."""
    values, errors, degrees = simulated(rounds, replicates, 0.0)
    values[:, ::2] += 5
    assert float((equality_p_value(values, errors, degrees) < SMALL_CHANCE).double().mean()) > 0.98


def test_normal_deviates_have_the_tail_probability_of_student() -> None:
    for degrees in (5.0, 11.0):
        quantiles = np.array([0.01, 0.5, 1, 2, 5, 10, 30])
        found = normal_deviate(torch.from_numpy(quantiles), torch.tensor(degrees, dtype=torch.float64))
        np.testing.assert_allclose(found.numpy(), norm.isf(t.sf(quantiles, degrees)), rtol=2e-4)


def test_chi_square_is_the_weighted_sum_of_squared_deviations() -> None:
    values, errors = np.array([1.0, 1.5, 0.7]), np.array([0.1, 0.4, 0.2])
    found = agreement([Round(value, error, 500.0, 6) for value, error in zip(values, errors, strict=True)])
    mean = np.average(values, weights=errors**-2)
    assert found.chi_square == pytest.approx((((values - mean) / errors) ** 2).sum())
    assert found.degrees == 2


def test_a_result_says_that_its_rounds_disagree() -> None:
    """The second run integrates a function that is 1 % larger."""
    f = lambda x: 1 + x[:, 0] * x[:, 1]  # noqa: E731
    integrator = Integrator(f, [(0, 1)] * 2)
    first = integrator.run(5_000)
    assert first.warning == ""
    assert first.p_value > SMALL_CHANCE
    second = integrator.run(15_000, f=lambda x: 1.01 * f(x))
    assert second.p_value < SMALL_CHANCE
    assert "rounds disagree" in second.warning


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e170, 1e290])
def test_very_small_and_large_integrands_have_the_same_relative_error(scale: float) -> None:
    """Squares of these values underflow or overflow. An unnormalised likelihood is often as small."""

    def f(x: np.ndarray) -> np.ndarray:
        return np.exp(-((x - 0.5) ** 2).sum(1))

    usual = cf.integrate(f, [(0, 1)] * 2, 2_000)
    found = cf.integrate(lambda x: scale * f(x), [(0, 1)] * 2, 2_000)
    assert found.estimate / scale == pytest.approx(usual.estimate)
    assert found.error / scale == pytest.approx(usual.error)
    assert found.chi_square == pytest.approx(usual.chi_square)
