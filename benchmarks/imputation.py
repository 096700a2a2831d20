"""Imputation of the Adult table: 30 % of the cells of test rows are removed at random and filled again.

    python -m benchmarks.imputation FOLDER [--run RUN] [--rows 4000] [-o results/imputation.csv]

FOLDER holds adult-train.csv.gz and adult-test.csv.gz. Without --run, a model is fitted to the training rows with the
default settings of `cubicflow fit`. Four ways to fill:

1. mode and median of the training rows;
2. scikit-learn's IterativeImputer with its default regressor, fitted to 10,000 training rows that lack the same share
   of their cells. Numbers are standardised. Words are either codes in the order of their frequency, rounded after
   imputation, or one-hot features, of which the largest counts. One-hot features of the same column predict one
   another, so a one-hot imputation stays near its initial value;
3. `cubicflow impute --mode`;
4. `cubicflow impute`: one draw, and the mean of the numbers over 20 draws.

Accuracy is the share of removed words that are restored. Errors of numbers, root mean square and mean absolute, are
divided by the column's standard deviation in the training rows and averaged over columns.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from cubicflow.tables import FittedTable, fit_table

SHARE = 0.3
FITTED_ROWS = 10_000
DRAWS = 20


def removed(rows: pd.DataFrame, seed: int) -> NDArray[np.bool_]:
    """Draw a mask of cells to remove; missing cells are never in it."""
    found: NDArray[np.bool_] = (np.random.default_rng(seed).random(rows.shape) < SHARE) & rows.notna().to_numpy()
    return found


def with_holes(rows: pd.DataFrame, holes: NDArray[np.bool_]) -> pd.DataFrame:
    return rows.mask(holes)


def by_centre(train: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    centres = {name: train[name].median() if is_number(train[name]) else train[name].mode()[0] for name in train}
    return rows.fillna(centres)


def is_number(column: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(column))


class OneHot:
    """An encoding with standardised numbers and one-hot words. Missing values are NaN."""

    def __init__(self, train: pd.DataFrame) -> None:
        self.numbers = [name for name in train if is_number(train[name])]
        self.words = {name: sorted(train[name].dropna().unique()) for name in train if name not in self.numbers}
        self.mean, self.std = train[self.numbers].mean(), train[self.numbers].std()

    def encode(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        parts = [((rows[self.numbers] - self.mean) / self.std).to_numpy()]
        for name, words in self.words.items():
            one_hot = (rows[name].to_numpy()[:, None] == np.array(words, object)).astype(float)
            one_hot[rows[name].isna()] = np.nan
            parts.append(one_hot)
        return np.concatenate(parts, axis=1)

    def decode(self, x: NDArray[np.float64], like: pd.DataFrame) -> pd.DataFrame:
        found = like.copy()
        found[self.numbers] = x[:, : len(self.numbers)] * self.std.to_numpy() + self.mean.to_numpy()
        return self.decode_words(x, found)

    def decode_words(self, x: NDArray[np.float64], found: pd.DataFrame) -> pd.DataFrame:
        place = len(self.numbers)
        for name, words in self.words.items():
            found[name] = np.array(words, object)[x[:, place : place + len(words)].argmax(axis=1)]
            place += len(words)
        return found


class Codes(OneHot):
    """An encoding with standardised numbers and one code for each word, the most frequent word first."""

    def __init__(self, train: pd.DataFrame) -> None:
        super().__init__(train)
        self.words = {name: train[name].value_counts().index.tolist() for name in self.words}

    def encode(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        numbers = ((rows[self.numbers] - self.mean) / self.std).to_numpy()
        codes = [rows[name].map({w: i for i, w in enumerate(words)}) for name, words in self.words.items()]
        return np.column_stack([numbers, *(code.to_numpy(float) for code in codes)])

    def decode_words(self, x: NDArray[np.float64], found: pd.DataFrame) -> pd.DataFrame:
        for place, (name, words) in enumerate(self.words.items(), len(self.numbers)):
            code = np.clip(np.rint(x[:, place]), 0, len(words) - 1).astype(int)
            found[name] = np.array(words, object)[code]
        return found


def by_iteration(train: pd.DataFrame, rows: pd.DataFrame, features: type[OneHot]) -> pd.DataFrame:
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    some = train.sample(min(FITTED_ROWS, len(train)), random_state=0)
    encoder = features(some)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the imputer warns that ten rounds did not converge
        imputer = IterativeImputer(random_state=0).fit(encoder.encode(with_holes(some, removed(some, 1))))
        return encoder.decode(imputer.transform(encoder.encode(rows)), rows)


def score(truth: pd.DataFrame, filled: pd.DataFrame, holes: NDArray[np.bool_], train: pd.DataFrame) -> dict[str, float]:
    right: list[NDArray[np.bool_]] = []
    square, absolute = [], []
    for i, name in enumerate(truth):
        hole = holes[:, i]
        if is_number(train[name]):
            off = (filled[name].to_numpy(float) - truth[name].to_numpy(float))[hole] / train[name].std()
            square.append(float(np.sqrt((off**2).mean())))
            absolute.append(float(np.abs(off).mean()))
        else:
            right.append((filled[name].astype(str) == truth[name].astype(str)).to_numpy()[hole])
    return {
        "accuracy": float(np.concatenate(right).mean()),
        "rmse": float(np.mean(square)),
        "mae": float(np.mean(absolute)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    train, test = (pd.read_csv(arguments.folder / f"adult-{part}.csv.gz") for part in ("train", "test"))
    test = test[: arguments.rows]
    holes = removed(test, 0)
    rows = with_holes(test, holes)
    print(f"{len(test):,} rows, {int(holes.sum()):,} cells removed")
    with tempfile.TemporaryDirectory() as folder:
        run = arguments.run or Path(folder) / "run"
        if arguments.run is None:
            fit_table(arguments.folder / "adult-train.csv.gz", run, say=print)
        fitted = FittedTable.load(run)
    table = pa.Table.from_pandas(rows, preserve_index=False)
    results = []

    def note(name: str, filled: pd.DataFrame, start: float) -> None:
        found: dict[str, Any] = {"method": name, **score(test, filled, holes, train)}
        results.append({**found, "seconds": round(time.perf_counter() - start, 1)})
        print(results[-1], flush=True)
        if arguments.output is not None:  # after every method, so that an interrupted run keeps its results
            pd.DataFrame(results).round(4).to_csv(arguments.output, index=False)

    start = time.perf_counter()
    note("mode and median", by_centre(train, rows), start)
    start = time.perf_counter()
    note("cubicflow impute --mode", fitted.impute(table, most_likely=True, seed=0)[0].to_pandas(), start)
    start = time.perf_counter()
    draws = [each.to_pandas() for each in fitted.impute(table, draws=DRAWS, seed=0)]
    note("cubicflow impute", draws[0], start)
    numbers = [name for name in train if is_number(train[name])]
    mean = draws[0].copy()
    mean[numbers] = np.mean([draw[numbers].to_numpy(float) for draw in draws], axis=0)
    note(f"cubicflow impute, mean of {DRAWS} draws", mean, start)
    for name, features in (("codes", Codes), ("a feature for each word", OneHot)):
        start = time.perf_counter()
        note(f"IterativeImputer, {name}", by_iteration(train, rows, features), start)


if __name__ == "__main__":
    main()
