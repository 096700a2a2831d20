"""The scale of a column: a distribution function over its values, and the inverse."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from cubicflow import saved
from cubicflow.tables.unit_scale import CodeCounts, UnitScale, scale_of_codes, scale_of_values


def of_codes(codes: np.ndarray, *, ends: tuple[int | None, int | None] = (None, None), atoms=()) -> UnitScale:
    counts = CodeCounts()
    counts.update(codes, None)
    return scale_of_codes(counts, ends, atoms)


def lumpy(rows: int = 2000) -> np.ndarray:
    """Return codes of which half are a few round numbers."""
    rng = np.random.default_rng(0)
    return np.where(rng.random(rows) < 0.5, rng.choice([100, 500, 999], rows), rng.integers(0, 1000, rows))


@pytest.mark.parametrize("ends", [(None, None), (0, None), (0, 999)])
def test_all_codes_together_have_mass_one(ends: tuple[int | None, int | None]) -> None:
    """The sum includes codes that were never seen, each with a positive mass, and codes beyond the ends."""
    scale = of_codes(lumpy(), ends=ends)
    codes = np.arange(-20_000.0, 21_000.0)
    log_masses = scale.log_mass(codes)
    np.testing.assert_allclose(np.exp(log_masses).sum(), 1, atol=1e-9)
    inside = (codes >= 0) & (codes < 1000)
    assert np.isfinite(log_masses[inside]).all()
    assert len(np.setdiff1d(codes[inside], lumpy())) > 100  # many of them are unseen
    assert np.isfinite(log_masses[codes < 0]).all() == (ends[0] is None)
    assert np.isfinite(log_masses[codes > 999]).all() == (ends[1] is None)


def test_positions_are_cumulative_masses() -> None:
    scale = of_codes(lumpy())
    codes = np.arange(-50.0, 1050.0)
    low, high = scale.distances(codes)[0], scale.distances(codes + 1)[1]
    np.testing.assert_allclose(1 - low - high, np.exp(scale.log_mass(codes)), atol=1e-12)
    middle = low + np.exp(scale.log_mass(codes)) / 2
    np.testing.assert_array_equal(np.floor(scale.inverse(middle)), codes)


def test_a_tail_keeps_its_relative_precision() -> None:
    scale = of_codes(lumpy())
    far = np.array([2000.0, 5000.0])
    steps = np.exp(scale.log_mass(far) - scale.log_mass(far + 1))
    np.testing.assert_allclose(steps, np.exp(1 / scale.reach_above))
    low, high = scale.distances(far)
    np.testing.assert_allclose(np.log(high[1] / high[0]), -(far[1] - far[0]) / scale.reach_above)
    assert (low <= 1).all()


def test_seen_codes_have_more_mass_if_values_repeat() -> None:
    """A column with few of many possible values gives most of its mass to them. A smooth column does not."""
    rng = np.random.default_rng(1)
    few = rng.choice(rng.integers(0, 100_000, 400), 3000)
    other_rows = rng.choice(few, 1000)
    smooth, smooth_too = rng.integers(0, 100_000, 3000), rng.integers(0, 100_000, 1000)
    even = -np.log(100_000)
    assert of_codes(few).log_mass(other_rows.astype(float)).mean() > even + 3
    assert abs(of_codes(smooth).log_mass(smooth_too.astype(float)).mean() - even) < 0.1


def test_codes_between_values_that_always_repeat_keep_some_mass() -> None:
    scale = of_codes(np.repeat([0, 700, 7000, 9000], [500, 20, 20, 9]))
    assert np.isfinite(scale.log_mass(np.arange(9001.0))).all()


def test_atoms_are_not_on_the_scale() -> None:
    scale = of_codes(lumpy(), atoms=(100.0, 500.0))
    masses = np.exp(scale.log_mass(np.arange(-20_000.0, 21_000.0)))
    np.testing.assert_allclose(masses.sum(), 1, atol=1e-9)
    assert np.isneginf(scale.log_mass(np.array([100.0, 500.0]))).all()
    drawn = np.floor(scale.inverse(np.random.default_rng(0).random(5000)))
    assert not np.isin(drawn, [100, 500]).any()


@pytest.mark.parametrize("ends", [(None, None), (0.0, None), (0.0, 60.0)])
def test_the_density_of_reals_integrates_to_one(ends: tuple[float | None, float | None]) -> None:
    values = np.random.default_rng(2).gamma(2.0, 3.0, 3000)
    scale = scale_of_values(values, None, ends)
    grid = np.linspace(-60, 200, 520_001)
    density = np.exp(scale.log_density(grid))
    np.testing.assert_allclose(density.mean() * 260, 1, atol=1e-4)
    assert (density[grid < 0].sum() == 0) == (ends[0] is not None)
    inside = np.quantile(values, [0.01, 0.3, 0.9])
    np.testing.assert_allclose(scale.inverse(scale.distances(inside)[0]), inside)


def test_a_scale_survives_json_and_invalid_json_is_refused() -> None:
    scale = of_codes(lumpy())
    good = asdict(scale)
    assert saved.from_json(UnitScale, json.loads(json.dumps(good)), exact=True) == scale
    changes = {"edges": good["edges"][::-1], "masses": good["masses"][1:], "x": 1, "below": 0.5, "reach_above": 0.0}
    for bad in ({}, [], *({**good, name: value} for name, value in changes.items())):
        with pytest.raises(ValueError, match=r"edges|masses|below|reach|unknown|lacks|list"):
            saved.from_json(UnitScale, bad, exact=True)


@pytest.mark.parametrize("steps", [False, True])
def test_a_long_tail_keeps_its_mean(steps: bool) -> None:
    """One row in fifty holds half of such a column's sum. A single bin for the largest rows would make the mean four
    times as large. Two standard errors of the mean are 8 %."""
    values = np.exp(np.random.default_rng(3).normal(6, 2, 20_000))
    scale = of_codes(np.floor(values).astype(np.int64)) if steps else scale_of_values(values, None, (0.0, None))
    drawn = scale.inverse((np.arange(200_000) + 0.5) / 200_000)
    assert np.sort(values)[-400:].sum() > 0.4 * values.sum()
    np.testing.assert_allclose(drawn.mean(), values.mean(), rtol=0.08)


@pytest.mark.parametrize("ends", [(None, None), (0.0, 1e6)])
def test_little_mass_lies_far_beyond_the_seen_values(ends: tuple[float | None, float | None]) -> None:
    """The mass of half a row is beyond each end, and nine tenths of that mass are near the end."""
    values = np.random.default_rng(4).uniform(1000, 2000, 5000)
    scale = scale_of_values(values, None, ends)
    spacing = 1.0  # a few times the distance between rows near an end
    low, high = scale.distances(np.array([values.min(), values.max()]))
    far_low, far_high = scale.distances(np.array([values.min() - spacing, values.max() + spacing]))
    np.testing.assert_allclose([low[0], high[1]], 0.5 / 5000, rtol=0.05)
    np.testing.assert_allclose([far_low[0], far_high[1]], 0.05 / 5000, rtol=0.05)
    assert np.isfinite(scale.log_density(np.array([500.0, 3000.0]))).all()
