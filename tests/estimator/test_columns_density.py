"""CubicFlowDensity on frames with words, steps and gaps, where it fits a model of columns."""

from __future__ import annotations

import pickle
import pickletools
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import cubicflow as cf
from cubicflow.tables.model.flow import FlowEncoder
from cubicflow.tables.model.network import ColumnsModel

FEW_STEPS = {"max_steps": 40, "hidden_features": 8, "random_state": 0}


def trees(rows: int = 300) -> pd.DataFrame:
    """Return trees whose kind determines the height's distribution and how often the rings are missing."""
    rng = np.random.default_rng(0)
    kind = rng.choice(["ash", "beech", "oak"], rows, p=[0.5, 0.3, 0.2])
    rings = pd.Series(rng.poisson(40, rows)).astype("Int32")
    made = pd.DataFrame({"kind": kind, "height": rng.normal(20, 2, rows) + 9 * (kind == "oak"), "rings": rings})
    made["planted"] = pd.Timestamp("1950-01-01") + pd.to_timedelta(rng.integers(0, 2000, rows), "D")
    made.loc[(kind == "ash") & (rng.random(rows) < 0.7), "rings"] = pd.NA
    made.loc[rng.random(rows) < 0.1, "height"] = np.nan
    made.loc[rng.random(rows) < 0.1, "kind"] = None
    made.loc[rng.random(rows) < 0.1, "planted"] = pd.NaT
    return made


@pytest.fixture(scope="module")
def fitted() -> cf.CubicFlowDensity:
    return cf.CubicFlowDensity(max_steps=150, random_state=0).fit(trees())


def test_gaps_are_scored_and_sampled(fitted: cf.CubicFlowDensity) -> None:
    frame = trees()
    assert fitted.model_ == "columns"
    assert isinstance(fitted.flow_, ColumnsModel)
    scores = fitted.score_samples(frame)
    assert scores.shape == (300,)
    assert np.isfinite(scores).all()
    assert fitted.score(frame) == pytest.approx(scores.mean())
    assert np.isfinite(fitted.held_out_score_)
    drawn = fitted.sample(4000, random_state=0)
    assert drawn.dtypes.to_dict() == frame.dtypes.to_dict()
    assert list(drawn.columns) == list(frame.columns)
    error = 4 * 0.5 / np.sqrt(300)
    for name in frame:
        assert drawn[name].isna().mean() == pytest.approx(frame[name].isna().mean(), abs=error), name
    ash = drawn["kind"] == "ash"
    assert drawn["rings"].isna()[ash].mean() > 3 * drawn["rings"].isna()[~ash & drawn["kind"].notna()].mean()
    assert fitted.sample(7, random_state=3).equals(fitted.sample(7, random_state=3))
    assert np.isfinite(fitted.score_samples(drawn)).all()


def test_samples_have_the_missing_values_of_their_library() -> None:
    columns: dict[str, Any] = {
        "rings": [None, *range(40, 60)] * 4,
        "kind": ["oak", None, "ash"] * 28,
        "marked": [True, None, False] * 28,
    }
    for frame in (pl.DataFrame(columns), pa.table(columns), pd.DataFrame(columns)):
        drawn = cf.CubicFlowDensity(**{**FEW_STEPS, "max_steps": 5}).fit(frame).sample(200, random_state=0)
        assert type(drawn) is type(frame)
        if isinstance(frame, pd.DataFrame):
            assert drawn.dtypes.to_dict() == frame.dtypes.to_dict()
            assert drawn.isna().any().all()
            assert drawn["marked"].isin([True, False, None]).all()
        else:
            assert drawn.schema == frame.schema
            assert all(drawn[name].null_count > 0 if isinstance(drawn, pa.Table) else drawn[name].null_count() > 0
                       for name in columns)  # fmt: skip


def test_the_model_is_chosen_by_the_kinds_of_columns() -> None:
    rng = np.random.default_rng(1)
    real = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    quick = {"n_members": 2, "max_steps": 1, "max_components": 1, "hidden_features": 4, "random_state": 0}
    cases = {
        "real numbers": (real, "flow"),
        "steps": (real.round(1), "columns"),
        "gaps": (real.where(real > -1.5), "columns"),
        "words": (real.assign(b=np.where(real["b"] > 0, "up", "down")), "columns"),
        "an atom": (real.assign(b=real["b"].clip(lower=0)), "columns"),
        "an array": (real.round(1).to_numpy(), "flow"),
    }
    for what, (table, expected) in cases.items():
        assert cf.CubicFlowDensity(**quick).fit(table).model_ == expected, what
    with_kinds = cf.CubicFlowDensity(**quick, kinds={0: "stepped"}).fit(real.round(1).to_numpy())
    assert with_kinds.model_ == "columns"
    for asked in ("columns", "flow"):
        assert cf.CubicFlowDensity(**quick, model=asked).fit(real.round(1)).model_ == asked
    with pytest.raises(ValueError, match="model must be auto, columns or flow, got 'rows'"):
        cf.CubicFlowDensity(model="rows").fit(real)


