"""Two tables: words whose joint distribution can be enumerated, and a mixed one with gaps, atoms and rules."""

from __future__ import annotations

import numpy as np
import pandas as pd


def words(rows: int = 1500) -> pd.DataFrame:
    """Five columns of words, each depending on those before it."""
    rng = np.random.default_rng(0)
    columns: dict[str, np.ndarray] = {}
    total = np.zeros(rows, np.int64)
    for name, count in zip("abcde", (3, 4, 2, 5, 3), strict=True):
        drawn = np.where(rng.random(rows) < 0.5, total % count, rng.integers(0, count, rows))
        columns[name] = np.char.add(name, drawn.astype(str))
        total = total + drawn
    return pd.DataFrame(columns)


def mixed(rows: int = 900) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    town = rng.integers(0, 8, rows)
    size = rng.gamma(2.0, 2.0, rows) + town
    made = pd.DataFrame(
        {
            "town": [f"town {i}" for i in town],
            "county": [f"county {i // 3}" for i in town],
            "size": np.round(size, 1),
            "planet": "earth",
            "legs": rng.choice([0, 2, 4], rows),
            "hours": np.where(rng.random(rows) < 0.4, 0.0, rng.exponential(3.0, rows) + size),
            "share": np.round(rng.normal(0, 40, rows), 4),
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, rows), "D"),
        }
    )
    made.loc[rng.random(rows) < 0.1 + 0.3 * (town < 4), "size"] = np.nan
    made["id"] = np.arange(rows)
    return made
