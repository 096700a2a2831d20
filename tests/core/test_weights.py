"""Weights of samples: against sums of fractions, and the property that defines systematic resampling."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cubicflow.weights import effective_size, systematic, weighted_quantiles

WEIGHTS = st.lists(st.integers(0, 50), min_size=1, max_size=20).filter(any)


@given(WEIGHTS)
def test_the_effective_size_is_that_of_exact_sums(weights: list[int]) -> None:
    exact = Fraction(sum(weights)) ** 2 / sum(Fraction(w) ** 2 for w in weights)
    for scale in (1.0, 1e-200, 1e200):  # squares would underflow or overflow
        found = effective_size(scale * np.array(weights, dtype=np.float64))
        assert found == pytest.approx(float(exact), rel=1e-14)
    assert effective_size(torch.tensor(weights, dtype=torch.float64)) == pytest.approx(float(exact), rel=1e-14)


def test_no_weight_is_worth_nothing() -> None:
    assert effective_size(np.zeros(3)) == effective_size(np.zeros(0)) == 0


@given(WEIGHTS, st.integers(1, 30), st.floats(0, 1, exclude_max=True))
def test_each_index_is_drawn_its_share_of_times_rounded(weights: list[int], n: int, offset: float) -> None:
    chosen = systematic(np.array(weights, dtype=np.float64), n, offset)
    assert (np.diff(chosen) >= 0).all()
    for index, count in enumerate(np.bincount(chosen, minlength=len(weights))):
        share = n * weights[index] / sum(weights)
        assert share - 1 - 1e-9 < count < share + 1 + 1e-9
        assert count == 0 or weights[index]


def test_rows_of_weights_are_resampled_each_by_itself() -> None:
    generator = np.random.default_rng(0)
    weights, offsets = generator.random((5, 7)), generator.random((5, 1))
    together = systematic(weights, 9, offsets)
    assert together.tolist() == [systematic(w, 9, float(o[0])).tolist() for w, o in zip(weights, offsets, strict=True)]


@pytest.mark.parametrize("rows", [(), (4,)], ids=["one row", "several rows"])
def test_weighted_quantiles_are_those_of_repeated_values(rows):
    """Whole weights repeat a value. The quantile at a whole mark m is the m-th smallest of the repeated values."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 6, size=(*rows, 9)).astype(float)
    weights = rng.integers(0, 4, size=(*rows, 9)).astype(float)
    weights[..., 0] = 1.0
    marks = np.broadcast_to(np.array([1.0, 2.0, 5.0, 100.0]), (*rows, 4))
    found = weighted_quantiles(values, weights, marks)
    assert found.shape == (*rows, 4)
    flat = (array.reshape(-1, array.shape[-1]) for array in (values, weights, marks, found))
    for y, w, m, quantiles in zip(*flat, strict=True):
        repeated = np.sort(np.repeat(y, w.astype(int)))
        expected = repeated[np.minimum(m.astype(int), len(repeated)) - 1]
        expected[-1] = y.max()  # beyond the total weight
        np.testing.assert_array_equal(quantiles, expected)


@pytest.mark.parametrize("rows", [3, 10, 40, 49, 400, 1000])
def test_rounding_of_equal_weights_skips_no_value(rows: int) -> None:
    """The sums of shares such as 1/49 are a rounding error off their levels."""
    values, shares = np.arange(rows, dtype=float), np.full(rows, 1 / rows)
    found = weighted_quantiles(values, shares, np.arange(1, rows + 1) / rows * shares.sum())
    np.testing.assert_array_equal(found, values)
