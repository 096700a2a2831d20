"""The measures of the judge, each compared with SDMetrics, with brute force or with a known value."""

from __future__ import annotations

import json
from itertools import combinations, permutations

import numpy as np
import pyarrow as pa
import pytest

from cubicflow.tables.judging.judgement import judge
from cubicflow.tables.judging.measures import (
    closeness,
    closest_distances,
    count_contradictions,
    detection,
    share_of_copies,
)
from cubicflow.tables.judging.similarity import shape, trend
from cubicflow.tables.judging.tables import Matched, match
from cubicflow.tables.model.rules import Dependency, contradictions, find_dependencies

from .sdmetrics_golden import GOLDEN, WORDS, make_tables

RECORDED = json.loads(GOLDEN.read_text())


@pytest.fixture(scope="module")
def matched() -> Matched:
    real, sampled = make_tables()
    return match({"real": pa.table(real), "sampled": pa.table(sampled)})


# --- SDMetrics ---


def test_shapes_agree_with_sdmetrics(matched: Matched) -> None:
    assert [name for name, wordy in zip(matched.names, matched.is_word, strict=True) if wordy] == list(WORDS)
    scores = dict(zip(matched.names, shape(*matched.tables, matched.is_word), strict=True))
    # For a word that is only in the samples, SDMetrics adds a millionth of a row to the real rows.
    assert scores == pytest.approx(RECORDED["shape"], abs=1e-6 / 45)


@pytest.mark.parametrize(("bins", "recorded"), [("similarity", "trend"), ("with_own_bins", "trend of the report")])
def test_trends_agree_with_sdmetrics(matched: Matched, bins: str, recorded: str) -> None:
    found = trend(*matched.tables, matched.is_word)
    scores = {f"{matched.names[pair.first]}, {matched.names[pair.second]}": getattr(pair, bins) for pair in found}
    assert len(scores) == 21
    expected = RECORDED[recorded]
    assert {name for name, score in scores.items() if score is None} == {k for k, v in expected.items() if v is None}
    for name, score in expected.items():
        assert scores[name] == pytest.approx(score, abs=1e-12), name


def test_errors_agree_with_the_quality_report() -> None:
    real, sampled = make_tables()
    found = judge(pa.table(real), pa.table(sampled))
    assert found.errors.shape == pytest.approx(1 - RECORDED["shape mean"], abs=1e-8)
    assert found.errors.trend_own_bins == pytest.approx(1 - RECORDED["trend mean of the report"], abs=1e-12)
    defined = [score for score in RECORDED["trend"].values() if score is not None]
    assert found.errors.trend == pytest.approx(1 - np.mean(defined), abs=1e-12)


def test_many_words_are_counted_like_few(monkeypatch: pytest.MonkeyPatch, matched: Matched) -> None:
    few = trend(*matched.tables, matched.is_word)
    monkeypatch.setattr("cubicflow.tables.judging.similarity.MOST_CELLS", 1)
    many = trend(*matched.tables, matched.is_word)
    assert [pair.similarity for pair in many] == pytest.approx([pair.similarity for pair in few])
    assert [pair.with_own_bins for pair in many] == pytest.approx([pair.with_own_bins for pair in few])


@pytest.mark.parametrize("unit", [1e-200, 1e300])
def test_scores_do_not_depend_on_the_units(unit: float) -> None:
    rng = np.random.default_rng(8)
    plain = [np.stack([rng.normal(size=50), rng.normal(size=50), rng.integers(0, 3, 50)], axis=1) for _ in range(2)]
    is_word = np.array([False, False, True])
    expected, found = trend(*plain, is_word), trend(*(table * [unit, 1, 1] for table in plain), is_word)
    assert np.array(found) == pytest.approx(np.array(expected), abs=1e-12)


