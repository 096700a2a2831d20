"""A small table of pets: words, numbers, dates and a constant."""

from __future__ import annotations

import numpy as np
import pandas as pd

ROWS = 200


def make_frame(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    kind = rng.choice(["cat", "dog", "a, b"], rows)
    size = np.round(rng.normal(3, 1, rows) + (kind == "cat"), 2)
    return pd.DataFrame(
        {
            "kind": kind,
            "size": size,
            "weight": rng.gamma(2.0, 3.0, rows) + size,
            "legs": rng.poisson(3, rows),
            "planet": "earth",
            "tame": rng.random(rows) < 0.5,
            "born": pd.date_range("2020-01-01", periods=rows).strftime("%Y-%m-%d"),
        }
    )
