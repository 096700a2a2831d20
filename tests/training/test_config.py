"""Settings: their checks, their error messages, and their defaults."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
import torch

import cubicflow as cf
from cubicflow.training import TrainingConfig, fit
from cubicflow.training.schedule import averaging_weight, learning_rate


@pytest.mark.parametrize(
    ("name", "nearest"), [("step", "steps"), ("lr", None), ("batchsize", "batch_size"), ("time_buget", "time_budget")]
)
def test_unknown_settings_name_the_nearest(name, nearest, x, make_flow):
    with pytest.raises(TypeError, match=f"fit has no training setting '{name}'") as caught:
        fit(make_flow(), x, **{name: 1})
    assert "It has: steps, time_budget, batch_size" in str(caught.value)
    if nearest is not None:
        assert f"did you mean {nearest!r}?" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps must be a whole number, 1 or more, got 0"),
        ({"steps": 1.5}, "steps must be a whole number"),
        ({"steps": True}, "steps must be a whole number"),
        ({"batch_size": -3}, "batch_size must be a whole number, 1 or more, got -3"),
        ({"learning_rate": 0}, "learning_rate must be a finite number, above 0"),
        ({"learning_rate": math.nan}, "learning_rate must be a finite number"),
        ({"learning_rate": math.inf}, "learning_rate must be a finite number"),
        ({"learning_rate": None}, "learning_rate must be a finite number"),
        ({"learning_rate": "fast"}, "learning_rate must be a finite number"),
        ({"time_budget": -1}, "time_budget must be a finite number, above 0"),
        ({"average_decay": 1.0}, "average_decay must be a finite number, 0 or more and below 1"),
        ({"validation_fraction": 1}, "validation_fraction must be a finite number, 0 or more and below 1"),
        ({"patience": -1}, "patience must be a whole number, 0 or more"),
        ({"seed": -1}, "seed must be a whole number, 0 or more"),
        ({"precision": "fp16"}, "precision must be one of 'float32', 'tf32', 'bf16', got 'fp16'"),
        ({"steps": 10, "validate_every": 20}, "validate_every=20 contradicts steps=10"),
        ({"steps": 10, "warmup_steps": 11}, "warmup_steps=11 contradicts steps=10"),
    ],
)
def test_wrong_and_contradictory_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig.make(**settings)


def test_settings_that_contradict_the_data(x, make_flow):
    with pytest.raises(ValueError, match="batch_size=512 is larger than the 90 training rows"):
        fit(make_flow(), x[:100], batch_size=512, progress=False)
    with pytest.raises(ValueError, match="patience=3 needs validation rows, but validation_fraction=0"):
        fit(make_flow(), x, patience=3, validation_fraction=0.0, progress=False)
    with pytest.raises(ValueError, match=r"validation_fraction=0.2 contradicts validation="):
        fit(make_flow(), x, x, validation_fraction=0.2, progress=False)
    with pytest.raises(ValueError, match="precision='bf16' contradicts a flow in float64"):
        fit(make_flow().double(), x, precision="bf16", progress=False)


@pytest.mark.parametrize("num_rows", [2, 20, 500, 5_000, 50_000, 500_000, 5_000_000])
def test_defaults_are_sensible_for_any_number_of_rows(num_rows):
    config = TrainingConfig().resolve(num_rows)
    assert 1 <= config.batch_size <= min(num_rows, 512)
    assert 2_000 <= config.steps <= 50_000
    assert config.steps * config.batch_size >= 5 * num_rows  # every row is in at least five batches
    assert config.steps / 200 <= config.validate_every <= config.steps / 50
    assert 1 <= config.log_every <= config.validate_every
    assert TrainingConfig().validation_rows(num_rows) <= max(num_rows / 10 + 1, 50_000)
    assert config.resolve(num_rows) == config


def test_a_time_budget_has_no_number_of_steps():
    assert TrainingConfig(time_budget=60).resolve(1000).steps is None
    assert TrainingConfig(time_budget=60, steps=10).resolve(1000).steps == 10


@pytest.mark.parametrize("num_rows", [20, 500, 5_000, 50_000, 500_000])
@pytest.mark.parametrize("steps", [1, 30, 300, 3_000, 50_000])
@pytest.mark.parametrize("validation_rows", [10, 1_000, 100_000])
def test_validations_take_at_most_a_fifth_of_the_time_of_the_steps(num_rows, steps, validation_rows):
    """A step costs a forward and a backward of twice the forward; a validation costs a forward for both weights."""
    config = TrainingConfig(steps=steps).resolve(num_rows, validation_rows)
    validations = steps // config.validate_every - 1  # without the last, which every run has
    assert validations * 2 * validation_rows <= steps * 3 * config.batch_size / 5
    assert config.validate_every >= steps // 100


def test_settings_that_are_given_are_kept():
    config = TrainingConfig(steps=30, warmup_steps=3, validate_every=1, log_every=1).resolve(500_000, 100_000)
    assert (config.warmup_steps, config.validate_every, config.log_every) == (3, 1, 1)
    timed = TrainingConfig(time_budget=60, warmup_steps=3, validate_every=20).resolve(500_000, 100_000)
    assert (timed.warmup_steps, timed.validate_every, timed.log_every) == (3, 20, 2)


@pytest.mark.parametrize("steps", [None, 50_000])
def test_a_warm_up_follows_the_clock_of_a_time_budget(steps):
    """A run of 300 steps in 60 seconds warms up in about ten steps, whatever ``steps`` allows."""
    config = TrainingConfig(time_budget=60, steps=steps, learning_rate=1.0).resolve(10**6)
    rates = [learning_rate(config, step, step / 5) for step in range(300)]
    assert rates == sorted(rates[:10]) + sorted(rates[10:], reverse=True)
    assert rates[10] == pytest.approx(1.0, abs=0.01)
    # A first step that compiles for a sixth of the time does not end the warm-up.
    assert learning_rate(config, 1, 10.0) < 0.3


def test_schedule():
    config = TrainingConfig(steps=1000, warmup_steps=10, learning_rate=2.0)
    assert learning_rate(config, 0, 0.0) == pytest.approx(0.2, rel=1e-3)
    assert learning_rate(config, 500, 0.0) == pytest.approx(1.0)
    assert learning_rate(config, 1000, 0.0) == pytest.approx(0.0, abs=1e-12)
    timed = TrainingConfig(steps=1000, time_budget=10.0, warmup_steps=0, learning_rate=2.0)
    assert learning_rate(timed, 100, 5.0) == pytest.approx(1.0)  # half of the time, a tenth of the steps
    assert learning_rate(timed, 1, 12.0) == pytest.approx(0.0)
    assert averaging_weight(0.999, 0) == pytest.approx(0.9)
    assert averaging_weight(0.999, 10**6) == pytest.approx(1e-3)


# --- rows ---


def test_rows_that_do_not_fit_the_flow(x, make_flow):
    with pytest.raises(ValueError, match=r"train: rows have shape \(2,\), but this flow expects shape \(3,\)"):
        fit(make_flow(3), x, progress=False)
    with pytest.raises(ValueError, match=r"validation: rows have shape \(1,\)"):
        fit(make_flow(), x, x[:, :1], progress=False)
    with pytest.raises(ValueError, match="train: rows have 0 context columns, but this flow has context_features=1"):
        fit(make_flow(context_features=1), x, progress=False)
    with pytest.raises(ValueError, match="train: rows have 1 context columns, but this flow has context_features=0"):
        fit(make_flow(), (x, x[:, :1]), progress=False)


def test_rows_that_are_not_finite(x, make_flow):
    bad = x.clone()
    bad[5, 1] = torch.nan
    with pytest.raises(ValueError, match=r"train: 1 of 600 rows have NaN or infinite values: row 5 \(column 1\)"):
        fit(make_flow(), bad, progress=False)
    with pytest.raises(ValueError, match="validation: 1 of 600 rows have NaN"):
        fit(make_flow(), x, bad, progress=False)


@pytest.mark.parametrize(
    ("rows", "fraction", "message"),
    [
        (1, None, "1 rows leave 0 for training and 1 for validation"),
        (10, 0.01, "10 rows leave 10 for training and 0 for validation"),
    ],
)
def test_no_rows_after_the_split(x, make_flow, rows, fraction, message):
    with pytest.raises(ValueError, match=message):
        fit(make_flow(), x[:rows], validation_fraction=fraction, progress=False)
    with pytest.raises(ValueError, match="train: there are no rows"):
        fit(make_flow(), x[:0], progress=False)


def only_weight_of(row):
    weights = torch.zeros(20)
    weights[row] = 1
    return weights


def test_no_weight_after_the_split(x, make_flow):
    """Two of 20 rows are for validation.

    Only one row has a weight, so either the training or the validation rows have none.
    """
    remedy = "give validation= rows, another seed, or validation_fraction=0"
    said = []
    for row in range(20):
        with pytest.raises(ValueError, match=remedy) as caught:
            fit(make_flow(), (x[:20], None, only_weight_of(row)), steps=2, progress=False)
        said.append(str(caught.value))
    assert sum("after the split, all 18 training rows have weight 0" in text for text in said) == 2
    assert sum("after the split, all 2 validation rows have weight 0" in text for text in said) == 18
    rows = x[:20], None, only_weight_of(3)
    assert fit(make_flow(), rows, steps=2, validation_fraction=0, progress=False).steps == 2
    assert fit(make_flow(), rows, x[20:40], steps=2, progress=False).steps == 2


def test_numbers_of_numpy_are_numbers(x, make_flow, tmp_path):
    numpy_settings = {"steps": np.int64(5), "batch_size": np.uint8(32), "learning_rate": np.float32(0.5)}
    config = TrainingConfig(**numpy_settings)
    assert config == TrainingConfig(steps=5, batch_size=32, learning_rate=0.5)
    assert json.loads(json.dumps(asdict(config))) == asdict(config)
    assert fit(make_flow(), x, run=tmp_path / "run", progress=False, **numpy_settings).steps == 5
    for wrong in (np.float64(5.5), np.bool_(True), np.int64(0)):
        with pytest.raises(ValueError, match="steps must be a whole number, 1 or more"):
            TrainingConfig(steps=wrong)


def test_losses_that_are_no_losses(x, make_flow):
    with pytest.raises(ValueError, match=r"one number for each of the 64 rows of its batch.*got shape \(\)"):
        fit(make_flow(), x, loss=lambda flow, batch: flow.log_prob(batch.x).mean(), progress=False)
    with pytest.raises(ValueError, match="train=None needs a loss that draws its own samples"):
        fit(make_flow(), None, progress=False)


def test_flows_without_parameters(x):
    flow = cf.Flow(cf.distributions.StandardNormal(2), cf.transforms.Permutation([1, 0]))
    with pytest.raises(ValueError, match="no parameters to train"):
        fit(flow, x, progress=False)
