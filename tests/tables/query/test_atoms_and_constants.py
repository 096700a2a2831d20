"""The density of a column with atoms, and conditions on constant columns of every type."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pytest

from cubicflow.tables import FittedTable, TableError, fit_table

TRAINING = {"steps": 20, "device": "cpu", "progress": False, "validate_every": 10, "seed": 0}
SMALL = {"hidden_features": 16, "num_blocks": 1}
CONSTANTS = {"day": "2020-03-01", "moment": "2020-03-01 12:30:00", "count": 7, "size": 2.5, "word": "earth"}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> FittedTable:
    folder, rng = tmp_path_factory.mktemp("atoms"), np.random.default_rng(0)
    kind = rng.choice(["x", "y"], 600)
    rain = np.where(rng.random(600) < 0.3, 0.0, rng.exponential(2.0, 600))
    warm = np.where(rng.random(600) < 0.2, 10.0, rng.normal(10.0, 3.0, 600) + (kind == "x"))
    table = pd.DataFrame({"kind": kind, "rain": rain, "warm": warm, "late": rng.choice(["u", "v"], 600), **CONSTANTS})
    table.to_csv(folder / "t.csv", index=False)
    return fit_table(folder / "t.csv", folder / "run", settings=SMALL, **TRAINING).fitted


@pytest.mark.parametrize(("column", "atom"), [("rain", 0.0), ("warm", 10.0)])
def test_the_density_at_an_atom_is_that_of_the_numbers_beside_it(fitted: FittedTable, column: str, atom: float) -> None:
    assert fitted.model.cells[column].atoms == (atom,)  # type: ignore[attr-defined] # a column of numbers
    after = fitted.conditional(column, ["kind=x"])  # a mixture of exact distributions
    at, beside = after.density([atom, atom + 1e-9]).values
    assert at == pytest.approx(beside, rel=1e-6)
    mass = after.masses([atom]).masses[0]
    assert mass > 0.1
    grid = np.linspace(atom, atom + 0.5, 201)
    area = np.trapezoid(after.density(grid.tolist()).values, grid)  # the atom's mass is no part of the density
    assert area == pytest.approx(float(np.diff(after.cdf([atom, atom + 0.5]).values)[0]), rel=2e-3)
    for given in (["kind=x", "late in u,v"], ["kind=x", f"{column}>=-100"]):  # ratios of two probabilities
        before = fitted.conditional(column, given).density([atom, atom + 1e-9])
        assert (np.abs(before.values - at) <= 1e-6 + 4 * before.errors).all()
    alone = fitted.conditional(column, {column: atom})  # no number beside the atom meets the condition
    assert alone.density([atom]).values.tolist() == [0.0]


def test_the_density_at_an_atom_looks_to_the_side_that_meets_the_conditions(fitted: FittedTable) -> None:
    for text in ("warm<=10", "warm>=10"):
        answer = fitted.conditional("warm", [text])
        near = 10 - 1e-9 if "<" in text else 10 + 1e-9
        at, beside = answer.density([10.0, near]).values
        assert at == pytest.approx(beside, rel=0.02)
        assert at > 0


TRUE = (
    "day=2020-03-01",
    "day>2020-02-29",
    "day>=2020-03-01",
    "day<2020-03-02",
    "day in 2020-01-01..2020-12-31",
    "day in 2020-03-01..",
    "day!=2020-03-02",
    "day is not missing",
    "moment>2020-03-01 12:00:00",
    "moment<2021-01-01",
    "moment in 2020-03-01 12:00:00..2020-03-01 13:00:00",
    "moment in 2020-03-01 .. 2020-03-01 12:30",
    "count>6",
    "count in 7..7",
    "count=7",
    "size<2.75",
    "size>=2.5",
    "size not in 3,4",
    "word=earth",
    "word!=mars",
)
FALSE = (
    "day>2020-03-01",
    "day<=2020-02-29",
    "day=2020-03-02",
    "day in ..2020-02-01",
    "day is missing",
    "moment<2020-03-01 12:30:00",
    "moment in 2020-03-01 12:31:00..",
    "count>7",
    "count in 8..9",
    "count!=7",
    "size<2.5",
    "word=mars",
    "word in venus,mars",
)


@pytest.mark.parametrize("text", TRUE)
def test_a_condition_that_a_constant_column_meets_has_probability_1(fitted: FittedTable, text: str) -> None:
    assert tuple(map(float, fitted.probability([text]))) == (1.0, 0.0)
    assert fitted.sample(3, [text], seed=0).num_rows == 3


def test_python_values_of_constant_columns(fitted: FittedTable) -> None:
    day, noon = dt.date(2020, 3, 1), dt.datetime(2020, 3, 1, 12)
    for true in ({"day": day}, {"day": dt.datetime(2020, 3, 1)}, {"moment": (noon, None)}, {"day": (None, day)}):
        assert float(fitted.probability(true).values) == 1.0
    for false in ({"moment": noon}, {"moment": (None, noon)}, {"day": (dt.date(2020, 3, 2), None)}, {"count": 8}):
        with pytest.raises(TableError, match="is always"):
            fitted.probability(false)


@pytest.mark.parametrize("text", FALSE)
def test_a_condition_that_a_constant_column_breaks_is_refused_with_its_value(fitted: FittedTable, text: str) -> None:
    name = text.replace("<", " ").replace(">", " ").replace("=", " ").replace("!", " ").split()[0]
    value = str(CONSTANTS[name])
    with pytest.raises(TableError, match=rf"column '{name}' is always .?{value}.*; leave the condition out"):
        fitted.probability([text])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("day>5", "column 'day' holds dates, and '5' is not a date; give a date, written as 2020-03-01"),
        ("day>1.3.2020", "and '1.3.2020' is not a date; give a date, written as 2020-03-01"),
        ("day in 2020-01-01..soon", "column 'day' holds dates, and 'soon' is not a date"),
        ("count<many", "column 'count' holds numbers, and 'many' is not a number; give a number, written as 7"),
        ("size>nan", "'nan' is not a number"),
        ("word>a", "column 'word' holds words, which have no order; compare with =, != or in"),
    ],
)
def test_comparisons_without_a_meaning_are_refused(fitted: FittedTable, text: str, said: str) -> None:
    with pytest.raises(TableError, match=said):
        fitted.probability([text])
