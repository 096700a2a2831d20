"""Frames of three libraries: columns get the same kinds as on the command line, and samples have the input's type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import cubicflow as cf

TINY = {"n_members": 2, "max_steps": 4, "num_layers": 1, "hidden_features": 8, "random_state": 0}
SMALL = {**TINY, "max_components": 2}


@pytest.fixture(scope="module")
def columns() -> dict[str, Any]:
    generator = np.random.default_rng(0)
    kind = generator.choice(["ash", "beech", "oak"], 150, p=[0.6, 0.3, 0.1])
    height = generator.normal(20, 3, 150) + 5 * (kind == "oak")
    return {
        "kind": kind.tolist(),
        "height": height,
        "rings": generator.poisson(40, 150),
        "marked": generator.uniform(size=150) < 0.25,
    }


def pandas_frame(columns: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(columns).astype({"kind": "category", "rings": "int32"})


def polars_frame(columns: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(columns).cast({"kind": pl.Enum(["ash", "beech", "oak"]), "rings": pl.Int32})


def polars_text(columns: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(columns)


def pandas_text(columns: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(columns)


def arrow_frame(columns: dict[str, Any]) -> pa.Table:
    return pa.table(columns)


def arrow_views(columns: dict[str, Any]) -> pa.Table:
    return pa.table({**columns, "kind": pa.array(columns["kind"], pa.string_view())})


@pytest.mark.parametrize(
    "make",
    [pandas_frame, pandas_text, polars_frame, polars_text, arrow_frame, arrow_views],
    ids=lambda make: make.__name__,
)
def test_samples_are_frames_like_the_fitted_one(make: Any, columns: dict[str, Any]) -> None:
    frame = make(columns)
    density = cf.CubicFlowDensity(**SMALL).fit(frame)
    drawn = density.sample(200, random_state=0)
    assert type(drawn) is type(frame)
    if isinstance(drawn, pd.DataFrame):
        assert drawn.dtypes.to_dict() == frame.dtypes.to_dict()
    else:
        assert drawn.schema == frame.schema
    values = drawn.to_pydict() if isinstance(drawn, pa.Table) else {name: list(drawn[name]) for name in columns}
    assert set(values["kind"]) <= {"ash", "beech", "oak"}
    shares = [values["kind"].count(word) / 200 for word in ("ash", "beech", "oak")]
    true = [columns["kind"].count(word) / 150 for word in ("ash", "beech", "oak")]
    assert shares == pytest.approx(true, abs=4 * 0.5 / np.sqrt(200))
    assert min(values["rings"]) >= 0
    again = density.score_samples(drawn)
    assert again.shape == (200,)
    assert np.isfinite(again).all()


def test_all_libraries_give_the_same_scores(columns: dict[str, Any]) -> None:
    frames = [make(columns) for make in (pandas_frame, polars_frame)]
    scores = [cf.CubicFlowDensity(**SMALL).fit(frame).score_samples(frame) for frame in frames]
    assert np.array_equal(scores[0], scores[1])


def test_masses_of_a_column_of_words_sum_to_one(columns: dict[str, Any]) -> None:
    frame = pandas_frame(columns)[["kind", "marked"]]
    density = cf.CubicFlowDensity(**SMALL).fit(frame)
    every = pd.MultiIndex.from_product([["ash", "beech", "oak"], [False, True]], names=["kind", "marked"])
    cells = every.to_frame(index=False).astype(frame.dtypes.to_dict())
    masses = np.exp(density.score_samples(cells))
    left = 1 - np.prod([1 - cells.unseen for cells in density.fitted_.model.cells.values()])
    assert 0 < left < 0.02
    assert masses.sum() == pytest.approx(1 - left, abs=1e-9)
    ash = float((frame["kind"] == "ash").mean())
    assert masses[:2].sum() == pytest.approx(ash, abs=0.1)


def test_masses_of_a_flow_sum_to_one_nearly(columns: dict[str, Any]) -> None:
    frame = pd.DataFrame({"kind": [len(word) for word in columns["kind"]], "marked": np.int64(columns["marked"])})
    density = cf.CubicFlowDensity(**SMALL, model="flow").fit(frame)
    every = pd.MultiIndex.from_product([[3, 4, 5], [0, 1]], names=["kind", "marked"])
    masses = np.exp(density.score_samples(every.to_frame(index=False).astype(frame.dtypes.to_dict())))
    assert masses.sum() == pytest.approx(1, abs=0.05)  # the error of a quadrature with sixteen points


def test_array_columns_are_real_by_default(columns: dict[str, Any]) -> None:
    x = np.stack([columns["height"], columns["rings"]], axis=1)
    real = cf.CubicFlowDensity(**SMALL).fit(x)
    assert [column.kind for column in real.schema_.columns] == ["real", "real"]
    with_kinds = cf.CubicFlowDensity(**SMALL, kinds={1: "integer"}).fit(x)
    assert [column.kind for column in with_kinds.schema_.columns] == ["real", "integer"]
    drawn = with_kinds.sample(50, random_state=0)
    assert np.array_equal(drawn[:, 1], np.round(drawn[:, 1]))
    assert not np.array_equal(real.sample(50, random_state=0)[:, 1], drawn[:, 1])


def test_changed_columns_are_refused_and_named(columns: dict[str, Any]) -> None:
    frame = pandas_frame(columns)[["height", "rings"]]
    density = cf.CubicFlowDensity(**SMALL, model="flow").fit(frame)
    with pytest.raises(ValueError, match="column 'rings' is missing; column 'years' is new"):
        density.score_samples(frame.rename(columns={"rings": "years"}))
    with pytest.raises(ValueError, match=r"column 'height' should be real \(double\), is"):
        density.score_samples(frame.assign(height="tall"))
    with pytest.raises(ValueError, match="not whole numbers"):
        density.score_samples(frame.assign(rings=0.5))
    with pytest.raises(ValueError, match="give such a frame"):
        density.score_samples(frame.to_numpy())
    with pytest.raises(ValueError, match=r"lacks values, in 'height' \(1\)"):
        density.score_samples(frame.assign(height=frame["height"].where(frame.index > 0)))
    assert np.array_equal(density.score_samples(frame[frame.columns[::-1]]), density.score_samples(frame))


@pytest.mark.parametrize("estimator", [cf.CubicFlowDensity, cf.CubicFlowConditional])
@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([[1.0, 2.0]] * 150, r"these do not: 'odd' \(list<.*double>\)\. Leave them out$"),
        ([f"tree {i}" for i in range(150)], "nothing to learn from it; leave it out$"),
        ([f"{i},50" for i in range(150)], r"if these are numbers .* write them as 1234\.5 .*; leave it out$"),
        ([np.inf, *range(149)], "1 infinite value; replace them, remove those rows, or leave the column out$"),
    ],
    ids=["lists", "names", "commas", "infinite"],
)
def test_errors_about_useless_columns_name_no_command_line_option(
    estimator: Any, column: list[Any], message: str, columns: dict[str, Any]
) -> None:
    frame = pd.DataFrame({**columns, "odd": column})
    targets = () if estimator is cf.CubicFlowDensity else (np.arange(150.0),)
    with pytest.raises(ValueError, match=message):
        estimator(1, max_steps=2).fit(frame, *targets)


def test_a_row_of_weight_zero_is_ignored(columns: dict[str, Any]) -> None:
    frame = pandas_frame(columns)
    weights = np.ones(150)
    weights[100:] = 0
    weighted = cf.CubicFlowDensity(**SMALL).fit(frame, sample_weight=weights)
    removed = cf.CubicFlowDensity(**SMALL).fit(frame[:100])
    assert np.array_equal(weighted.score_samples(frame[:100]), removed.score_samples(frame[:100]))


@pytest.mark.parametrize("make", [pandas_frame, polars_frame])
def test_conditional_frames(make: Any, columns: dict[str, Any]) -> None:
    frame = make(columns)
    given, asked = frame[["kind", "marked"]], frame[["height", "rings"]]
    model = cf.CubicFlowConditional(**TINY).fit(given, asked)
    drawn = model.sample(given[:5], 3, random_state=0)
    assert type(drawn) is type(frame)
    assert list(drawn.columns) == ["height", "rings"]
    assert len(drawn) == 15
    assert model.log_prob(given, asked).shape == (150,)
    with pytest.raises(ValueError, match="one column y"):
        model.quantiles(given, 0.5)

    one = cf.CubicFlowConditional(**TINY).fit(given, frame["height"])
    medians = one.predict(given)
    oak = np.array(columns["kind"]) == "oak"
    assert medians[oak].mean() - medians[~oak].mean() == pytest.approx(5, abs=2.5)
    with pytest.raises(ValueError, match="column 'marked' is missing"):
        one.predict(given[["kind"]])
    with pytest.raises(ValueError, match="column 'marked' of y is boolean, but y should hold numbers or dates"):
        cf.CubicFlowConditional(**TINY).fit(given[["kind"]], frame[["height", "marked"]])


@pytest.mark.parametrize("make", [pandas_text, polars_text, arrow_frame])
def test_a_word_in_rows_of_weight_zero_alone_is_not_seen(make: Any, columns: dict[str, Any]) -> None:
    frame = make({**columns, "kind": [*columns["kind"][:-1], "rare"]})
    weights = np.ones(150)
    weights[-1] = 0
    density = cf.CubicFlowDensity(**SMALL).fit(frame, sample_weight=weights)
    assert set(density.schema_["kind"].levels) == {"ash", "beech", "oak"}
    given = frame.select(["kind", "rings"]) if isinstance(frame, pa.Table) else frame[["kind", "rings"]]
    model = cf.CubicFlowConditional(**TINY)
    model.fit(given, columns["height"], sample_weight=weights)
    assert set(model.schema_["kind"].levels) == {"ash", "beech", "oak"}
    removed = cf.CubicFlowConditional(**TINY).fit(given[:-1], columns["height"][:-1])
    assert np.array_equal(model.predict(given[:-1]), removed.predict(given[:-1]))


def test_kinds_given_for_an_array_act_like_those_of_a_frame(columns: dict[str, Any]) -> None:
    x = np.stack([np.array(columns["marked"], dtype=float), columns["height"]], axis=1)
    y = columns["rings"].astype(float)
    with_kinds = cf.CubicFlowConditional(**TINY, kinds={0: "categorical", "y0": "integer"}).fit(x, y)
    assert [column.kind for column in with_kinds.schema_.columns] == ["categorical", "real", "integer"]
    framed = cf.CubicFlowConditional(**TINY, kinds={"a": "categorical", "b": "real", "y0": "integer"})
    framed.fit(pd.DataFrame(x, columns=["a", "b"]), y)
    assert np.array_equal(with_kinds.log_prob(x, y), framed.log_prob(pd.DataFrame(x, columns=["a", "b"]), y))
    drawn = with_kinds.sample(x[:5], 3, random_state=0)
    assert np.array_equal(drawn, np.round(drawn))


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ({0: "zebra"}, "should be one of real, .*, got 'zebra'"),
        ({2: "real"}, "kinds names an unknown column 2; the columns of X are 0, 1"),
        ({"height": "real"}, "kinds names an unknown column 'height'; the columns of X are 0, 1"),
    ],
)
@pytest.mark.parametrize("estimator", [cf.CubicFlowDensity, cf.CubicFlowConditional])
def test_wrong_kinds_of_arrays_are_refused(estimator: Any, kinds: dict[Any, str], message: str) -> None:
    x = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match=message):
        estimator(max_steps=2, kinds=kinds).fit(x, x[:, 0])


def test_x_may_have_the_default_column_names_of_an_array_y(columns: dict[str, Any]) -> None:
    given = pd.DataFrame({"y0": columns["height"], "_y1": columns["rings"]})
    y = np.stack([columns["height"] + 1, columns["rings"] - 3.0], axis=1)
    model = cf.CubicFlowConditional(**TINY).fit(given, y)
    renamed = given.rename(columns={"y0": "a", "_y1": "b"})
    expected = cf.CubicFlowConditional(**TINY).fit(renamed, y)
    assert np.array_equal(model.log_prob(given, y), expected.log_prob(renamed, y))
    assert np.array_equal(model.predict(given[:5]), expected.predict(renamed[:5]))


@pytest.mark.parametrize("estimator", [cf.CubicFlowDensity, cf.CubicFlowConditional])
def test_errors_about_too_few_rows_name_no_parts_of_a_split(estimator: Any, columns: dict[str, Any]) -> None:
    frame = pandas_frame(columns)[["rings", "height"]]
    with pytest.raises(ValueError, match=r"n_samples=9: .* at least 10 rows with a weight; give more rows"):
        estimator(**TINY).fit(frame[:9], columns["height"][:9])
    with pytest.raises(ValueError, match=r"n_samples=9: .* at least 10 rows with a weight; give more rows"):
        estimator(**TINY).fit(frame[:20], columns["height"][:20], sample_weight=np.arange(20) < 9)
    estimator(**TINY).fit(frame[:9].to_numpy(), columns["height"][:9])
