"""Conditional densities: quantiles against numeric inversion, and coverage on new rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

import cubicflow as cf


def skewed(rows: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return x, and y with a location, scale and skewness that depend on x."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-2, 2, size=(rows, 2))
    return x, x[:, 0] ** 2 + np.exp(0.5 * x[:, 1]) * generator.exponential(size=rows)


@pytest.fixture(scope="module")
def model() -> cf.CubicFlowConditional:
    return cf.CubicFlowConditional(n_members=2, max_steps=100, num_layers=2, random_state=0).fit(*skewed(300, 0))


def test_quantiles_invert_the_integral_of_the_density(model: cf.CubicFlowConditional) -> None:
    x = np.array([[0.5, -1.0]])
    levels = np.array([0.05, 0.5, 0.9])
    low, *found, high = model.quantiles(x, [1e-9, *levels, 1 - 1e-9])[0]
    y = np.linspace(low, high, 40_001)
    density = np.exp(model.log_prob(np.repeat(x, len(y), axis=0), y))
    cumulative = scipy.integrate.cumulative_simpson(density, x=y, initial=0)
    assert cumulative[-1] == pytest.approx(1, abs=1e-6)
    assert np.interp(found, y, cumulative) == pytest.approx(levels, abs=1e-6)


def test_quantiles_increase_and_have_the_documented_shapes(model: cf.CubicFlowConditional) -> None:
    x, _ = skewed(20, 5)
    levels = np.linspace(0.01, 0.99, 25)
    found = model.quantiles(x, levels)
    assert found.shape == (20, 25)
    assert (np.diff(found, axis=1) > 0).all()
    assert np.array_equal(model.quantiles(x, 0.5), model.predict(x))
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        model.quantiles(x, [0.0, 0.5])


def test_samples_follow_the_quantiles(model: cf.CubicFlowConditional) -> None:
    x = np.array([[1.0, 1.0], [-1.5, 0.0]])
    drawn = model.sample(x, 4_000, random_state=0)
    assert drawn.shape == (4_000, 2)
    for level in (0.1, 0.5, 0.9):
        below = (drawn < model.quantiles(x, level)).mean(axis=0)
        assert below == pytest.approx(np.full(2, level), abs=4 * np.sqrt(level * (1 - level) / 4_000))


def test_intervals_have_their_coverage_on_new_rows(model: cf.CubicFlowConditional) -> None:
    x, y = skewed(4_000, 1)
    for coverage in (0.5, 0.9):
        interval = model.predict_interval(x, coverage)
        covered = float(((interval[:, 0] <= y) & (y <= interval[:, 1])).mean())
        # Binomial errors of the 300 calibration rows and of the 4,000 new rows.
        error = np.sqrt(coverage * (1 - coverage) * (1 / 300 + 1 / 4_000))
        assert covered == pytest.approx(coverage, abs=3 * error)


def test_held_out_coverage_predicts_the_coverage_of_new_rows(model: cf.CubicFlowConditional) -> None:
    x, y = skewed(4_000, 1)
    interval = model.predict_interval(x, 0.8, calibrated=False)
    covered = float(((interval[:, 0] <= y) & (y <= interval[:, 1])).mean())
    error = np.sqrt(0.8 * 0.2 * (1 / 300 + 1 / 4_000))
    assert model.held_out_coverage(0.8) == pytest.approx(covered, abs=3 * error)
    levels = model.held_out_levels_
    assert ((levels > 0) & (levels < 1)).all()
    assert scipy.stats.kstest(levels, "uniform").pvalue > 1e-3


def test_training_improves_on_the_initial_regression(model: cf.CubicFlowConditional) -> None:
    x, y = skewed(2_000, 2)
    regression = cf.CubicFlowConditional(n_members=2, max_steps=0, num_layers=2, random_state=0).fit(*skewed(300, 0))
    assert model.score(x, y) > regression.score(x, y) + 0.3
    truth = scipy.stats.expon(x[:, 0] ** 2, np.exp(0.5 * x[:, 1])).logpdf(y).mean()
    assert model.score(x, y) < truth


def test_without_steps_it_is_a_ridge_regression() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(400, 3))
    y = x @ [1.0, -2.0, 0.5] + 3 + 0.3 * generator.normal(size=400)
    model = cf.CubicFlowConditional(max_steps=0, random_state=0).fit(x, y)
    design = np.column_stack([np.ones(400), x])
    coefficients, *_ = np.linalg.lstsq(design, y)
    assert model.predict(x) == pytest.approx(design @ coefficients, abs=0.05)
    width = np.diff(model.predict_interval(x, 0.6827, calibrated=False), axis=1)
    assert width == pytest.approx(np.full((400, 1), 2 * 0.3), rel=0.1)


def test_several_columns_are_predicted_by_their_mean() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 2))
    y = np.stack([x[:, 0] + 0.1 * generator.normal(size=200), 2 - x[:, 1]], axis=1)
    y[:, 1] += 0.1 * generator.normal(size=200)
    model = cf.CubicFlowConditional(n_members=2, max_steps=0, random_state=0).fit(x, y)
    means = np.stack([x[:, 0], 2 - x[:, 1]], axis=1)
    assert model.predict(x[:20]) == pytest.approx(means[:20], abs=0.1)
    assert model.sample(x[:4], 3, random_state=0).shape == (3, 4, 2)
    assert model.log_prob(x, y).shape == (200,)


@pytest.mark.parametrize("weight", [1 / 5_500, 0.01, 3.0])
def test_equal_weights_do_not_change_intervals(weight: float) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(5_500, 1))
    y = x[:, 0] + generator.normal(size=5_500)
    model = cf.CubicFlowConditional(max_steps=2, num_layers=1, hidden_features=8, device="cpu", random_state=0)
    plain = model.fit(x, y).predict_interval(x[:5])
    weighted = model.fit(x, y, sample_weight=np.full(5_500, weight)).predict_interval(x[:5])
    assert weighted == pytest.approx(plain, rel=1e-6)  # weights are float32 in training


def test_outliers_leave_intervals_finite_and_wide_enough() -> None:
    generator = np.random.default_rng(1)
    x = generator.normal(size=(60, 1))
    y = x[:, 0] + generator.standard_cauchy(60)
    model = cf.CubicFlowConditional(max_steps=10, random_state=0).fit(x, y)
    assert set(model.held_out_levels_) & {0.0, 1.0}  # levels of the outliers are rounded to 0 or 1
    widths = [np.diff(model.predict_interval(x, coverage), axis=1) for coverage in (0.5, 0.9, 0.98, 0.999)]
    assert np.isfinite(widths).all()
    assert (np.diff(widths, axis=0) >= 0).all()


@pytest.mark.parametrize("calibrated", [True, False])
def test_coverage_must_lie_between_0_and_1(model: cf.CubicFlowConditional, calibrated: bool) -> None:
    with pytest.raises(ValueError, match=r"coverage must be strictly between 0 and 1, got 1\.0"):
        model.predict_interval(np.zeros((1, 2)), 1.0, calibrated=calibrated)
