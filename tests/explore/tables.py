"""Tables whose runs the page shows, and runs fitted to them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from cubicflow.tables import FittedTable, fit_table

EVIL = '<img src=x onerror="window.hurt=1">'


ROWS = 240


def make_table(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Return words, whole numbers, real numbers, dates and gaps. One name contains HTML, which a page must escape."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(["cat", "dog", EVIL], rows)
    size = np.round(rng.normal(3, 1, rows) + (kind == "cat"), 2)
    frame = pd.DataFrame(
        {
            EVIL: kind,
            "size (m²)": size,
            "weight": rng.gamma(2.0, 3.0, rows) + 3 + size,
            "legs": rng.poisson(3, rows),
            "born": pd.date_range("2020-01-01", periods=rows).strftime("%Y-%m-%d"),
        }
    )
    frame.loc[::9, "weight"] = np.nan
    return frame


def make_lists(rows: int = 600, seed: int = 0) -> pd.DataFrame:
    """Return dependent columns with few values each, so that the joint distribution can be enumerated."""
    rng = np.random.default_rng(seed)
    a = rng.choice(["ash", "elm", "oak"], rows, p=[0.5, 0.3, 0.2])
    b = rng.poisson(1 + 2 * (a == "oak"), rows).clip(0, 4)
    c = np.where(rng.random(rows) < 0.2 + 0.6 * (b > 1), "old", "young")
    b = np.array(["none", "one", "two", "three", "many"])[b]
    d = np.where(rng.random(rows) < np.where(c == "old", 0.8, 0.3), "tall", "small")
    return pd.DataFrame({"tree": a, "rings": b, "age": c, "height": d})


def make_counts(rows: int = 900, seed: int = 0) -> pd.DataFrame:
    """Return words, a number with many values that depends on the words, and words that depend on the number."""
    rng = np.random.default_rng(seed)
    tree = rng.choice(["ash", "elm", "oak"], rows, p=[0.5, 0.3, 0.2])
    rings = rng.poisson(30 + 15 * (tree == "oak"), rows)
    return pd.DataFrame({"tree": tree, "rings": rings, "age": np.where(rings > 35, "old", "young")})


def fit_small(frame: pd.DataFrame, folder: Path, **how: Any) -> Path:
    frame.to_csv(folder / "table.csv", index=False)
    settings = {"hidden_features": 8, **how.pop("settings", {})}
    how = {"steps": 60, "progress": False, "device": "cpu", **how}
    fit_table(folder / "table.csv", folder / "run", None, settings, **how)
    return folder / "run"


def joint(run: Path) -> pd.DataFrame:
    """Return all rows that the model of lists can have, with their probabilities, from the score of each row."""
    values = [sorted(column.unique().tolist()) for _, column in make_lists().items()]
    rows = pd.DataFrame(itertools.product(*values), columns=make_lists().columns)
    scores = FittedTable.load(run).score(pa.Table.from_pandas(rows, preserve_index=False))
    return rows.assign(p=np.exp(scores) / np.exp(scores).sum())
