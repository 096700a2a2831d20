"""Conditions on any columns, compared with the enumerated joint and with rejection sampling; and bad conditions."""

from __future__ import annotations

import math
import re
from itertools import product

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from cubicflow.tables import FittedTable, TableError
from cubicflow.tables.query import strategies
from cubicflow.tables.query.conditions import read_condition
from cubicflow.tables.query.strategies import upper_bound


@pytest.fixture(scope="module")
def joint(of_words: FittedTable) -> pd.DataFrame:
    """Return every row of words with its probability, from the scores of whole rows. Samples hold no unseen words, so
    the probabilities of all rows are normalised to 1."""
    levels = [column.levels for column in of_words.schema.columns]
    rows = pd.DataFrame(list(product(*levels)), columns=list("abcde"))
    p = np.exp(of_words.score(pa.Table.from_pandas(rows)))
    assert 0.9 < p.sum() < 1
    return rows.assign(p=p / p.sum())


def enumerated(joint: pd.DataFrame, column: str, given: dict[str, str]) -> tuple[pd.Series, float]:
    met = np.logical_and.reduce([joint[name] == word for name, word in given.items()])
    return joint[met].groupby(column)["p"].sum() / joint[met]["p"].sum(), joint[met]["p"].sum()


def random_questions(joint: pd.DataFrame, count: int) -> list[tuple[str, dict[str, str]]]:
    rng = np.random.default_rng(3)
    found = []
    for _ in range(count):
        names = rng.permutation(list("abcde"))
        found.append((names[0], {name: str(rng.choice(joint[name].unique())) for name in names[1:3]}))
    return found


def test_few_paths_are_enumerated(of_words: FittedTable, joint: pd.DataFrame) -> None:
    for column, given in random_questions(joint, 12):
        answer = of_words.conditional(column, given)
        expected, probability = enumerated(joint, column, given)
        assert answer.is_exact
        masses = answer.masses()
        found = dict(zip(masses.values, masses.masses, strict=True))
        np.testing.assert_allclose([found[word] for word in expected.index], expected, rtol=1e-4)  # networks in float32
        assert answer.probability == pytest.approx(probability, rel=1e-4)
        assert answer.probability_error == 0
        assert not masses.errors.any()


def coverage(fitted: FittedTable, joint: pd.DataFrame, count: int) -> tuple[float, float]:
    """Return the share of masses within two of their errors, and the largest total variation."""
    within, furthest = [], 0.0
    for seed, (column, given) in enumerate(random_questions(joint, count)):
        answer = fitted.conditional(column, given, effective_size=4_000, seed=seed)
        assert not answer.is_exact
        assert answer.effective_size >= 4_000
        expected, _ = enumerated(joint, column, given)
        masses = answer.masses(list(expected.index))
        within += (np.abs(masses.masses - expected) < 2 * masses.errors + 1e-6).tolist()
        furthest = max(furthest, float(np.abs(masses.masses - expected).sum() / 2))
    return float(np.mean(within)), furthest


def test_particles_agree_with_enumeration_within_their_errors(
    of_words: FittedTable, joint: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strategies, "MOST_PATHS", 0)
    share, furthest = coverage(of_words, joint, 12)
    assert 0.87 < share <= 1
    assert furthest < 0.03


@pytest.mark.soak
def test_errors_of_two_hundred_conditions_are_calibrated(
    of_words: FittedTable, joint: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strategies, "MOST_PATHS", 0)
    share, _ = coverage(of_words, joint, 200)
    assert 0.9 <= share <= 0.99


