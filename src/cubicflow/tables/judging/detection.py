"""Detection: how well a classifier separates sampled rows from real rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cubicflow.extras import need
from cubicflow.tables.arrow_types import Floats

FOLDS = 5
MOST_ROWS = 50_000  # rows of each table
MOST_WORDS = 255  # categories; scikit-learn's limit for histogram gradient boosting


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
    rows = min(len(real), len(sampled), MOST_ROWS)
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
