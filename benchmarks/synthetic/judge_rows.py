"""Compare sampled rows with real rows, by XGBoost and SDMetrics. This script imports no other file of the project,
because it runs in an environment with xgboost, sdmetrics, scikit-learn and pandas below 3:

    python judge_rows.py MODEL FOLDER

FOLDER holds train.csv, test.csv, the samples in MODEL.csv, and table.json, which lists the columns with words, truth
values or codes; all other columns hold numbers. Every cell is read as text, so that a code is the same in all three
files. The script writes MODEL-judged.json to FOLDER.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

SEED = 0
FOLDS = 3
CHANCE = 7.0  # expected number of rows with a pair of words under independence; e^-7 is the chance of no such row
SHOWN_BINS, SHOWN_WORDS = 40, 12
OFTEN = 0.2  # share of the training rows; a number above it should have the same share in the samples


def read_rows(path: str | Path, words: list[str]) -> pd.DataFrame:
    """Return a CSV file as a frame: numbers as floats with NaN for a gap, words as text with "NA" for a gap."""
    import pandas as pd

    rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    for name in rows.columns:
        if name in words:
            rows[name] = rows[name].map(plain_word)
        else:
            rows[name] = pd.to_numeric(rows[name].replace({"": None, "NA": None, "nan": None}))
    return rows


def plain_word(word: str) -> str:
    """Return one spelling for codes, truth values and gaps, which packages write in several ways.

    >>> [plain_word(word) for word in ("3", "3.0", "true", "Feb", "nan", "")]
    ['3', '3', 'True', 'Feb', 'NA', 'NA']
    """
    if word in ("", "NA", "nan", "None", "<NA>"):
        return "NA"
    if word in ("true", "false", "TRUE", "FALSE"):
        return word.capitalize()
    return word[:-2] if word.endswith(".0") and word[:-2].lstrip("-").isdigit() else word


def detection_score(real: pd.DataFrame, sampled: pd.DataFrame, words: list[str]) -> dict[str, Any]:
    """Return the detection score by the published protocol: XGBoost's default classifier, one-hot words, three shuffled
    stratified folds, and the mean of 1 - (2 max(AUC, 1/2) - 1). Gaps of numbers stay NaN, which XGBoost handles."""
    import pandas as pd
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold
    from xgboost import XGBClassifier

    both = pd.concat([real, sampled], ignore_index=True)
    x = pd.get_dummies(both, columns=[name for name in both.columns if name in words], dtype=np.float32)
    names, matrix = list(x.columns), x.to_numpy(np.float32)
    y = np.repeat([1, 0], [len(real), len(sampled)])
    aucs, gains = [], np.zeros(len(names))
    for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=SEED).split(matrix, y):
        judge = XGBClassifier(n_jobs=1).fit(matrix[train], y[train])
        aucs.append(float(roc_auc_score(y[test], judge.predict_proba(matrix[test])[:, 1])))
        found = judge.get_booster().get_score(importance_type="total_gain")
        gains += [found.get(f"f{i}", 0.0) for i in range(len(names))]
    by_column: dict[str, float] = {}
    for name, gain in zip(names, gains / gains.sum(), strict=True):
        column = name if name in real.columns else next(c for c in words if name.startswith(f"{c}_"))
        by_column[column] = by_column.get(column, 0.0) + float(gain)
    return {
        "score": float(np.mean([1 - (2 * max(auc, 0.5) - 1) for auc in aucs])),
        "aucs": aucs,
        "rows": [len(real), len(sampled)],
        "gain_by_column": {name: round(gain, 4) for name, gain in sorted(by_column.items(), key=lambda e: -e[1])},
    }


def shape_and_trend(real: pd.DataFrame, sampled: pd.DataFrame, words: list[str]) -> dict[str, Any]:
    """Return SDMetrics' scores of column shapes and column-pair trends, over all columns and all pairs."""
    from sdmetrics.reports.single_table._properties import ColumnPairTrends, ColumnShapes

    about = {"columns": {n: {"sdtype": "categorical" if n in words else "numerical"} for n in real.columns}}
    shape, trend = ColumnShapes(), ColumnPairTrends()
    found = {"shape": shape.get_score(real, sampled, about), "trend": trend.get_score(real, sampled, about)}
    shapes = shape.details.set_index("Column")["Score"].sort_values()
    pairs = trend.details.sort_values("Score").head(5)
    worst = [[row["Column 1"], row["Column 2"], round(float(row["Score"]), 4)] for _, row in pairs.iterrows()]
    return {
        **{name: float(value) for name, value in found.items()},
        "worst_shapes": {str(name): round(float(score), 4) for name, score in shapes.head(5).items()},
        "worst_trends": worst,
    }


def resampled(train: pd.DataFrame, words: list[str]) -> dict[str, float]:
    """Return SDMetrics' scores of as many training rows, drawn with replacement. Noise alone keeps them below 1."""
    found = shape_and_trend(train, train.sample(len(train), replace=True, random_state=SEED, ignore_index=True), words)
    return {name: found[name] for name in ("shape", "trend")}


def copies(train: pd.DataFrame, others: pd.DataFrame) -> float:
    """Return the share of rows that equal a training row in every cell."""
    known = set(train.astype(str).itertuples(index=False, name=None))
    return float(np.mean([row in known for row in others.astype(str).itertuples(index=False, name=None)]))


