"""Rows a second that a model of columns and a flow score, on the diamonds table.

    python -m benchmarks.rows_scored FOLDER/diamonds.csv [--threads 2]

Both models have the sizes that `cubicflow fit` chooses for this table. They are untrained; training does not change the
time of a score. The time is from Arrow rows to log likelihoods. The two models alternate; the best of three counts.

Writes docs/results/rows_scored.md.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch

from cubicflow.tables import FittedTable, Split, TableOptions, infer
from cubicflow.tables.fitted import MODELS
from cubicflow.tables.read.table import in_memory
from cubicflow.tables.schema.plain_rows import PlainRows
from cubicflow.tables.schema.usable_rows import Missing

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "rows_scored.md"
TURNS = 3
ROWS = 2_048


def untrained(rows: pa.Table) -> dict[str, FittedTable]:
    """Return an untrained model of each kind for a table."""
    schema = infer(in_memory(rows), TableOptions(missing=Missing.MODEL)).schema
    y = PlainRows(schema).read(rows.combine_chunks().to_batches()[0]).y
    found = {}
    for name, kind in MODELS.items():
        model = kind.learn(schema, y, np.arange(len(y)), 0, {})
        model.network.eval()
        found[name] = FittedTable(model, Split(), Missing.ERROR, "", "", {})
    return found


def seconds(fitted: FittedTable, rows: pa.Table) -> float:
    began = time.perf_counter()
    fitted.score(rows)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = pyarrow.csv.read_csv(arguments.table)
    models = untrained(rows)
    scored = rows[:ROWS]
    best = {model: seconds(fitted, scored) for model, fitted in models.items()}
    for _ in range(1, TURNS):
        best = {model: min(best[model], seconds(fitted, scored)) for model, fitted in models.items()}
    speeds = {model: len(scored) / took for model, took in best.items()}
    lines = [
        "# Rows scored per second",
        "",
        f"`python -m benchmarks.rows_scored diamonds.csv --threads {arguments.threads}` scored {len(scored):,}",
        f"rows of ten columns on a CPU with {os.cpu_count()} cores. Both models have the sizes",
        "that `cubicflow fit` chooses. A flow is evaluated at sixteen offsets for each row. A model",
        "of columns is evaluated once for each row, in float64.",
        "",
        "| | rows per second | relative to the flow |",
        "|---|---|---|",
        *(
            f"| {MODELS[model].phrase} | {speed:,.0f} | {speed / speeds['flow']:.1f} |"
            for model, speed in speeds.items()
        ),
    ]
    print("\n".join(lines))
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
