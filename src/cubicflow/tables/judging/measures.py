"""Measures of sampled rows, each a function of matrices: detection, closeness to training rows, contradictions.

detection       how well a classifier separates sampled rows from real rows
closeness       copies of training rows among samples, and distances to the closest training row
contradictions  samples that break a rule of the training rows, which says that one column determines another
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cubicflow.extras import need
from cubicflow.tables.arrow_types import Floats
from cubicflow.tables.model.rules import codes_of, contradictions, find_dependencies

FOLDS = 5
MOST_DETECTED = 50_000  # rows of each table that the classifier gets
MOST_WORDS = 255  # categories; scikit-learn's limit for histogram gradient boosting
MOST_QUERIES = 2_000  # rows whose distance is measured
MOST_TRAIN = 20_000  # training rows that are searched
AT_ONCE = 1 << 22  # distances in memory at once
LOW = 0.05  # level of the low quantile of distances

# --- detection ---


@dataclass(frozen=True)
class Detection:
    """The result of a classifier that separates sampled rows from real rows.

    Attributes:
        auc: the mean over folds of the area under the ROC curve. Given one real and one sampled row, the classifier
            identifies the sampled one with this probability: 0.5 is chance, 1 is certainty.
        spread: the standard deviation of the AUC over folds.
        score: 1 - (2 max(auc, 1/2) - 1): 1 if the tables cannot be separated, 0 if they always can.
        rows: the number of rows used of each table.
    """

    auc: float
    spread: float
    score: float
    rows: int


def detection(real: Floats, sampled: Floats, is_word: NDArray[np.bool_], seed: int = 0) -> Detection:
    """Return the cross-validated AUC of scikit-learn's histogram gradient boosting with its default settings.

    The same number of rows is drawn with the seed from both tables (N, D) and (M, D). The trees handle missing values
    (NaN) themselves. ``is_word`` (D,) marks the columns of codes.

    >>> rng = np.random.default_rng(0)
    >>> found = detection(rng.normal(size=(200, 2)), rng.normal(3, 1, (150, 2)), np.array([False, False]))
    >>> round(found.auc, 1), found.rows
    (1.0, 150)
    """
    need("scikit-learn", "judging")
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    generator = np.random.default_rng(seed)
    rows = min(len(real), len(sampled), MOST_DETECTED)
    drawn = [table[generator.choice(len(table), rows, replace=False)] for table in (real, sampled)]
    features, is_category = _features(np.concatenate(drawn), is_word)
    classifier = HistGradientBoostingClassifier(categorical_features=is_category, random_state=seed)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    aucs = cross_val_score(classifier, features, np.repeat([0, 1], rows), cv=folds, scoring="roc_auc")
    auc = float(aucs.mean())
    return Detection(auc, float(aucs.std()), 1 - (2 * max(auc, 0.5) - 1), rows)


def _features(rows: Floats, is_word: NDArray[np.bool_]) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the features of the trees, and which features are categories.

    A word is replaced by its rank by frequency in both tables together; this rank does not reveal the table. If a
    column has too many words for scikit-learn, the rare words share one category, and the rank is added as a number.
    One-hot encoding would instead need one feature per word.
    """
    features, is_category = [], []
    for values, has_words in zip(rows.T, is_word, strict=True):
        if not has_words:
            features.append(values)
            is_category.append(False)
            continue
        gap = np.isnan(values)
        codes, counts = np.unique(values[~gap], return_counts=True)
        rank = np.empty(len(codes))
        rank[np.argsort(-counts, kind="stable")] = np.arange(len(codes))
        ranks = np.full(len(values), np.nan)
        ranks[~gap] = rank[np.searchsorted(codes, values[~gap])]
        features.append(np.minimum(ranks, MOST_WORDS - 1))
        is_category.append(True)
        if len(codes) > MOST_WORDS:
            features.append(ranks)
            is_category.append(False)
    return np.stack(features, axis=1), np.array(is_category)


# --- closeness ---


@dataclass(frozen=True)
class Closeness:
    """Copies of training rows, and distances to the closest training row.

    Attributes:
        copies: the share of all rows that equal a training row in every column.
        median, low: the median and the 5 % quantile of the distance to the closest training row.
        rows, train_rows: the numbers of measured rows and of training rows that were searched.
    """

    copies: float
    median: float
    low: float
    rows: int
    train_rows: int


def closeness(rows: Floats, train: Floats, is_word: NDArray[np.bool_], seed: int = 0) -> Closeness:
    """Return how close ``rows`` (M, D) are to the training rows (N, D).

    Distances are measured from at most 2,000 rows to at most 20,000 training rows, which are drawn with the seed. The
    same seed draws the same training rows for every table.

    >>> train = np.array([[1.0, 0.0], [2.0, 1.0], [3.0, 1.0], [4.0, 0.0]])
    >>> closeness(np.array([[1.0, 0.0], [2.0, 0.0]]), train, np.array([False, True]))
    Closeness(copies=0.5, median=0.0625, low=0.00625, rows=2, train_rows=4)
    """
    known = _subsample(train, MOST_TRAIN, seed)
    queries = _subsample(rows, MOST_QUERIES, seed)
    distances = closest_distances(queries, known, is_word)
    low, median = np.quantile(distances, [LOW, 0.5])
    return Closeness(share_of_copies(rows, train), float(median), float(low), len(queries), len(known))


