"""Pages of runs with context columns, with columns that determine one another, and with constraints."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.explore.pages import Page, Tab, ask
from tests.explore.tables import fit_small, make_lists

from cubicflow.explore.framed import unframed
from cubicflow.explore.opened_run import open_run
from cubicflow.explore.overview import columns_answer, points_answer
from cubicflow.explore.row_scores import score_rows
from cubicflow.tables import FittedTable, TableOptions, fit_table

Serve = Callable[[Path], Page]
CAPITALS = {"France": "Paris", "Germany": "Berlin", "Austria": "Wien"}
SETTINGS = {"hidden_features": 8}
HOW: dict[str, Any] = {"steps": 60, "progress": False, "device": "cpu"}


def fit(frame: pd.DataFrame, folder: Path, options: TableOptions | None = None, **how: Any) -> Path:
    frame.to_csv(folder / "table.csv", index=False)
    fit_table(folder / "table.csv", folder / "run", options, how.pop("settings", SETTINGS), **{**HOW, **how})
    return folder / "run"


@pytest.fixture(scope="module")
def context_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = TableOptions(context=["tree"])
    return fit(make_lists(), tmp_path_factory.mktemp("context"), options, learning_rate=1e-2)


@pytest.fixture(scope="module")
def flow_context_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    kind = rng.choice(["gamma", "hadron"], 300)
    frame = pd.DataFrame({"kind": kind, "x": rng.normal(size=300) + 3 * (kind == "hadron"), "y": rng.normal(size=300)})
    options = TableOptions(context=["kind"])
    settings = {"hidden_features": 8, "num_layers": 2}
    return fit(frame, tmp_path_factory.mktemp("flow-context"), options, settings=settings, model="flow")


@pytest.fixture(scope="module")
def ruled_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    country = rng.choice([*CAPITALS], 600, p=[0.5, 0.3, 0.2])
    old = np.where(rng.random(600) < np.where(country == "France", 0.8, 0.3), "old", "young")
    frame = pd.DataFrame({"age": old, "country": country, "capital": [CAPITALS[name] for name in country]})
    return fit_small(frame, tmp_path_factory.mktemp("ruled"))


@pytest.fixture(scope="module")
def constrained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    net, tax = rng.integers(0, 300, 600), rng.integers(0, 90, 600)
    first = rng.integers(0, 200, 600)
    frame = pd.DataFrame(
        {"net": net, "tax": tax, "total": net + tax, "first": first, "last": first + rng.poisson(8, 600)}
    )
    constraints = ["net + tax = total", "first <= last"]
    return fit_small(frame, tmp_path_factory.mktemp("constrained"), constraints=constraints)


def all_rows(frame: pd.DataFrame, run: Path) -> pd.DataFrame:
    """Return all combinations of the words of a table, with exp of their scores."""
    rows = pd.DataFrame(itertools.product(*(sorted(column.unique()) for _, column in frame.items())))
    rows.columns = frame.columns
    scores = FittedTable.load(run).score(pa.Table.from_pandas(rows, preserve_index=False))
    return rows.assign(p=np.exp(scores))


def shares(rows: pd.DataFrame, name: str) -> pd.Series:
    return rows.groupby(name)["p"].sum() / rows["p"].sum()


def test_a_context_column_has_one_value(served: Serve, context_run: Path, tab: Tab) -> None:
    """Masses under each context are those of enumeration, and a second word replaces the first."""
    shown = tab.open(served(context_run), "what-if")
    truth = all_rows(make_lists(), context_run)
    menu = shown.get_by_label("condition on tree")
    usual = menu.locator("option").first.inner_text().removeprefix("usual: ")

    def compare(tree: str) -> None:
        tab.settled()
        assert f"given tree {tree}" in shown.inner_text("#asked")
        for name in ("rings", "age", "height"):
            expected = shares(truth[truth["tree"] == tree], name)
            for word, mass in tab.masses(served(context_run), name).items():
                assert mass == pytest.approx(expected.get(word, 0.0), abs=2e-6), (tree, name, word)

    compare(usual)
    menu.select_option("in")
    group = shown.get_by_role("group", name="values of tree")
    for tree in ("elm", "oak"):
        with shown.expect_response("**/api/sample"):
            group.get_by_role("button", name=tree).click()
        compare(tree)
        assert group.locator("[aria-pressed=true]").all_inner_texts() == [tree]
    assert set(shown.locator("tbody tr td:first-child").all_inner_texts()) == {"oak"}
    assert tab.wrong == []


def test_pictures_have_the_contexts_of_the_data(context_run: Path) -> None:
    frame, opened = make_lists(), open_run(context_run)
    truth = all_rows(frame, context_run).assign(weight=lambda rows: rows["tree"].map(frame["tree"].value_counts()))
    truth["p"] *= truth["weight"] / truth.groupby("tree")["p"].transform("sum")
    header, arrays = unframed(columns_answer(opened))
    assert header["ofData"]
    assert header["names"] == [*frame.columns]
    points = unframed(points_answer(opened))[1]["model"]
    for i, column in enumerate(header["columns"]):
        count = len(column["bars"])
        expected = shares(truth, column["name"])[column["bars"]].to_numpy()
        assert arrays["masses"][i, :count] == pytest.approx(expected, abs=4.5 * 0.5 / 64)  # 64² rows
        drawn = np.bincount((points[:, i] * count).astype(int), minlength=count) / len(points)
        assert drawn == pytest.approx(expected, abs=4.5 * 0.5 / len(points) ** 0.5)


def test_rows_with_a_context(context_run: Path) -> None:
    """The log probabilities of the modelled cells sum to the score, which is conditional on the context."""
    rows = make_lists(5, seed=4)
    question = {"content": rows.to_csv(index=False).encode(), "name": "rows.csv", "pasted": False}
    header, arrays = unframed(score_rows(open_run(context_run), question))
    scores = FittedTable.load(context_run).score(pa.Table.from_pandas(rows, preserve_index=False))
    assert header["explained"] == ["rings", "age", "height"]
    np.testing.assert_allclose(arrays["scores"], scores, atol=1e-9)
    np.testing.assert_allclose(arrays["conditionals"].sum(axis=1), scores[header["shown"]], atol=1e-6)


def test_rows_of_a_flow_have_the_context_that_was_asked_for(served: Serve, flow_context_run: Path) -> None:
    page = served(flow_context_run)
    conditions = {"kind": {"is": "hadron"}, "y": {"from": "-0.5", "to": "0.5"}}
    question = urlencode({"conditions": json.dumps(conditions), "n": 40, "seed": 0})
    answer = ask(page, f"/api/sample.csv?{question}")
    assert answer[0] == 200, answer[1][:300]
    rows = pd.read_csv(io.BytesIO(answer[1]))
    assert [*rows.columns] == ["kind", "x", "y"]
    assert (rows["kind"] == "hadron").all()
    assert len(rows) == 40
    assert rows["y"].abs().max() <= 0.5
    sampled = FittedTable.load(flow_context_run).sample(2000, {"kind": "hadron"}, seed=3).to_pandas()
    near = sampled[sampled["y"].abs() <= 0.5]["x"]
    assert abs(rows["x"].mean() - near.mean()) < 4.5 * near.std() * (1 / 40 + 1 / len(near)) ** 0.5


def test_columns_that_determine_one_another(served: Serve, ruled_run: Path, tab: Tab) -> None:
    fitted = FittedTable.load(ruled_run)
    assert fitted.model.laws().encoder.rules
    frame = pd.read_csv(ruled_run.parent / "table.csv")
    truth = all_rows(frame, ruled_run)
    shown = tab.open(served(ruled_run), "what-if?capital=Berlin&capital=Paris")
    # Scores leave a small probability for rows that break the rule. Drawn rows never break it, so they have all of it.
    determinant = fitted.model.laws().encoder.rules[0].determinant
    truth["p"] = truth.groupby(["age", determinant])["p"].transform("sum")
    given = truth[(truth["country"].map(CAPITALS) == truth["capital"]) & truth["capital"].isin(["Berlin", "Paris"])]
    for name in frame.columns:
        expected = shares(given, name)
        for word, mass in tab.masses(served(ruled_run), name).items():
            assert mass == pytest.approx(expected.get(word, 0.0), abs=2e-6), (name, word)
    shown.wait_for_selector("[aria-label='sampled rows']")
    rows = shown.locator("tbody tr").all_inner_texts()
    assert {row.split("\t")[1]: row.split("\t")[2] for row in rows}.items() <= CAPITALS.items()
    points = tab.open(served(ruled_run), "pairs?x=country&y=capital")
    assert not points.locator("main .error").count()
    assert tab.wrong == []


def test_pictures_keep_the_constraints(constrained_run: Path) -> None:
    opened = open_run(constrained_run)
    header, arrays = unframed(points_answer(opened))
    drawn, places = opened.subject.rows(len(arrays["model"])), arrays["model"]
    rows = pd.DataFrame({axis.name: axis.positions(y) for axis, y in zip(opened.subject.axes, drawn.T, strict=True)})
    assert len(rows) > 1000
    for name, place in zip(rows, places.T, strict=True):  # on an axis from 0 to 1
        assert np.corrcoef(rows[name], place)[0, 1] > 0.99
    assert (rows["net"] + rows["tax"] == rows["total"]).all()
    assert (rows["first"] <= rows["last"]).all()
    assert header["notes"] == []


@pytest.mark.parametrize("given", [{}, {"net": ("40", "90")}, {"total": ("150", "210")}], ids=str)
def test_densities_keep_the_constraints(given: dict[str, object], constrained_run: Path) -> None:
    """Densities agree with rows that `sample` draws, which keep the constraints by another code."""
    opened = open_run(constrained_run)
    found = opened.subject.answer(given)
    assert found.effective_size >= 500
    fitted = FittedTable.load(constrained_run)
    rows = fitted.sample(3000, given, seed=5).to_pandas()
    for i, column in enumerate(opened.subject.axes):
        drawn = column.masses((rows[column.name].to_numpy(np.float64) - column.start) / column.unit)
        for part in np.array_split(np.arange(column.bins), 4):
            share = float(drawn[part].sum())
            error = np.sqrt(share * (1 - share) * (1 / 3000 + 1 / found.columns[i].effective_size))
            # Neighbouring bins share their mass, so a part may differ by the mass of a bin at each of its ends.
            ends = drawn[part[[0, -1]]].sum()
            assert abs(found.columns[i].masses[part].sum() - share) <= 4.5 * error + ends + 1e-3, column.name
        middle = np.quantile(rows[column.name], [0.4, 0.6])
        assert middle[0] <= found.columns[i].quantiles[1] <= middle[1], column.name
