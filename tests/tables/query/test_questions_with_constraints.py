"""Constraints are part of every question: all answers equal an enumeration of the rows by their scores.

The enumeration scores every combination of training values. A sum has weight 1: the computed column contributes no
probability. Rows that break a constraint are left out. The scores give a small probability to values outside the
training rows; no answer may be further from the enumeration than that probability, besides its own standard error.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from cubicflow.explore.subject import Subject
from cubicflow.tables import FittedTable, TableError, fit_table
from cubicflow.tables.query import all_columns, strategies

TRAINING = {"steps": 20, "device": "cpu", "progress": False, "validate_every": 10, "seed": 0}
SMALL = {"hidden_features": 16, "num_blocks": 1}
ERRORS = 4  # standard errors by which an estimate may differ


class Case(NamedTuple):
    """A fitted run, and its rows that keep the constraints, with their probabilities in the column ``p``."""

    fitted: FittedTable
    rows: pd.DataFrame
    missing: float  # the probability of rows with values that no training row had


def tables() -> dict[str, tuple[pd.DataFrame, str]]:
    rng = np.random.default_rng(0)
    a, b, noise = rng.integers(0, 3, 4000), rng.integers(0, 3, 4000), rng.random(4000)
    low, high = np.minimum(a, b), np.maximum(a, b)
    plus = pd.DataFrame({"a": a, "b": b, "s": a + b, "j": (noise < 0.2 + 0.15 * (a + b)).astype(int)})
    minus = pd.DataFrame({"a": high, "b": low, "s": high - low, "j": (noise < 0.2 + 0.3 * low).astype(int)})
    order = pd.DataFrame({"a": low, "b": high, "j": (noise < 0.2 + 0.3 * low).astype(int)})
    return {"plus": (plus, "a + b = s"), "minus": (minus, "a - b = s"), "order": (order, "a <= b")}


def enumerated(fitted: FittedTable, frame: pd.DataFrame, text: str) -> tuple[pd.DataFrame, float]:
    """Return the rows that keep the constraint with their probabilities, and the probability of unknown values."""
    every = pd.DataFrame(list(product(*(sorted(set(frame[name])) for name in frame))), columns=list(frame))
    every["p"] = np.exp(fitted.score(pa.Table.from_pandas(every, preserve_index=False)))
    missing = 1 - every["p"].sum()
    if text == "a <= b":
        return every[every["a"] <= every["b"]], missing
    first = every.groupby(["a", "b"])["p"].transform("sum")
    every["p"] *= first / every.groupby(["a", "b", "s"])["p"].transform("sum")  # s has weight 1
    return every[every["s"] == every.eval(text.split("=")[0])], missing


@pytest.fixture(scope="module", params=["plus", "minus", "order"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    frame, text = tables()[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    frame.to_csv(folder / "t.csv", index=False)
    fitted = fit_table(folder / "t.csv", folder / "run", constraints=[text], settings=SMALL, **TRAINING).fitted
    assert fitted.model.order == list(frame)
    assert not fitted.model.laws().encoder.rules
    found = Case(fitted, *enumerated(fitted, frame, text))
    assert found.missing < 0.002  # far below the differences that a wrong method makes
    return found


QUESTIONS: tuple[dict[str, int], ...] = ({}, {"j": 0}, {"a": 2, "j": 1}, {"s": 1})


def met(rows: pd.DataFrame, given: Mapping[str, int]) -> pd.DataFrame:
    """Return the rows with the given values."""
    for name, value in given.items():
        rows = rows[rows[name] == value]
    return rows


def expected(case: Case, given: Mapping[str, int], column: str) -> tuple[pd.Series, float, float]:
    """Return the probabilities of a column's values given values, the probability of those, and the largest error by
    unknown values."""
    p = met(case.rows, given).groupby(column)["p"].sum()
    return p / p.sum(), p.sum() / case.rows["p"].sum(), 2 * case.missing / p.sum()


def questions(case: Case) -> list[dict[str, int]]:
    return [given for given in QUESTIONS if given.keys() <= set(case.rows)]


@pytest.fixture(params=["paths", "particles"])
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "particles":
        monkeypatch.setattr(strategies, "MOST_PATHS", 0)
        monkeypatch.setattr(all_columns, "MOST_PATHS", 0)
    return str(request.param)


def test_answers_equal_an_enumeration_by_scores(case: Case, method: str) -> None:
    for given in questions(case):
        _, probability, unknown = expected(case, given, "a")
        alone = case.fitted.probability(given, effective_size=2000)
        found = [tuple(map(float, alone))]
        for column in case.rows.columns.drop("p"):
            answer = case.fitted.conditional(column, given, effective_size=2000)
            assert answer.is_exact == (method == "paths")
            found.append((answer.probability, answer.probability_error))
            masses = expected(case, given, column)[0]
            listed = answer.masses(masses.index.tolist())
            assert np.abs(listed.masses - masses).max() <= unknown + ERRORS * listed.errors.max()
            assert len(set(answer.masses().values)) == len(answer.masses().values)
        for value, error in found:
            assert abs(value - probability) <= unknown + ERRORS * error
            assert error <= (unknown if method == "paths" else 0.02)


def test_samples_follow_the_answers(case: Case, method: str) -> None:
    for given in ({"j": 0}, {"b": 1}):
        said: list[str] = []
        drawn = pd.concat(each.to_pandas() for each in case.fitted.sample_batches(4000, given, seed=0, say=said.append))
        assert ("all" in said[0]) == (method == "paths")
        unknown = expected(case, given, "a")[2]
        pairs = met(case.rows, given)
        for names in (["a"], ["a", "b"], ["b", "j"]):
            share = pairs.groupby(names)["p"].sum() / pairs["p"].sum()
            counted = drawn.groupby(names).size().reindex(share.index, fill_value=0) / len(drawn)
            error = np.sqrt(share * (1 - share) / len(drawn))
            assert (np.abs(counted - share) <= unknown + ERRORS * error).all()


def test_the_page_agrees(case: Case, method: str) -> None:
    subject = Subject(case.fitted)
    subject.drawn().grow_to(1 << 13)
    for given in questions(case):
        found = subject.answer({name: str(value) for name, value in given.items()})
        assert (found.effective_size == np.inf) == (method == "paths")
        for column, answer in zip(subject.axes, found.columns, strict=True):
            masses, probability, unknown = expected(case, given, column.name)
            bins = column.bin_of(masses.index.to_numpy(np.float64))
            gap = np.abs(answer.masses[bins] - masses.to_numpy())
            assert (gap <= unknown + ERRORS * answer.errors[bins]).all()
            assert abs(found.probability - probability) <= unknown + ERRORS * found.probability_error


def test_a_computed_column_has_one_value(case: Case, method: str) -> None:
    if "s" not in case.rows:
        return
    value = int(met(case.rows, {"a": 2, "b": 1})["s"].iloc[0])
    found = case.fitted.conditional("s", {"a": 2, "b": 1}).masses()
    assert found.values == [value]
    assert abs(found.masses[0] - 1) < 1e-12  # a sum of rounded weights
    another = {"a": 2, "b": 1, "s": 2 if value < 2 else 0}
    assert float(case.fitted.probability(another).values) == 0.0
    with pytest.raises(TableError, match="their probability is 0"):
        case.fitted.conditional("j", another)


@pytest.mark.parametrize("gaps", [["a"], ["b"], ["a", "b"], ["b", "j"], ["a", "s"], ["a", "b", "s"]], ids="-".join)
def test_imputed_values_follow_the_enumeration(case: Case, gaps: list[str]) -> None:
    """A value that a sum gives is computed, whichever of its columns is missing; other draws keep all constraints."""
    if not set(gaps) <= set(case.rows):
        pytest.skip("this table has no column s")
    columns = [name for name in case.rows if name != "p"]
    given = {name: int(case.rows.iloc[len(case.rows) // 2][name]) for name in columns if name not in gaps}
    rows = pa.table({name: pa.array([given.get(name)] * 1500, pa.int64()) for name in columns})
    drawn = case.fitted.impute(rows, seed=0)[0].to_pandas()
    ways = met(case.rows, given)
    share = ways.groupby(gaps)["p"].sum() / ways["p"].sum()
    counted = drawn.groupby(gaps).size().reindex(share.index, fill_value=0) / len(drawn)
    error = np.sqrt(share * (1 - share) / len(drawn))
    # Draws from 64 weighted particles per row have a bias of about one over their number.
    assert (np.abs(counted - share) <= 2 * case.missing / ways["p"].sum() + ERRORS * error + 1 / 64).all()
    assert counted.sum() == pytest.approx(1, abs=1e-9)
    best = case.fitted.impute(rows.slice(0, 3), seed=0, most_likely=True)[0].to_pandas()
    assert len(met(case.rows, best[columns].iloc[0].to_dict())) == 1 or case.fitted.constraints[0].text == "a <= b"