def share_of_copies(rows: Floats, train: Floats) -> float:
    """Return the share of ``rows`` that equal a training row in every column. Two missing values are equal.

    >>> share_of_copies(np.array([[1.0, np.nan], [1.0, 2.0]]), np.array([[1.0, np.nan]]))
    0.5
    """
    known = set(_row_bytes(train))
    return float(np.mean([row in known for row in _row_bytes(rows)]))


def closest_distances(rows: Floats, train: Floats, is_word: NDArray[np.bool_]) -> Floats:
    """Return the distance (M,) of each of ``rows`` (M, D) to the closest training row (N, D).

    The distance is the mean over columns. A column of numbers counts the difference of quantiles, which is the share of
    training rows between the two values; units and long tails do not matter. A column of words counts 0 or 1. A missing
    value has distance 1 from any value and 0 from another missing value.

    >>> closest_distances(np.array([[2.5]]), np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([False]))
    array([0.125])
    """
    scaled = np.stack([_quantiles(rows[:, j], train[:, j], bool(is_word[j])) for j in range(rows.shape[1])])
    known = np.stack([_quantiles(train[:, j], train[:, j], bool(is_word[j])) for j in range(rows.shape[1])])
    at_once = max(AT_ONCE // len(train), 1)
    closest = []
    for start in range(0, len(rows), at_once):
        total = np.zeros((min(at_once, len(rows) - start), len(train)))
        for values, others, has_words in zip(scaled[:, start : start + at_once], known, is_word, strict=True):
            # The code of a missing value is -1. The code differs from all words, and its distance from quantiles is at
            # least 1.
            total += values[:, None] != others if has_words else np.minimum(np.abs(values[:, None] - others), 1)
        closest.append(total.min(axis=1))
    distances: Floats = np.concatenate(closest) / rows.shape[1]
    return distances


def _quantiles(values: Floats, train: Floats, has_words: bool) -> Floats:
    """Return the quantiles in [0, 1] of values among the training values. Ties get their middle.

    The codes of words are returned unchanged. A missing value is -1.
    """
    if has_words:
        return np.where(np.isnan(values), -1, values)
    known = np.sort(train[~np.isnan(train)])
    below, through = (np.searchsorted(known, values, side) for side in ("left", "right"))
    return np.where(np.isnan(values), -1, (below + through) / (2 * max(len(known), 1)))


def _subsample(rows: Floats, most: int, seed: int) -> Floats:
    if len(rows) <= most:
        return rows
    return rows[np.random.default_rng(seed).choice(len(rows), most, replace=False)]


def _row_bytes(rows: Floats) -> list[bytes]:
    plain = np.where(np.isnan(rows), np.nan, rows + 0.0)  # equal values get equal bytes: one NaN, and 0.0 for -0.0
    return [row.tobytes() for row in np.ascontiguousarray(plain)]


# --- contradictions ---


@dataclass(frozen=True)
class BrokenRule:
    """A rule, ``determinant`` determines ``dependent``, and the shares of sampled and held-out rows that break it."""

    determinant: str
    dependent: str
    sampled: float
    held_out: float | None


@dataclass(frozen=True)
class Contradictions:
    """Rows that break at least one rule.

    Attributes:
        sampled, held_out: the shares of sampled and held-out rows that break a rule. ``held_out`` is None if the rules
            come from the held-out rows themselves.
        found_in: the rows that the rules come from, ``"training rows"`` or ``"real rows"``.
        rules: every pair of columns of which the first determines the second.
    """

    sampled: float
    held_out: float | None
    found_in: str
    rules: tuple[BrokenRule, ...]


def count_contradictions(real: Floats, sampled: Floats, train: Floats | None, names: Sequence[str]) -> Contradictions:
    """Return the rules of the training rows (N, D), and the shares of rows that break them.

    Without training rows, the rules come from the real rows.

    >>> rng = np.random.default_rng(0)
    >>> city = rng.integers(0, 6, 400).astype(float)
    >>> real, sampled = np.stack([city, city // 2], axis=1), np.stack([city, np.zeros(400)], axis=1)
    >>> found = count_contradictions(real, sampled, None, ["city", "country"])
    >>> [(rule.determinant, rule.dependent) for rule in found.rules], bool(found.sampled == (city > 1).mean())
    ([('city', 'country')], True)
    """
    tables = codes_of(real, sampled) if train is None else codes_of(real, sampled, train)
    known = tables[0] if train is None else tables[2]
    any_broken = [np.zeros(len(table), dtype=np.bool_) for table in tables[:2]]
    rules = []
    for dependency in find_dependencies(known):
        held_out, samples = (contradictions(table, known, dependency) for table in tables[:2])
        for breaks_any, breaks_this in zip(any_broken, (held_out, samples), strict=True):
            breaks_any |= breaks_this
        share = None if train is None else float(held_out.mean())
        determinant, dependent = (names[column] for column in dependency)
        rules.append(BrokenRule(determinant, dependent, float(samples.mean()), share))
    held_out_share = None if train is None else float(any_broken[0].mean())
    found_in = "real rows" if train is None else "training rows"
    return Contradictions(float(any_broken[1].mean()), held_out_share, found_in, tuple(rules))
