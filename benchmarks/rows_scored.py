"""Rows scored a second by a model of columns and by a flow, in one run: the diamonds table, 53,940 rows.

    python -m benchmarks.rows_scored FOLDER/diamonds.csv [--threads 2]

Both models have the settings that `cubicflow fit` chooses for this table. They are trained for a few steps only, which
does not matter for how long a score takes. From an Arrow table to log likelihoods, the two in turn, the best of five.

Writes docs/results/rows_scored.md.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch

from cubicflow.tables import FittedTable, fit_table, open_table
from cubicflow.tables.fitting import NAMED

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "rows_scored.md"
TURNS = 5
STEPS = 10
MOST_ROWS = 10_000


def seconds(fitted: FittedTable, rows: object) -> float:
    began = time.perf_counter()
    fitted.score(rows)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    models = {}
    with tempfile.TemporaryDirectory() as folder:
        for model in NAMED:
            how = {"steps": STEPS, "validate_every": STEPS, "device": "cpu", "progress": False}
            models[model] = fit_table(arguments.table, Path(folder) / model, model=model, **how).fitted
        rows = next(open_table(arguments.table).batches(rows=MOST_ROWS))
    for fitted in models.values():
        seconds(fitted, rows[:100])
    best = dict.fromkeys(models, float("inf"))
    for _ in range(TURNS):
        for model, fitted in models.items():
            best[model] = min(best[model], seconds(fitted, rows))
    speeds = {model: len(rows) / took for model, took in best.items()}
    lines = [
        "# Rows scored a second",
        "",
        f"`python -m benchmarks.rows_scored diamonds.csv --threads {arguments.threads}`, on the CPU, {torch.get_num_threads()} of "
        f"{os.cpu_count()} cores: {len(rows):,} rows of ten",
        "columns, both models with the settings that `cubicflow fit` chooses.",
        "",
        "| | rows a second | in units of the flow |",
        "|---|---|---|",
        *(f"| {NAMED[model]} | {speed:,.0f} | {speed / speeds['flow']:.1f} |" for model, speed in speeds.items()),
    ]
    print("\n".join(lines))
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