CONDITIONS = {
    "town=town 3": lambda f: f["town"] == "town 3",
    "town!=town 3": lambda f: f["town"] != "town 3",
    "town in town 1,town 2": lambda f: f["town"].isin(["town 1", "town 2"]),
    "county=county 2": lambda f: f["county"] == "county 2",
    "size>8": lambda f: f["size"] > 8,
    "size in 4.95..6": lambda f: f["size"].between(4.95, 6),
    "size is missing": lambda f: f["size"].isna(),
    "size is not missing": lambda f: f["size"].notna(),
    "size!=4.5": lambda f: f["size"].notna() & (f["size"] != 4.5),
    "legs>=2": lambda f: f["legs"] >= 2,
    "hours>0": lambda f: f["hours"] > 0,
    "hours=0": lambda f: f["hours"] == 0,
    "share>12.34567": lambda f: f["share"] > 12.34567,
    "share<=-3.2": lambda f: f["share"] <= -3.2,
    "seen<2024-02-01": lambda f: pd.to_datetime(f["seen"]) < pd.Timestamp("2024-02-01"),
    "planet=earth": lambda f: f["planet"] == "earth",
}


@pytest.fixture(scope="module")
def plain(of_mixed: FittedTable) -> pd.DataFrame:
    return of_mixed.sample(12_000, seed=5).to_pandas()


@pytest.mark.parametrize("condition", CONDITIONS)
def test_rows_meet_the_condition_and_agree_with_rejection_sampling(
    of_mixed: FittedTable, plain: pd.DataFrame, condition: str
) -> None:
    meets = CONDITIONS[condition]
    rows = of_mixed.sample(400, [condition], seed=0).to_pandas()
    assert list(rows.columns) == list(plain.columns)
    assert len(rows) == 400
    assert meets(rows).all()
    by_chance = plain[meets(plain)]
    found = of_mixed.probability([condition])
    share = len(by_chance) / len(plain)
    error = math.hypot(found.errors, math.sqrt(share * (1 - share) / len(plain)))
    assert abs(found.values - share) <= 4.5 * error
    for name in ("hours", "share", "legs"):
        values, others = rows[name], by_chance[name]
        error = math.hypot(values.std() / math.sqrt(240), others.std() / math.sqrt(len(others)))
        assert abs(values.mean() - others.mean()) < 4.5 * error + 1e-9, name
    assert set(rows["town"] + rows["county"]) <= set(plain["town"] + plain["county"])


def test_several_conditions_hold_at_once(of_mixed: FittedTable) -> None:
    texts = ["county=county 1", "size>7", "hours>0", "legs in 2,4"]
    rows = of_mixed.sample(300, texts, seed=1).to_pandas()
    assert (rows["county"] == "county 1").all()
    assert (rows["size"] > 7).all()
    assert (rows["hours"] > 0).all()
    assert rows["legs"].isin([2, 4]).all()
    same = {"county": "county 1", "size": (7.1, None), "hours": (1e-300, None), "legs": [2, 4]}
    assert of_mixed.sample(300, same, seed=1).num_rows == 300
    assert of_mixed.sample(300, texts, seed=1).equals(of_mixed.sample(300, texts, seed=1))
    assert of_mixed.sample(40, ["hours>0"], seed=1, complete=True).to_pandas().notna().all().all()
    assert of_mixed.sample(0, ["hours>0"]).num_rows == 0


def test_the_law_of_a_number_after_the_conditions_is_consistent(of_mixed: FittedTable) -> None:
    """Masses, density, distribution function and quantiles of one column agree."""
    answer = of_mixed.conditional("hours", ["legs=2", "size>5"], effective_size=1_000)
    atom = answer.masses([0.0]).masses[0]
    grid = np.concatenate([np.linspace(1e-6, 30, 301), np.linspace(30.2, 120, 100)])
    density = answer.density(grid)
    assert np.trapezoid(density.values, grid) + atom == pytest.approx(1, abs=3e-3)
    ends = answer.cdf([0.0, 5.0]).values
    assert ends[0] == pytest.approx(atom, rel=1e-9)
    inside = grid < 5.05
    assert np.trapezoid(density.values[inside], grid[inside]) + atom == pytest.approx(ends[1], abs=3e-3)
    found = answer.quantiles([0.05, 0.7, 0.9])
    assert found.values[0] == 0
    np.testing.assert_allclose(answer.cdf(found.values[1:]).values, [0.7, 0.9], atol=1e-6)
    steps = of_mixed.conditional("seen", ["town=town 1"]).quantiles([0.5])
    assert steps.masses[0] >= 0.5
    last = of_mixed.conditional("legs", ["town=town 1"])
    assert last.quantiles([0.99]).values == [4]


