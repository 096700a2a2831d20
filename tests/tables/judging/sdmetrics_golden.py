"""Two small tables, whose SDMetrics scores are recorded in sdmetrics_golden.json.

SDMetrics needs an older pandas than cubicflow. Record its scores in a separate environment with sdmetrics:

    python tests/tables/judging/sdmetrics_golden.py
"""

from __future__ import annotations

import json
from datetime import date, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).with_suffix(".json")
NUMBERS = ("size", "count", "born", "fixed")
WORDS = ("kind", "tame", "shade")


def make_table(rows: int, factor: int, shift: int) -> dict[str, list[Any]]:
    """Return columns of every kind, some with gaps, without random numbers."""
    mixed = [(i * factor + shift) % 101 for i in range(rows)]
    return {
        "size": [None if i % 11 == 3 else (m + shift) / 8 - (m % 7) ** 2 / 5 for i, m in enumerate(mixed)],
        "count": [m // 9 + i % 4 for i, m in enumerate(mixed)],
        "born": [None if i % 17 == 5 else date(2020, 1, 1) + timedelta(m * (2 + i % 3)) for i, m in enumerate(mixed)],
        "fixed": [7] * rows,
        "kind": [None if i % 13 == 2 else ["ash", "oak", "elm", f"fir {shift}"][m % 4] for i, m in enumerate(mixed)],
        "tame": [m % 3 == 0 for m in mixed],
        "shade": [["dark", "light"][(m + i) % 5 // 3] for i, m in enumerate(mixed)],
    }


def make_tables() -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Return real and sampled rows."""
    return make_table(60, 37, 0), make_table(45, 29, 5)


def main() -> None:
    """Write SDMetrics' scores to the JSON file."""
    import numpy as np
    import pandas as pd
    import sdmetrics  # type: ignore[import-not-found]
    from sdmetrics.column_pairs import ContingencySimilarity  # type: ignore[import-not-found]
    from sdmetrics.reports.single_table._properties import (  # type: ignore[import-not-found]
        ColumnPairTrends,
        ColumnShapes,
    )

    real, sampled = (pd.DataFrame(table) for table in make_tables())
    for frame in (real, sampled):
        frame["born"] = pd.to_datetime(frame["born"])
    kinds = {"born": "datetime", "tame": "boolean", **dict.fromkeys(("size", "count", "fixed"), "numerical")}
    about = {"columns": {name: {"sdtype": kinds.get(name, "categorical")} for name in real.columns}}
    # Compute the two properties of the QualityReport. The report of version 0.32 leaves out weakly related pairs.
    shape, trend = ColumnShapes(), ColumnPairTrends()
    means = [found.get_score(real, sampled, about) for found in (shape, trend)]
    shapes = shape.details.set_index("Column")["Score"]
    pairs = trend.details.set_index(["Column 1", "Column 2"])["Score"]
    numeric = [frame.assign(born=(frame["born"] - pd.Timestamp("2020-01-01")).dt.days) for frame in (real, sampled)]
    by_real_edges = {}
    for a, b in combinations(real.columns, 2):
        binned = [name for name in (a, b) if name in NUMBERS]
        score = pairs[a, b]
        if len(binned) == 1:
            tables = [frame[[a, b]].copy() for frame in numeric]
            score = ContingencySimilarity.compute(*tables, continuous_column_names=binned)
        by_real_edges[f"{a}, {b}"] = None if np.isnan(score) else float(score)
    golden = {
        "sdmetrics": sdmetrics.__version__,
        "shape": {name: float(score) for name, score in shapes.items()},
        "shape mean": float(means[0]),
        "trend": by_real_edges,
        "trend of the report": {f"{a}, {b}": None if np.isnan(s) else float(s) for (a, b), s in pairs.items()},
        "trend mean of the report": float(means[1]),
    }
    GOLDEN.write_text(json.dumps(golden, indent=2) + "\n")


if __name__ == "__main__":
    main()
