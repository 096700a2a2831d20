"""A table of many columns, and the peak memory of what a run of a model of columns does with it.

    python -m benchmarks.wide_table ROWS COLUMNS FOLDER [--steps N] [--only fit,score,...]

Half of the columns are words, 5 to 50 of them, and half are numbers; ROWS x COLUMNS of them go to FOLDER/table.csv.
All columns depend on a few hidden factors. Each task, such as a fit or a score, runs in a process of its own, and its
peak memory is that above the memory after the import of cubicflow, in MB. The records hold wall-clock seconds.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

FACTORS = 4  # hidden normal numbers of each row
NOISE = 0.7  # standard deviation of what a column adds to its factors
FEWEST_WORDS, MOST_WORDS = 5, 50
SAMPLED, FILLED = 2_000, 100  # rows


def wide_table(rows: int, columns: int, seed: int = 0) -> pd.DataFrame:
    """Return a table whose even columns are words and whose odd columns are numbers with two decimals.

    >>> wide_table(100, 4).dtypes.astype(str).tolist()
    ['object', 'float64', 'object', 'float64']
    """
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((rows, FACTORS))
    found: dict[str, Any] = {}
    for i in range(columns):
        values = factors @ rng.standard_normal(FACTORS) + NOISE * rng.standard_normal(rows)
        if i % 2:
            found[f"n{i}"] = np.round(100 * (np.exp(values / 3) if i % 4 == 1 else values), 2)
        else:
            words = int(rng.integers(FEWEST_WORDS, MOST_WORDS + 1))
            edges = np.quantile(values, np.sort(rng.random(words - 1)))
            found[f"w{i}"] = np.array([f"v{k}" for k in range(words)], dtype=object)[np.searchsorted(edges, values)]
    return pd.DataFrame(found)


def peak() -> float:
    """Return the largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def tasks(folder: Path, steps: int | None) -> dict[str, Callable[[], object]]:
    """Return what a user does with the table, by name. Every task but the fit needs the run of the fit."""
    from cubicflow.tables import FittedTable, fit_table, open_table

    table, run = folder / "table.csv", folder / "run"
    how: dict[str, Any] = {"device": "cpu", "progress": False, "overwrite": True, "model": "columns"}
    how |= {} if steps is None else {"steps": steps}

    def fitted() -> FittedTable:
        return FittedTable.load(run)

    return {
        "fit": lambda: fit_table(table, run, **how),
        "score": lambda: [*fitted().score_table(open_table(table))],
        "sample": lambda: fitted().sample(SAMPLED, seed=0),
        "condition": lambda: fitted().sample(SAMPLED, ["n1>200"], seed=0),
        "impute": lambda: fitted().impute(with_gaps(pd.read_csv(table, nrows=FILLED)), seed=0),
    }


def with_gaps(frame: pd.DataFrame) -> pa.Table:
    """Return a table in which one value in fifty is missing."""
    frame = frame.mask(np.random.default_rng(0).random(frame.shape) < 0.02)
    return pa.Table.from_pandas(frame, preserve_index=False)


def measure(folder: Path, task: str, steps: int | None) -> dict[str, object]:
    """Return the peak memory above the import, and the seconds, of one task in this process."""
    found = tasks(folder, steps)[task]
    before, start = peak(), time.perf_counter()
    found()
    return {"task": task, "megabytes": round(peak() - before), "seconds": round(time.perf_counter() - start, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int)
    parser.add_argument("columns", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, help="steps of the fit; by default as many as the model chooses")
    parser.add_argument("--only", default="fit,score,sample,condition,impute")
    parser.add_argument("--task", help=argparse.SUPPRESS)  # the task of a process that this program starts
    arguments = parser.parse_args()
    if arguments.task:
        print(json.dumps(measure(arguments.folder, arguments.task, arguments.steps)))
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    wide_table(arguments.rows, arguments.columns).to_csv(arguments.folder / "table.csv", index=False)
    for task in arguments.only.split(","):
        command = [sys.executable, "-m", "benchmarks.wide_table", *sys.argv[1:], "--task", task]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        print(done.stdout.strip().splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