def impossible(real: pd.DataFrame, sampled: pd.DataFrame, words: list[str]) -> dict[str, Any]:
    """Return the share of samples with a pair of words that no real row has, although independent columns would have
    it in seven rows or more."""
    import pandas as pd

    broken, pairs = np.zeros(len(sampled), bool), 0
    for first, later in combinations(words, 2):
        table = pd.crosstab(real[first], real[later])
        by_chance = np.outer(table.sum(axis=1), table.sum(axis=0)) / len(real)
        apart = {
            (table.index[i], table.columns[j]) for i, j in np.argwhere((table.to_numpy() == 0) & (by_chance >= CHANCE))
        }
        pairs += len(apart)
        if apart:
            broken |= np.array([pair in apart for pair in zip(sampled[first], sampled[later], strict=True)])
    return {"pairs": pairs, "share": float(broken.mean())}


def contradicted(real: pd.DataFrame, sampled: pd.DataFrame) -> dict[str, Any]:
    """Return the share of samples that break a dependency: a column that determines another one in every real row."""
    broken, rules = np.zeros(len(sampled), bool), []
    rows = len(real)
    for a in real.columns:
        if 2 * real[a].nunique(dropna=False) > rows:
            continue
        for b in real.columns:
            if a == b or real[b].nunique(dropna=False) < 2:
                continue
            of_each = real.groupby(a, dropna=False)[b].agg(lambda v: v.nunique(dropna=False))
            if (of_each == 1).all():
                known = real.drop_duplicates(a).set_index(a)[b]
                there = sampled[a].isin(known.index)
                expected = sampled[a].map(known)
                wrong = there & (expected.astype(str) != sampled[b].astype(str))
                broken |= wrong.to_numpy()
                rules.append([a, b, float(wrong.mean())])
    return {"rules": rules, "share": float(broken.mean())}


def frequent_numbers(train: pd.DataFrame, sampled: pd.DataFrame, words: list[str]) -> dict[str, Any]:
    """Return each column's most frequent number, if it is frequent, with its share of training rows and of samples."""
    found = {}
    for name in train.columns:
        if name in words:
            continue
        shares = train[name].value_counts(normalize=True)
        if len(shares) and shares.iloc[0] >= OFTEN:
            value = shares.index[0]
            found[name] = [float(value), float((train[name] == value).mean()), float((sampled[name] == value).mean())]
    return found


def negatives(train: pd.DataFrame, sampled: pd.DataFrame, words: list[str]) -> float:
    """Return the share of samples with a number below 0 in a column without numbers below 0."""
    names = [name for name in train.columns if name not in words and train[name].min() >= 0]
    return float((sampled[names] < 0).any(axis=1).mean()) if names else 0.0


def judged(train: pd.DataFrame, test: pd.DataFrame, sampled: pd.DataFrame, words: list[str]) -> dict[str, Any]:
    """Return all measures. Held-out rows are compared with as many samples."""
    import pandas as pd

    sampled = sampled[list(train.columns)]
    real = pd.concat([train, test], ignore_index=True)
    return {
        "detection": detection_score(train, sampled, words),
        "detection_held_out": detection_score(test, sampled.head(len(test)), words),
        "sdmetrics": shape_and_trend(train, sampled, words),
        "resampled": resampled(train, words),
        "copies": {"sampled": copies(train, sampled), "held_out": copies(train, test)},
        "impossible_pairs": impossible(real, sampled, words),
        "contradictions": contradicted(real, sampled),
        "frequent_numbers": frequent_numbers(train, sampled, words),
        "negatives": negatives(train, sampled, words),
    }


def marginals(train: pd.DataFrame, sampled: pd.DataFrame, words: list[str], shown: list[str]) -> dict[str, Any]:
    """Return the shares that the picture shows: of words, or of equal bins that hold 98 % of the training rows."""
    found: dict[str, Any] = {}
    for name in shown:
        if name in words:
            shares, ours = (rows[name].value_counts(normalize=True) for rows in (train, sampled))
            frequent = [str(word) for word in shares.index[:SHOWN_WORDS]]
            parts = [[float(each.get(word, 0.0)) for word in frequent] for each in (shares, ours)]
            found[name] = {"words": frequent, "real": parts[0], "sampled": parts[1]}
            continue
        bins = min(SHOWN_BINS, round(len(train) ** 0.5))
        low, high = (float(train[name].quantile(share)) for share in (0.01, 0.99))
        edges = np.linspace(low, high, bins + 1)
        parts = [(np.histogram(rows[name].dropna(), edges)[0] / len(rows)).tolist() for rows in (train, sampled)]
        found[name] = {"edges": edges.tolist(), "real": parts[0], "sampled": parts[1]}
    return found


def main() -> None:
    import sdmetrics
    import xgboost

    model, folder = sys.argv[1], Path(sys.argv[2])
    table = json.loads((folder / "table.json").read_text())
    began = time.monotonic()
    train, test, sampled = (read_rows(folder / f"{name}.csv", table["words"]) for name in ("train", "test", model))
    found = judged(train, test, sampled, table["words"])
    found["marginals"] = marginals(train, sampled, table["words"], table["shown"])
    found["versions"] = {"xgboost": xgboost.__version__, "sdmetrics": sdmetrics.__version__}
    found["seconds"] = round(time.monotonic() - began, 1)
    (folder / f"{model}-judged.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