def test_arrays_with_gaps_need_the_model_of_columns() -> None:
    x = np.random.default_rng(2).normal(size=(200, 2))
    x[:, 1] += 3 * x[:, 0]
    x[::5, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        cf.CubicFlowDensity().fit(x)
    density = cf.CubicFlowDensity(model="columns", **FEW_STEPS).fit(x)
    drawn = density.sample(2000, random_state=0)
    assert drawn.shape == (2000, 2)
    assert np.isnan(drawn[:, 0]).mean() == pytest.approx(0.2, abs=0.1)
    assert not np.isnan(drawn[:, 1]).any()
    assert np.isfinite(density.score_samples(x)).all()


def test_a_flow_refuses_gaps() -> None:
    with pytest.raises(ValueError, match=r"lacks values, in 'kind' \(\d+\), 'height'"):
        cf.CubicFlowDensity(model="flow").fit(trees())


def test_a_word_outside_the_training_rows_has_a_probability(fitted: cf.CubicFlowDensity) -> None:
    rows = trees()[:20]
    strange = fitted.score_samples(rows.assign(kind="elm"))
    assert np.isfinite(strange).all()
    known = [fitted.score_samples(rows.assign(kind=kind)) for kind in ("ash", "beech", "oak")]
    assert (strange < np.logaddexp.reduce(known, axis=0)).all()
    with pytest.raises(ValueError, match="column 'rings' is missing; column 'years' is new"):
        fitted.score_samples(rows.rename(columns={"rings": "years"}))
    with pytest.raises(ValueError, match="give such a frame"):
        fitted.score_samples(np.zeros((3, 4)))


def test_a_weight_acts_like_repeated_rows() -> None:
    """On words alone, a weight of 3 changes the shares as three equal rows would."""
    words = pd.DataFrame({"word": ["a", "b"] * 60, "size": ["small", "large", "large"] * 40})
    heavy = cf.CubicFlowDensity(**FEW_STEPS).fit(words, sample_weight=np.where(words["word"] == "a", 3.0, 1.0))
    every = pd.DataFrame({"word": ["a", "a", "b", "b"], "size": ["small", "large"] * 2})
    masses = np.exp(heavy.score_samples(every))
    assert masses[:2].sum() == pytest.approx(0.75, abs=0.06)
    left = cf.CubicFlowDensity(**FEW_STEPS).fit(words, sample_weight=(np.arange(120) < 60).astype(float))
    alone = cf.CubicFlowDensity(**FEW_STEPS).fit(words[:60])
    assert np.array_equal(left.score_samples(every), alone.score_samples(every))


def test_pickles_clones_and_searches(fitted: cf.CubicFlowDensity) -> None:
    frame = trees()
    content = pickle.dumps(fitted)
    words = [argument for _, argument, _ in pickletools.genops(content) if isinstance(argument, str)]
    assert not [word for word in words if word.partition(".")[0] == "torch"]
    again = pickle.loads(content)
    assert np.array_equal(again.score_samples(frame), fitted.score_samples(frame))
    assert again.sample(9, random_state=3).equals(fitted.sample(9, random_state=3))
    assert clone(fitted).get_params() == fitted.get_params()
    assert fitted.get_params()["model"] == "auto"
    quick = cf.CubicFlowDensity(**{**FEW_STEPS, "max_steps": 2})
    search = GridSearchCV(quick, {"num_bins": [4, 8]}, cv=2, refit=False)
    assert np.isfinite(search.fit(frame).cv_results_["mean_test_score"]).all()


def test_a_second_fit_replaces_the_first() -> None:
    density = cf.CubicFlowDensity(n_members=2, max_steps=2, max_components=1, random_state=0).fit(trees())
    x = np.random.default_rng(0).normal(size=(40, 2))
    again = density.fit(x)
    assert again.model_ == "flow"
    assert isinstance(again.fitted_.encoder, FlowEncoder)
    assert again.sample(3, random_state=0).shape == (3, 2)
