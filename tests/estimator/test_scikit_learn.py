"""The two estimators in scikit-learn: its estimator checks, pipelines, searches, pickles and weights."""

from __future__ import annotations

import pickle
import pickletools
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import cubicflow as cf

TINY = {"n_members": 2, "max_steps": 2, "num_layers": 1, "hidden_features": 4}
FEW_STEPS = {**TINY, "max_components": 2}


@parametrize_with_checks([cf.CubicFlowDensity(**{**TINY, "max_components": 1}), cf.CubicFlowConditional(**TINY)])
def test_scikit_learns_checks_pass(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.soak
@parametrize_with_checks([cf.CubicFlowDensity(), cf.CubicFlowConditional()])
def test_scikit_learns_checks_pass_with_default_settings(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def rows() -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(120, 3))
    x[:, 1] = np.exp(0.5 * x[:, 0]) + 0.2 * x[:, 1]
    return x


def test_a_fit_depends_on_the_weighted_set_of_rows_alone(rows: np.ndarray[Any, Any]) -> None:
    generator = np.random.default_rng(1)
    counts = generator.integers(0, 4, len(rows))
    order = generator.permutation(len(rows))
    density = cf.CubicFlowDensity(**FEW_STEPS, random_state=0)
    weighted = clone(density).fit(rows[order], sample_weight=counts[order])
    repeated = clone(density).fit(np.repeat(rows, counts, axis=0))
    unweighted = clone(density).fit(rows)
    assert np.array_equal(weighted.score_samples(rows), repeated.score_samples(rows))
    assert np.abs(weighted.score_samples(rows) - unweighted.score_samples(rows)).max() > 0.01

    model = cf.CubicFlowConditional(**TINY, random_state=0)
    weighted = clone(model).fit(rows[order, :2], rows[order, 2], sample_weight=counts[order])
    repeated = clone(model).fit(np.repeat(rows[:, :2], counts, axis=0), np.repeat(rows[:, 2], counts))
    assert np.array_equal(weighted.log_prob(rows[:, :2], rows[:, 2]), repeated.log_prob(rows[:, :2], rows[:, 2]))


def test_weights_that_sum_to_one_count_as_rows(rows: np.ndarray[Any, Any]) -> None:
    density = cf.CubicFlowDensity(**FEW_STEPS, random_state=0)
    plain = clone(density).fit(rows)
    scaled = clone(density).fit(rows, sample_weight=np.full(len(rows), 1 / 128))
    assert np.array_equal(plain.score_samples(rows), scaled.score_samples(rows))


def test_pickles_hold_safetensors_and_restore_the_model_bit_for_bit(rows: np.ndarray[Any, Any]) -> None:
    density = cf.CubicFlowDensity(**FEW_STEPS, random_state=0).fit(rows)
    model = cf.CubicFlowConditional(**TINY, random_state=0).fit(rows[:, :2], rows[:, 2])
    for estimator in (density, model):
        content = pickle.dumps(estimator)
        words = [argument for _, argument, _ in pickletools.genops(content) if isinstance(argument, str)]
        assert not [word for word in words if word.partition(".")[0] == "torch"]
        assert b"__metadata__" in content or b'"data_offsets"' in content
    again = pickle.loads(pickle.dumps(density))
    assert np.array_equal(again.score_samples(rows), density.score_samples(rows))
    assert np.array_equal(again.sample(9, random_state=3), density.sample(9, random_state=3))
    same = pickle.loads(pickle.dumps(model))
    assert np.array_equal(same.quantiles(rows[:, :2], [0.1, 0.7]), model.quantiles(rows[:, :2], [0.1, 0.7]))


def test_pipelines_and_searches(rows: np.ndarray[Any, Any]) -> None:
    chain = make_pipeline(StandardScaler(), cf.CubicFlowDensity(**FEW_STEPS, random_state=0))
    search = GridSearchCV(chain, {"cubicflowdensity__max_components": [1, 2]}, cv=2).fit(rows)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    scaled = search.best_estimator_[0].transform(rows)
    assert search.score(rows) == search.best_estimator_[1].score(scaled)
    conditional = cf.CubicFlowConditional(**TINY, random_state=0)
    found = GridSearchCV(conditional, {"num_layers": [1, 2]}, cv=2).fit(rows[:, :2], rows[:, 2])
    assert np.isfinite(found.cv_results_["mean_test_score"]).all()


def test_a_seed_repeats_the_fit_and_leaves_torchs_generator_unchanged(rows: np.ndarray[Any, Any]) -> None:
    import torch

    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = cf.CubicFlowDensity(**FEW_STEPS, random_state=7).fit(rows)
    assert torch.equal(torch.rand(3), expected)
    second = cf.CubicFlowDensity(**FEW_STEPS, random_state=7).fit(rows)
    assert np.array_equal(first.score_samples(rows), second.score_samples(rows))


def test_progress_is_shown_on_request(rows: np.ndarray[Any, Any], capsys: pytest.CaptureFixture[str]) -> None:
    cf.CubicFlowDensity(**FEW_STEPS, random_state=0).fit(rows)
    assert capsys.readouterr().err == ""
    cf.CubicFlowDensity(**FEW_STEPS, random_state=0, verbose=True).fit(rows)
    assert "coupling layers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_members": 0}, "n_members must be a whole number, 1 or more, got 0"),
        ({"max_components": 1.5}, "max_components must be a whole number"),
        ({"device": "abacus"}, "the device 'abacus' cannot be used"),
    ],
)
def test_wrong_settings_are_refused(rows: np.ndarray[Any, Any], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cf.CubicFlowDensity(**{**FEW_STEPS, **settings}).fit(rows)


def test_many_rows_train_one_flow_in_batches() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(5_200, 2))
    density = cf.CubicFlowDensity(max_steps=30, num_layers=1, hidden_features=8, device="cpu", random_state=0).fit(x)
    assert isinstance(density.flow_, cf.Flow)
    assert density.score(x) == pytest.approx(-2 * 0.5 * np.log(2 * np.pi * np.e), abs=0.1)
    model = cf.CubicFlowConditional(max_steps=30, num_layers=1, hidden_features=8, device="cpu", random_state=0)
    model.fit(x[:, :1], x[:, 1])
    assert len(model.held_out_levels_) == 520
    assert model.quantiles(x[:4, :1], 0.5) == pytest.approx(np.zeros(4), abs=0.3)
