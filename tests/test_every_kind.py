"""A table with a column of every kind goes through every room: fit, score, sample, conditions, imputation, judge,
plots, the page, export, blocks and the estimators. A flow of reals and steps goes through the same rooms.

Where two rooms compute the same number, they are compared.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest
import torch
from pyarrow import parquet
from tests.export.raw_rows import Service, raw
from tests.helpers.every_kind import CIRCLES, COLUMNS, TURN, every_kind, every_number, fit_every_kind, fit_every_number

import cubicflow as cf
from cubicflow.cli import main
from cubicflow.clusters import evaluate_files, sample_files, score_files
from cubicflow.explore.opened_run import open_run
from cubicflow.export import export_model
from cubicflow.export.exporting import about_graph
from cubicflow.export.graphs import graph_of
from cubicflow.tables import FittedTable, TableError
from cubicflow.tables.model.columns import ModelOfColumns
from cubicflow.tables.schema.plain_rows import Numbers, plain_numbers, with_gaps

DRAWN = 20_000
# A condition on every column, and how a row of a frame meets it.
CONDITIONS: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
    "species=oak": lambda rows: rows["species"] == "oak",
    "finder!=Ada": lambda rows: rows["finder"].notna() & (rows["finder"] != "Ada"),
    "finder is missing": lambda rows: rows["finder"].isna(),
    "town in Ulm,Bonn": lambda rows: rows["town"].isin(["Ulm", "Bonn"]),
    "county=west": lambda rows: rows["county"] == "west",
    "dose>1": lambda rows: rows["dose"] > 1,
    "tall=true": lambda rows: rows["tall"].astype(bool),
    "rings in 40..50": lambda rows: rows["rings"].between(40, 50),
    "branches<=2": lambda rows: rows["branches"] <= 2,
    "girth>4.5": lambda rows: rows["girth"] > 4.5,
    "girth is missing": lambda rows: rows["girth"].isna(),
    "born<2020-06-01": lambda rows: pd.to_datetime(rows["born"]) < pd.Timestamp("2020-06-01"),
    "hour in 22..1": lambda rows: rows["hour"].isin([22, 23, 0, 1]),
    "hour<24": lambda rows: rows["hour"] < 24,
    "wind in 350..10": lambda rows: (rows["wind"] >= 350) | (rows["wind"] <= 10),
    "angle in 3..-3": lambda rows: (rows["angle"] >= 3) | (rows["angle"] <= -3),
    "angle<=0": lambda rows: rows["angle"] <= 0,
    "rain=0": lambda rows: rows["rain"] == 0,
    "rain>3": lambda rows: rows["rain"] > 3,
    "height>12": lambda rows: rows["height"] > 12,
    "height_again<5": lambda rows: rows["height_again"] < 5,
    "planet=earth": lambda rows: rows["planet"] == "earth",
}


class Fitted(NamedTuple):
    folder: Path
    run: FittedTable
    rows: pa.Table

    @property
    def path(self) -> str:
        return str(self.folder / "run")

    @property
    def table(self) -> str:
        return str(self.folder / "table.csv")


def _fitted(folder: Path, run: FittedTable) -> Fitted:
    return Fitted(folder, run, read(folder / "table.csv"))


def read(path: Path) -> pa.Table:
    return pyarrow.csv.read_csv(path, convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True))


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    folder = tmp_path_factory.mktemp("kinds")
    return _fitted(folder, fit_every_kind(folder))


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    folder = tmp_path_factory.mktemp("numbers")
    return _fitted(folder, fit_every_number(folder))


@pytest.fixture(params=["kinds", "numbers"])
def fitted(request: pytest.FixtureRequest) -> Fitted:
    found: Fitted = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def drawn(kinds: Fitted) -> pd.DataFrame:
    return kinds.run.sample(DRAWN, seed=0).to_pandas()


def command(*arguments: object) -> None:
    """Run the command line in this process, and check that it succeeds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["cubicflow", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
    assert stopped.value.code in (0, None), arguments


# --- fit ---


def test_the_table_has_every_kind(kinds: Fitted) -> None:
    columns = {column.name: column.kind for column in kinds.run.schema.columns}
    assert columns == COLUMNS
    cells = kinds.run.model.laws().encoder
    assert [(rule.determinant, rule.dependent) for rule in cells.rules] == [("town", "county")]
    assert [each.text for each in kinds.run.constraints] == ["height = height_again"]
    assert {name for name, each in cells.cells.items() if each.gaps} == {"finder", "girth"}
    assert 0.0 in cells.cells["rain"].atoms


# --- score ---


def test_the_commands_score_as_python_does(fitted: Fitted, tmp_path: Path) -> None:
    expected = fitted.run.score(fitted.rows)
    assert np.isfinite(expected).all()
    command("score", fitted.path, fitted.table, "-o", tmp_path / "scores.csv")
    found = pyarrow.csv.read_csv(tmp_path / "scores.csv")["log_likelihood"].to_numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    parquet.write_table(fitted.rows, tmp_path / "rows.parquet")
    score_files(fitted.path, str(tmp_path / "rows.parquet"), str(tmp_path / "blocks"), block_rows=97)
    blocks = parquet.read_table(tmp_path / "blocks")["log_likelihood"].to_numpy()
    # A flow computes in float32, and products of another number of rows round differently.
    np.testing.assert_allclose(blocks, expected, rtol=1e-9 if fitted.run.model.has_laws else 1e-6)
    scored = evaluate_files(fitted.path, str(tmp_path / "rows.parquet"), block_rows=97).scored
    assert scored.whole.model.mean == pytest.approx(expected.mean(), rel=1e-6)


# --- samples ---


def check_rows(rows: pd.DataFrame) -> None:
    """Check what every row of the table keeps."""
    table = every_kind()
    for name in ("species", "finder", "town", "dose", "planet"):
        assert set(rows[name].dropna()) <= set(table[name].dropna()), name
    assert (rows["county"] == rows["town"].map(dict(zip(table["town"], table["county"], strict=True)))).all()
    assert (rows["height"] == rows["height_again"]).all()
    assert ((rows["angle"] >= -np.pi) & (rows["angle"] < np.pi)).all()
    assert rows["hour"].isin(range(24)).all()
    wind = rows["wind"].to_numpy()
    assert ((wind >= 0) & (wind < 360) & (np.round(wind, 1) == wind)).all()
    assert (rows["rain"] >= 0).all()


def test_samples_have_the_kinds_of_the_table(kinds: Fitted, drawn: pd.DataFrame, tmp_path: Path) -> None:
    check_rows(drawn)
    assert drawn["finder"].isna().any()
    assert drawn["girth"].isna().any()
    assert not kinds.run.sample(200, seed=0, complete=True).to_pandas().isna().any().any()
    command("sample", kinds.path, "-n", 300, "-o", tmp_path / "rows.csv", "--seed", 1)
    written = read(tmp_path / "rows.csv")
    assert written.schema.types == kinds.rows.schema.types
    check_rows(written.to_pandas())
    sample_files(kinds.path, 300, str(tmp_path / "blocks"), seed=1, block_rows=70)
    blocks = parquet.read_table(tmp_path / "blocks")
    assert len(blocks) == 300
    check_rows(blocks.to_pandas())


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "planet"])
def test_samples_of_a_column_follow_its_distribution(name: str, kinds: Fitted, drawn: pd.DataFrame) -> None:
    """Shares of drawn values, or of numbers below deciles of the table, against the answer of ``conditional``."""
    answer = kinds.run.conditional(name, effective_size=5000)
    column = drawn[name]
    if COLUMNS[name] in ("categorical", "boolean", "levels"):
        values, masses, errors = answer.masses()
        expected = masses
        share = np.array([column.isna().mean() if v is None else (column == v).mean() for v in values])
    else:
        ordered = sorted(kinds.rows[name].drop_null().to_pylist())
        values = [ordered[i * len(ordered) // 10] for i in range(1, 10)]
        expected, errors = answer.cdf(values)
        share = np.array([(column <= value).mean() for value in values])
    bound = 4.5 * np.sqrt(errors**2 + expected * (1 - expected) / DRAWN) + 1e-9
    assert (np.abs(share - expected) <= bound).all(), (share, expected)


def test_samples_of_a_flow(numbers: Fitted, tmp_path: Path) -> None:
    given = ("--given", "species=oak")
    command("sample", numbers.path, "-n", 300, "-o", tmp_path / "rows.csv", "--seed", 1, *given)
    sample_files(numbers.path, 300, str(tmp_path / "blocks"), given={"species": "oak"}, seed=1, block_rows=70)
    written = read(tmp_path / "rows.csv")
    assert written.schema.types == numbers.rows.select(written.column_names).schema.types
    for rows in (written.to_pandas(), parquet.read_table(tmp_path / "blocks").to_pandas()):
        assert len(rows) == 300
        assert (rows["species"] == "oak").all()
        assert (np.round(rows["girth"], 2) == rows["girth"]).all()


# --- conditions ---


@pytest.mark.parametrize("condition", CONDITIONS)
def test_rows_under_a_condition_meet_it(condition: str, kinds: Fitted, drawn: pd.DataFrame) -> None:
    meets = CONDITIONS[condition]
    found = kinds.run.probability([condition])
    share = meets(drawn).mean()
    error = float(np.hypot(found.errors, np.sqrt(share * (1 - share) / DRAWN)))
    assert abs(float(found.values) - share) <= 4.5 * error + 1e-6
    rows = kinds.run.sample(200, [condition], seed=0).to_pandas()
    assert len(rows) == 200
    assert meets(rows).all()
    check_rows(rows)


def double(run: FittedTable) -> FittedTable:
    """Return the run with float64 weights."""
    return replace(run, model=run.model.with_network(deepcopy(run.flow).double()))


def values_of(rows: pa.Table, row: int) -> dict[str, object]:
    return {name: rows[name][row].as_py() for name in COLUMNS}


def test_the_distribution_given_all_earlier_columns_is_the_score(kinds: Fitted) -> None:
    """The score of a column, ``conditional`` given the earlier columns, and the graph to export are one number."""
    run, cells = double(kinds.run), kinds.run.model.laws().encoder
    frame = kinds.rows.to_pandas()
    rows = [int(np.flatnonzero(mask)[0]) for mask in (frame["girth"].isna(), frame["rain"] == 0, frame["rain"] > 0)]
    numbers = run.encoder.read(kinds.rows.take(rows).combine_chunks().to_batches()[0])
    scores = ModelOfColumns(cells, run.flow).score(numbers).terms
    graph = graph_of(run.flow, sampler=False, precision="float64").module
    with torch.no_grad():
        exported = graph(torch.from_numpy(cells.inputs(numbers.y)))[1].numpy()
    np.testing.assert_allclose(cells.log_ruled(exported, numbers.y), scores, rtol=1e-12, atol=1e-12)
    for row, score, log_p in zip(rows, scores, exported, strict=True):
        given: dict[str, object] = {}
        for name, expected, unruled in zip(cells.order, score, log_p, strict=True):
            value = values_of(kinds.rows, row)[name]
            found = run.conditional(name, given)
            given[name] = value
            assert found.is_exact
            if name == "height_again":  # computed: it is the height
                assert found.masses([value]).masses == 1
                continue
            has_density = name in ("angle", "height") or (name == "rain" and value > 0)
            p = (found.density([value])[0] if has_density else found.masses([value]).masses)[0]
            log_known = np.log1p(-cells.cells[name].unseen)  # answers leave out values that no row had
            if name == "county":  # determined by the town: a score leaves the slack of the rule
                slack = cells.rules[0].slack
                assert p == 1
                assert expected == pytest.approx(np.log(1 - slack + slack * np.exp(unruled)), rel=1e-12)
            else:
                assert p == pytest.approx(np.exp(expected - log_known), rel=1e-12), name


def all_values(kinds: Fitted, name: str) -> np.ndarray:
    """Return the plain numbers of all values of a column of words or of steps, and NaN if it can be missing."""
    column, own = kinds.run.schema[name], kinds.run.model.laws().encoder.cells[name]
    if COLUMNS[name] in ("categorical", "boolean", "levels"):
        y = np.arange(float(len(column.labels)))
    elif column.is_circle:
        y = np.arange(column.turn[1])
    else:
        y = np.arange(max(own.scale.limits[0], own.scale.edges[0] - 300), own.scale.edges[-1] + 300)
    return np.append(y, [np.nan] * own.gaps)


def row_with_a_gap(kinds: Fitted) -> int:
    return int(np.flatnonzero(kinds.rows.to_pandas()["finder"].isna())[0])


def scores_of(kinds: Fitted, row: int, changed: dict[str, np.ndarray]) -> np.ndarray:
    """Return exp(score) of a row with these plain numbers (V,) in some columns.

    The columns that others determine have weight 1 if the row keeps their value, else 0.
    """
    run, cells = double(kinds.run), kinds.run.model.laws().encoder
    numbers = run.encoder.read(kinds.rows.take([row]).combine_chunks().to_batches()[0])
    names = [column.name for column in run.schema.model]
    rows = np.repeat(numbers.y, len(next(iter(changed.values()))), axis=0)
    for name, y in changed.items():
        rows[:, names.index(name)] = y
    terms = ModelOfColumns(cells, run.flow).score(Numbers(rows, None, None)).terms
    determined = [cells.order.index(each) for each in ("county", "height_again")]
    (rule,) = cells.rules
    county = rule.apply(rows[:, names.index("town")], np.full(len(rows), np.inf))
    p = np.exp(np.delete(terms, determined, axis=1).sum(1))
    found: np.ndarray = np.where(county == rows[:, names.index("county")], p, 0)
    return found


# Given all others, a real number is answered by weighted rows.
LISTED = [name for name in COLUMNS if name not in ("angle", "rain", "height", "height_again", "planet")]


@pytest.mark.parametrize("name", LISTED)
def test_a_column_given_all_others_is_exact(name: str, kinds: Fitted) -> None:
    """The reference is the score of every value; another column of the row has a gap."""
    run, row, y = double(kinds.run), row_with_a_gap(kinds), all_values(kinds, name)
    given = {other: value for other, value in values_of(kinds.rows, row).items() if other != name}
    p = scores_of(kinds, row, {name: y})
    answer = run.conditional(name, given)
    assert answer.is_exact
    found = answer.masses(with_gaps(run.schema[name], y).to_pylist()).masses
    np.testing.assert_allclose(found / found.sum(), p / p.sum(), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "other"), [("dose", "species"), ("finder", "hour"), ("branches", "town"), ("tall", "rings")]
)
def test_two_free_columns_are_exact_whatever_the_others_hold(name: str, other: str, kinds: Fitted) -> None:
    run, row = double(kinds.run), row_with_a_gap(kinds)
    y, beside = all_values(kinds, name), all_values(kinds, other)
    given = {each: value for each, value in values_of(kinds.rows, row).items() if each not in (name, other)}
    p = scores_of(kinds, row, {name: np.repeat(y, len(beside)), other: np.tile(beside, len(y))})
    p = p.reshape(len(y), len(beside)).sum(axis=1)
    answer = run.conditional(name, given)
    assert answer.is_exact
    found = answer.masses(with_gaps(run.schema[name], y).to_pylist()).masses
    np.testing.assert_allclose(found / found.sum(), p / p.sum(), rtol=0, atol=1e-10)


# --- imputation ---


@pytest.mark.parametrize("most_likely", [False, True])
def test_a_missing_value_of_any_column_is_filled(most_likely: bool, kinds: Fitted) -> None:
    rows = kinds.rows.to_pandas().dropna().iloc[:64].reset_index(drop=True)
    holes = rows.astype(object)
    names = [name for name in COLUMNS if name != "planet"]
    for i, name in enumerate(names):  # each column is missing in every 15th row
        holes.loc[i :: len(names), name] = None
    table = pa.Table.from_pydict(
        {name: pa.array(holes[name], kinds.rows.schema.field(name).type, from_pandas=True) for name in holes}
    )
    (filled,) = kinds.run.impute(table, most_likely=most_likely, seed=0)
    found = filled.to_pandas()
    assert not found.isna().any().any()
    check_rows(found)
    for i, name in enumerate(names):
        kept = np.arange(len(rows)) % len(names) != i
        assert (found.loc[kept, name] == rows.loc[kept, name]).all(), name
    assert found["filled"].str.len().gt(0).all()


def test_a_flow_names_the_remedy_for_what_it_cannot_do(numbers: Fitted) -> None:
    for ask in (
        lambda: numbers.run.impute(numbers.rows),
        lambda: numbers.run.conditional("height"),
        lambda: numbers.run.probability(["height>3"]),
        lambda: numbers.run.sample(5, ["height>3"]),
    ):
        with pytest.raises(TableError, match="fit a model of columns"):
            ask()


def test_impute_by_the_command(kinds: Fitted, tmp_path: Path) -> None:
    command("impute", kinds.path, kinds.table, "-o", tmp_path / "whole.csv", "--seed", 0)
    found = pd.read_csv(tmp_path / "whole.csv")
    assert not found.drop(columns="filled").isna().any().any()


# --- judge, plot ---


def test_judge(fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    command("judge", fitted.path, fitted.table)
    said = capsys.readouterr().out
    assert "AUC" in said
    assert Path(fitted.path, "judge.json").is_file()


def test_plot(fitted: Fitted) -> None:
    command("plot", fitted.path)
    report = Path(fitted.path, "plots", "report.html").read_text(encoding="utf-8")
    for column in fitted.run.schema.columns:
        assert column.name in report


# --- the page ---


def test_the_page_shows_what_python_answers(kinds: Fitted) -> None:
    """The bars of every column agree with masses of the same sets, without and with conditions."""
    subject = open_run(Path(kinds.path)).subject
    for given in ({}, {"hour": ("22", "1"), "rain": ("3", None)}):
        page = subject.answer(given)
        for shown, answer in zip(subject.axes, page.columns, strict=True):
            assert answer.masses.sum() <= 1 + 1e-6
            asked = kinds.run.conditional(shown.name, given, effective_size=2000)
            column = next(each for each in kinds.run.schema.model if each.name == shown.name)
            if shown.is_list:
                labels = list(shown.bars)[: len(shown.levels)]
                expected, errors = asked.masses(labels)[1:]
                masses, sums = answer.masses[: len(labels)], answer.errors[: len(labels)]
            else:
                edges = np.array(shown.edges)
                inner = edges[1:-1] - (1 if column.counts_mass else 0)
                texts = [str(v) for v in column.decode(np.array(inner)).to_pylist()]
                if not column.counts_mass:
                    texts = [repr(float(v)) for v in inner]
                expected, errors = asked.cdf(texts)
                expected, errors = expected - expected[0], np.hypot(errors, errors[0])
                masses = np.cumsum(answer.masses[1 : shown.bins - 1])
                masses, sums = np.concatenate([[0.0], masses]), np.sqrt(np.cumsum(np.r_[0, answer.errors[1:-2] ** 2]))
            bound = 5 * np.hypot(errors, sums) + 5e-3
            assert (np.abs(masses - expected) <= bound).all(), (shown.name, given, masses - expected)


def test_the_page_of_a_flow_shows_its_samples(numbers: Fitted) -> None:
    """The bars of every column agree with the rows that are sampled for the same context."""
    subject, given = open_run(Path(numbers.path)).subject, {"species": "oak"}
    page = subject.answer(given)
    drawn = numbers.run.sample(4000, given, seed=3).to_pandas()
    for shown, answer in zip(subject.axes, page.columns, strict=True):
        plain = (drawn[shown.name].to_numpy() - shown.start) / shown.unit
        expected = shown.masses(np.round(plain) if shown.is_whole else plain)
        bound = 4.5 * np.sqrt(answer.errors**2 + expected * (1 - expected) / len(drawn)) + 2e-3
        assert (np.abs(answer.masses - expected) <= bound).all(), shown.name


def test_the_axis_of_a_circle_ends_at_its_turn(kinds: Fitted) -> None:
    for shown in open_run(Path(kinds.path)).subject.axes:
        if shown.name in CIRCLES:
            first, last = shown.start + shown.unit * shown.edges[0], shown.start + shown.unit * shown.edges[-1]
            low, high = {"angle": (-np.pi, np.pi), "wind": (0, 360), "hour": (0, 24)}[shown.name]
            assert low - 1e-9 <= first < last <= high + 1e-9, shown.name


# --- export ---


def service(fitted: Fitted, folder: Path, *, sampler: bool = False) -> Service:
    """Return a program that has the graph of the model, as it is before it is traced, and the JSON of its columns."""
    graph = graph_of(fitted.run.flow, sampler=sampler, precision="float64")
    about = {**about_graph(graph, sampler=sampler), **fitted.run.encoding()}
    (folder / "model.json").write_text(json.dumps(about), encoding="utf-8")

    def run(inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        with torch.no_grad():
            found = graph.module(*(torch.from_numpy(array) for array in inputs.values()))
            return [each.numpy() for each in (found if isinstance(found, tuple) else (found,))]

    return Service(folder / "model.json", run)


def test_the_exported_graph_scores_as_the_model_does(fitted: Fitted, tmp_path: Path) -> None:
    found = service(fitted, tmp_path).score(
        raw(fitted.rows.drop_columns(["planet"] if fitted.run.model.has_laws else []))
    )
    expected, tolerance = (
        fitted.run.score(fitted.rows),
        1e-12 if fitted.run.model.has_laws else 1e-5,
    )  # a flow is in float32
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.soak  # tracing a model of 16 columns takes 20 seconds; small graphs are traced in tests/export
def test_the_traced_graph_scores_as_the_model_does(kinds: Fitted, tmp_path: Path) -> None:
    path, encoding = export_model(kinds.path, tmp_path / "model.pt2", precision="float64")
    program = torch.export.load(path).module()
    traced = Service(
        encoding, lambda inputs: [each.numpy() for each in program(*map(torch.from_numpy, inputs.values()))]
    )
    found = traced.score(raw(kinds.rows.drop_columns(["planet"])))
    np.testing.assert_allclose(found, kinds.run.score(kinds.rows), rtol=1e-9, atol=1e-9)


def test_the_exported_sampler_draws_what_the_model_draws(kinds: Fitted, tmp_path: Path) -> None:
    """Shares of drawn values of the circles agree with the masses that ``conditional`` computes."""
    drawn = 4000
    rng, columns = np.random.default_rng(0), len(kinds.run.model.laws().encoder.order)
    found = service(kinds, tmp_path, sampler=True).drawn(rng.random((drawn, 2 * columns)), rng.random((drawn, columns)))
    for name, sets in {"hour": (6, 12, 18), "wind": (90.0, 180.0, 270.0), "angle": (-2.0, 0.0, 2.0)}.items():
        column = next(each for each in kinds.run.schema.model if each.name == name)
        expected, errors = kinds.run.conditional(name).cdf(sets)
        ends = plain_numbers(column, pa.array([str(v) for v in sets]))
        share = np.array([(found[name] <= end).mean() for end in ends])
        bound = 4.5 * np.sqrt(errors**2 + expected * (1 - expected) / drawn)
        assert (np.abs(share - expected) <= bound).all(), (name, share, expected)


# --- estimators ---


def test_the_estimators_take_every_kind() -> None:
    frame = every_kind(200)
    frame["born"] = pd.to_datetime(frame["born"])
    density = cf.CubicFlowDensity(max_steps=20, kinds=CIRCLES, random_state=0).fit(frame)
    assert density.model_ == "columns"
    assert np.isfinite(density.score_samples(frame)).all()
    turned = frame.assign(angle=frame["angle"] + TURN, hour=frame["hour"] - 24)
    np.testing.assert_allclose(density.score_samples(turned), density.score_samples(frame), atol=1e-8)
    check_rows_of_estimator(density.sample(50, random_state=0), frame)
    numbers = every_number(200).drop(columns="species")
    flow = cf.CubicFlowDensity(model="flow", max_steps=5, num_layers=1, n_members=2, random_state=0).fit(numbers)
    assert np.isfinite(flow.score_samples(numbers)).all()
    sampled = flow.sample(50, random_state=0)
    assert (sampled["rings"] == sampled["rings"].round()).all()
    filled: Any = cf.CubicFlowImputer(max_steps=20, kinds=CIRCLES, random_state=0).fit_transform(frame)
    assert not filled.isna().any().any()
    assert (filled["angle"] == frame["angle"]).all()


def check_rows_of_estimator(rows: pd.DataFrame, frame: pd.DataFrame) -> None:
    assert list(rows.columns) == list(frame.columns)
    assert ((rows["angle"] >= -np.pi) & (rows["angle"] < np.pi)).all()
    assert rows["hour"].isin(range(24)).all()
    assert set(rows["species"]) <= set(frame["species"])
