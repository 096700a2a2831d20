"""The imputer with scikit-learn's interface."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from cubicflow import CubicFlowImputer

SETTINGS = {"max_steps": 150, "hidden_features": 16, "random_state": 0, "device": "cpu"}


def frame(rows: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    kind = rng.choice(["ash", "oak"], rows)
    size = rng.normal(0, 0.3, rows) + 4 * (kind == "oak")
    made = pd.DataFrame({"kind": kind, "size": size, "rings": rng.poisson(20, rows)}, index=np.arange(rows) + 7)
    made.loc[rng.random(rows) < 0.3, "kind"] = None
    return made


def test_only_the_gaps_of_a_frame_are_changed() -> None:
    rows = frame()
    imputer = CubicFlowImputer(most_likely=True, **SETTINGS)
    filled = imputer.fit_transform(rows)
    pd.testing.assert_index_equal(filled.index, rows.index)
    assert list(filled.columns) == list(rows.columns)
    assert (filled.dtypes == rows.dtypes).all()
    assert filled.notna().all().all()
    there = rows["kind"].notna()
    pd.testing.assert_frame_equal(filled[there], rows[there])
    likely = np.where(rows.loc[~there, "size"] > 2, "oak", "ash")  # the later column size determines the kind
    assert (filled.loc[~there, "kind"] == likely).mean() > 0.95
    pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(imputer)).transform(rows), filled)
    assert list(imputer.get_feature_names_out()) == list(rows.columns)
    with pytest.raises(ValueError, match="give such a frame"):
        imputer.transform(np.zeros((3, 3)))


def test_arrays_and_pipelines() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(500, 3))
    x[:, 2] = x[:, 0] + 0.1 * rng.normal(size=500)
    whole = x.copy()
    x[::4, 2] = np.nan
    imputer = clone(CubicFlowImputer(most_likely=True, **SETTINGS))
    filled = imputer.fit_transform(x)
    np.testing.assert_array_equal(filled[~np.isnan(x)], x[~np.isnan(x)])
    assert np.abs(filled - whole)[::4, 2].mean() < 0.7 * np.abs(whole[::4, 2] - np.median(whole[:, 2])).mean()
    np.testing.assert_array_equal(imputer.transform(x), filled)
    quick = CubicFlowImputer(**{**SETTINGS, "max_steps": 5})
    assert make_pipeline(quick, LinearRegression()).fit(x, whole[:, 0]).score(x, whole[:, 0]) > 0.9


def test_kinds_of_the_columns_of_an_array() -> None:
    rng = np.random.default_rng(2)
    x = np.column_stack([rng.normal(size=300), rng.poisson(6, 300)])
    x[::5, 1] = np.nan
    imputer = CubicFlowImputer(**{**SETTINGS, "max_steps": 5}, kinds={1: "integer"})
    filled = imputer.fit_transform(x)
    assert [column.kind for column in imputer.schema_.columns] == ["real", "integer"]
    assert (filled[:, 1] == filled[:, 1].round()).all()
    with pytest.raises(ValueError, match="kinds names an unknown column 7; the columns of X are 0, 1"):
        CubicFlowImputer(kinds={7: "integer"}).fit(x)