def test_the_density_of_a_number_before_the_conditions_agrees_with_weighted_rows(of_mixed: FittedTable) -> None:
    """The density of a column before a condition is a ratio of probabilities. Its integral agrees with the mass of
    weighted rows."""
    answer = of_mixed.conditional("hours", ["share>0"], effective_size=4_000)
    grid = np.linspace(0.5, 14.5, 8)
    density = answer.density(grid)
    ends = answer.cdf([grid[0], grid[-1]])
    area = np.trapezoid(density.values, grid)
    assert abs(area - (ends.values[1] - ends.values[0])) < 0.05
    assert (density.errors < 0.1 * density.values).all()


BAD = {
    "sise>5": "no column 'sise'; did you mean 'size'",
    "town=town3": "never holds 'town3'; did you mean 'town 3'",
    "town>town 3": "words, which have no order",
    "size in 9..3": "before it begins",
    "size in ..": "range without ends",
    "size in 4.51..4.59": "no value of the column lies in this range",
    "size=4.55": "multiples of 0.1",
    "size>many": "'many'",
    "size>": "with nothing",
    "hours>inf": "'inf' is not a number",
    "planet=mars": "always 'earth'",
    "id=3": "left out",
    "legs is missing": "has no missing value",
    "5": "a condition should be",
}


@pytest.mark.parametrize("text", BAD)
def test_bad_conditions_are_refused(of_mixed: FittedTable, text: str) -> None:
    with pytest.raises(TableError) as refused:
        of_mixed.sample(5, [text])
    assert BAD[text] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_contradictory_conditions_are_refused(of_mixed: FittedTable) -> None:
    for texts, message in (
        (["size>8", "size<3"], "contradict one another"),
        (["town=town 0", "county=county 2"], "determines 'county'"),
        (["hours<-3"], "is impossible"),
    ):
        with pytest.raises(TableError, match=message):
            of_mixed.probability(texts)
    with pytest.raises(TableError, match="has no column 'id'"):
        of_mixed.conditional("id", ["legs=2"])
    assert of_mixed.probability(["size>8", "size<9"]).values > 0


def test_a_condition_too_rare_to_answer_is_refused_with_a_bound(
    of_mixed: FittedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["share>150", "town=town 0"]
    found = of_mixed.probability(texts)
    monkeypatch.setattr(strategies, "MOST_PARTICLES", 4096)
    monkeypatch.setattr(strategies, "FEWEST", 1e6)  # no number of particles is enough
    with pytest.raises(TableError, match="too rare to answer") as refused:
        of_mixed.sample(10_000, texts, seed=0)
    said = re.search(r"about (\S+), at most (\S+) with 95% confidence", str(refused.value))
    assert said is not None
    assert float(said[1]) == pytest.approx(float(found.values), rel=0.2)
    assert float(found.values) < float(said[2]) < 1e-2


def test_the_bound_agrees_with_clopper_and_pearson_for_zeros_and_ones() -> None:
    from scipy.stats import beta

    for hits, n in ((0, 500), (3, 500), (250, 500)):
        exact = beta.ppf(0.95, hits + 1, n - hits)  # Clopper and Pearson
        assert exact * (1 - 1e-9) <= upper_bound(hits / n, n) < 1.35 * exact


def test_columns_with_odd_names() -> None:
    names = ["a", "a in b", "x<y", "in"]
    assert read_condition("a in b>3", names).column == "a"  # the shortest matching name
    assert read_condition("x<y>=3", names).values == ("3",)
    assert read_condition('a in "p, q",r', names).values == ("p, q", "r")
    assert read_condition("in in 1..2", names).relation == "range"
    assert read_condition("a=<=50", names).values == ("<=50",)