def test_bins_narrower_than_the_spacing_of_numbers() -> None:
    step = np.arange(40.0)
    real = np.stack([2**53 + 2 * (step % 2), 2**53 + 2 * (step % 5 // 3), step % 2], axis=1)
    sampled = real * [1, -1, 1]
    scores = [pair.similarity for pair in trend(real, sampled, np.array([False, False, True]))]
    assert scores[0] == pytest.approx(1 - abs(np.corrcoef(step % 2, step % 5 // 3)[0, 1]))
    assert scores[1] == 1


# --- detection ---


def a_table(rng: np.random.Generator, rows: int) -> np.ndarray:
    word = rng.integers(0, 4, rows).astype(float)
    number = word + rng.normal(0, 0.1, rows)
    gappy = np.where(rng.random(rows) < 0.2, np.nan, -number)
    return np.stack([word, number, gappy], axis=1)


IS_WORD = np.array([True, False, False])


@pytest.fixture
def two_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train two classifiers instead of five."""
    monkeypatch.setattr("cubicflow.tables.judging.measures.FOLDS", 2)


@pytest.mark.usefixtures("two_folds")
def test_two_halves_of_a_table_are_indistinguishable() -> None:
    rows = a_table(np.random.default_rng(0), 1200)
    found = detection(rows[:600], rows[600:], IS_WORD)
    assert abs(found.auc - 0.5) < 4 * np.sqrt(1201 / (12 * 600**2))  # the AUC of noise has variance (2n + 1) / (12 n^2)
    assert found.rows == 600
    assert found.score == pytest.approx(2 - 2 * max(found.auc, 0.5))
    assert detection(rows[:600], rows[600:], IS_WORD) == found


def test_shuffled_columns_are_detected() -> None:
    rng = np.random.default_rng(0)
    real, other = a_table(rng, 500), a_table(rng, 800)
    shuffled = np.stack([rng.permutation(column) for column in other.T], axis=1)
    found = detection(real, shuffled, IS_WORD)
    assert found.auc > 0.95
    assert found.rows == 500
    assert found.score < 0.1


def test_a_difference_in_gaps_alone_is_detected() -> None:
    rows = a_table(np.random.default_rng(0), 1000)
    filled = rows[500:].copy()
    filled[:, 2] = -filled[:, 1]
    # A fifth of the real rows has gaps and is certain to be found. The other rows are guesses.
    assert detection(rows[:500], filled, IS_WORD).auc == pytest.approx(0.6, abs=0.06)


@pytest.mark.parametrize(("words", "least"), [(250, 0.99), (400, 0.9)])
def test_differences_of_unordered_words_are_detected(words: int, least: float) -> None:
    """One table holds the even words, the other one the odd words. A few thresholds cannot separate them."""
    even = np.tile(np.arange(0.0, words, 2), 14)[:, None]
    assert detection(even, even + 1, np.array([True])).auc > least > detection(even, even + 1, np.array([False])).auc


# --- copies and closest rows ---


def test_closest_rows_agree_with_brute_force() -> None:
    rng = np.random.default_rng(1)
    train, rows = a_table(rng, 60), a_table(rng, 40)
    train[5, 0] = rows[7, 0] = np.nan
    rows[:10] = train[:10]

    def quantile(value: float, column: int) -> float:
        known = train[:, column][~np.isnan(train[:, column])]
        return float(np.mean((known < value) + 0.5 * (known == value)))

    def distance(a: np.ndarray, b: np.ndarray) -> float:
        total = 0.0
        for j in range(3):
            if np.isnan(a[j]) or np.isnan(b[j]):
                total += float(np.isnan(a[j]) != np.isnan(b[j]))
            else:
                total += float(a[j] != b[j]) if IS_WORD[j] else abs(quantile(a[j], j) - quantile(b[j], j))
        return total / 3

    expected = [min(distance(row, other) for other in train) for row in rows]
    np.testing.assert_allclose(closest_distances(rows, train, IS_WORD), expected, atol=1e-12)
    found = closeness(rows, train, IS_WORD)
    assert found.median == pytest.approx(np.median(expected))
    assert found.low == pytest.approx(np.quantile(expected, 0.05))
    copies = np.mean([any(np.array_equal(row, other, equal_nan=True) for other in train) for row in rows])
    assert found.copies == copies == share_of_copies(rows, train)
    assert copies >= 0.25


def test_closest_rows_do_not_depend_on_how_many_are_compared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    train, rows = a_table(rng, 50), a_table(rng, 33)
    whole = closest_distances(rows, train, IS_WORD)
    monkeypatch.setattr("cubicflow.tables.judging.measures.AT_ONCE", 200)
    np.testing.assert_array_equal(closest_distances(rows, train, IS_WORD), whole)


def test_large_tables_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cubicflow.tables.judging.measures.MOST_QUERIES", 20)
    monkeypatch.setattr("cubicflow.tables.judging.measures.MOST_TRAIN", 30)
    rng = np.random.default_rng(3)
    found = closeness(a_table(rng, 100), a_table(rng, 90), IS_WORD)
    assert (found.rows, found.train_rows) == (20, 30)


# --- dependencies ---


def test_dependencies_agree_with_brute_force() -> None:
    """Exactly those dependencies are found that hold in all rows and have enough evidence."""
    rng = np.random.default_rng(4)
    city = rng.integers(0, 12, 500)
    codes = np.stack([city, city // 3, city % 2 + 2 * (city // 6), rng.integers(0, 3, 500), np.full(500, 3)], axis=1)
    holds = set()
    for a, b in permutations(range(5), 2):
        values: dict[int, set[int]] = {}
        for row in codes:
            values.setdefault(row[a], set()).add(row[b])
        if all(len(seen) == 1 for seen in values.values()) and len(set(codes[:, b])) > 1:
            holds.add(Dependency(a, b))
    assert set(find_dependencies(codes)) == holds == {Dependency(0, 1), Dependency(0, 2)}


def test_row_numbers_and_few_repeats_determine_nothing() -> None:
    rng = np.random.default_rng(5)
    number, pairs, word = np.arange(600), np.arange(600) // 2, rng.integers(0, 5, 600)
    assert find_dependencies(np.stack([number, word], axis=1)) == []
    # Each value of the first column occurs twice: half of the rows repeat, which is just enough.
    assert find_dependencies(np.stack([pairs, word[pairs]], axis=1)) == [Dependency(0, 1)]
    fifth = np.arange(1000) * 4 // 5  # a fifth of the rows repeat
    assert find_dependencies(np.stack([fifth, fifth % 5], axis=1)) == []
    few = np.stack([np.arange(80) % 4, np.arange(80) % 2], axis=1)
    assert find_dependencies(few) == []  # 76 repeats are too few
    assert find_dependencies(np.tile(few, (2, 1))) == [Dependency(0, 1)]


def test_a_rare_value_is_too_little_evidence() -> None:
    """If nearly all rows have the same b, agreement with a rule is no evidence for it."""
    group = np.arange(400) % 10
    rare = np.zeros(400, dtype=np.int64)
    rare[group == 3] = 1
    # The rule would hold by chance with probability 0.9^390.
    assert find_dependencies(np.stack([group, rare], axis=1)) == [Dependency(0, 1)]
    almost = np.zeros(400, dtype=np.int64)
    almost[0] = 1
    single = np.where(np.arange(400) == 0, 10, group)  # a separate value for that row
    # This rule would hold by chance with probability 0.9975^389, which is not small.
    assert find_dependencies(np.stack([single, almost], axis=1)) == []


def test_dependencies_by_chance_are_rare() -> None:
    """A hundred tables of independent columns, with about half as many values as rows, have no dependency."""
    rng = np.random.default_rng(6)
    found = [find_dependencies(rng.integers(0, [100, 120, 2, 3], (240, 4))) for _ in range(100)]
    assert not any(found)


def test_contradictions_agree_with_brute_force() -> None:
    rng = np.random.default_rng(7)
    known = rng.integers(0, 30, 300)
    known = np.stack([known, known % 4], axis=1)
    rows = rng.integers(0, 40, (200, 2)) % np.array([40, 5])
    table = dict(known.tolist())
    expected = [a in table and table[a] != b for a, b in rows.tolist()]
    assert contradictions(rows, known, Dependency(0, 1)).tolist() == expected
    found = count_contradictions(known.astype(float), rows.astype(float), known.astype(float), ["a", "b"])
    assert found.sampled == np.mean(expected)
    assert found.held_out == 0
    assert [(rule.determinant, rule.dependent) for rule in found.rules] == [("a", "b")]


def test_a_row_that_breaks_two_rules_counts_once() -> None:
    city = np.arange(300.0) % 6
    real = np.stack([city, city // 2, city // 3], axis=1)
    sampled = real.copy()
    sampled[:30, 1:] = 9  # values outside every rule
    sampled[30:45, 1] = 9
    found = count_contradictions(real, sampled, None, ["a", "b", "c"])
    by_name = {(rule.determinant, rule.dependent): rule.sampled for rule in found.rules}
    assert by_name == {("a", "b"): 0.15, ("a", "c"): 0.1}
    assert found.sampled == 0.15
    assert found.held_out is None


def test_a_gap_is_a_value_in_dependencies() -> None:
    garage = np.where(np.arange(300) % 3 == 0, np.nan, np.arange(300.0) % 3)
    built = np.where(np.isnan(garage), np.nan, 1900 + garage)
    real = np.stack([garage, built], axis=1)
    sampled = real.copy()
    sampled[0, 1] = 1901  # a year, although there is no garage
    found = count_contradictions(real, sampled, real, ["garage", "built"])
    assert {(rule.determinant, rule.dependent) for rule in found.rules} == set(combinations(("garage", "built"), 2)) | {
        ("built", "garage")
    }
    assert found.sampled == pytest.approx(1 / 300)
