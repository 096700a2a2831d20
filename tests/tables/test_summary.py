"""Means of rows with their errors, compared with the textbook definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cubicflow.tables.run.means import Mean, MeanOfRows

RNG = np.random.default_rng(0)


def mean_of(values: list[float], weights: list[float] | None = None) -> Mean:
    """Return the mean of values that are added in two pieces. The second piece may be empty."""
    mean = MeanOfRows()
    for part in (slice(0, 3), slice(3, None)):
        mean += MeanOfRows.of(np.array(values)[part], None if weights is None else np.array(weights)[part])
    return mean.result()


def test_the_error_is_twice_the_standard_error() -> None:
    values = RNG.standard_normal(7).tolist()
    assert mean_of(values).error == pytest.approx(2 * np.std(values, ddof=1) / math.sqrt(7), rel=1e-12)
    assert mean_of(values, [0.3] * 7).error == pytest.approx(mean_of(values).error, rel=1e-12)


def test_the_error_of_a_weighted_mean_is_unbiased() -> None:
    """The mean square of the error is four times the variance of the mean, sum w^2 / (sum w)^2 for unit normals.

    The relative spread of the squares is about 1, so the mean of 4,000 squares has an error of 1.6 %. The tolerance of
    5 % is three times that.
    """
    weights = np.array([1.0, 0.2, 3.0, 0.5, 1.5])
    squares = [mean_of(RNG.standard_normal(5).tolist(), weights.tolist()).error ** 2 for _ in range(4000)]
    assert np.mean(squares) == pytest.approx(4 * (weights**2).sum() / weights.sum() ** 2, rel=0.05)


def test_the_error_of_one_row_is_unknown() -> None:
    for one in (mean_of([-2.5]), mean_of([-2.5, 7.0], [0.3, 0.0])):
        assert math.isnan(one.error)
        assert str(one) == "-2.500 ± unknown nats"


def test_rows_of_weight_zero_have_no_score() -> None:
    assert str(mean_of([1.0, 2.0], [0.0, 0.0])) == "unknown (nothing to score: every weight is 0)"


def test_a_row_of_probability_zero_makes_the_mean_infinite() -> None:
    mean = MeanOfRows()
    for values in ([1.0, 2.0], [-math.inf, 3.0], [4.0]):
        mean += MeanOfRows.of(np.array(values))
    found = mean.result()
    assert (found.rows, found.mean) == (5, -math.inf)
    assert math.isnan(found.error)
    assert str(found) == "-inf ± unknown nats"
