"""Both models on small tables of numbers: test scores, and the score of the one that ``fit`` keeps.

    python -m benchmarks.both_models [-o results/both_models.csv]

Each table is split at random three times. ``fit`` gets three quarters of the rows with its defaults, and trains both
models, because the tables are small. Both are scored on the other quarter. The file has one line for each split; the
score of a model that cannot serve the table, such as a flow if a number repeats among real ones, is empty. If the
command is interrupted, run it again: it fits the splits that are missing.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine

from cubicflow.tables import fitting

CSV = Path(__file__).parent.parent / "results" / "both_models.csv"
SPLITS = 3
TABLES: dict[str, Any] = {
    "breast_cancer": load_breast_cancer,
    "wine": load_wine,
    "diabetes": load_diabetes,
    "iris": load_iris,
}
FIELDS = ("table", "split", "train_rows", "test_rows", "columns", "flow", "kept", "kept_score", "loss")


def split(name: str, number: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return three quarters of the rows of a table, and the others."""
    options = {"scaled": False} if name == "diabetes" else {}
    frame = pd.DataFrame(TABLES[name](**options).data).rename(columns=lambda column: f"x{column}")
    frame = frame.round(4) if name == "wine" else frame  # one of its numbers is written as 9.899999
    order = np.random.default_rng(number).permutation(len(frame))
    first = len(frame) * 3 // 4
    return frame.iloc[order[:first]], frame.iloc[order[first:]]


def measure(name: str, number: int) -> dict[str, object]:
    """Fit a split, and return the mean test score of each model and of the one that was kept, in nats."""
    train, test = split(name, number)
    models: list[Any] = []

    def remembered(*args: Any, **options: Any) -> Any:
        trained = train_rows(*args, **options)
        models.append(trained[0])
        return trained

    train_rows = fitting.train_rows
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(fitting, "train_rows", remembered):
        train.to_csv(f"{folder}/train.csv", index=False)
        done = fitting.fit_table(f"{folder}/train.csv", f"{folder}/run", seed=number, progress=False)
    rows = pa.Table.from_pandas(test, preserve_index=False)
    kept = float(done.fitted.score(rows).mean())
    scores = {model.name: float(replace(done.fitted, model=model).score(rows, "drop").mean()) for model in models}
    counts = {"train_rows": len(train), "test_rows": len(test)}
    found = {"kept": done.fitted.model.name, "kept_score": kept, "loss": max(scores.values()) - kept}
    return {"table": name, "split": number, **counts, **scores, **found}


def missing(path: Path) -> Iterator[tuple[str, int]]:
    done = {(line["table"], int(line["split"])) for line in csv.DictReader(path.open())} if path.exists() else set()
    return ((name, number) for name in TABLES for number in range(SPLITS) if (name, number) not in done)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=CSV)
    path = parser.parse_args().output
    for name, number in missing(path):
        line = measure(name, number)
        new = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            if new:
                writer.writeheader()
            writer.writerow(line)
        print(line, flush=True)
    lines = list(csv.DictReader(path.open()))
    for name in TABLES:
        losses = [float(line["loss"]) for line in lines if line["table"] == name]
        print(f"{name}: kept {statistics.mean(losses):.2f} nats below the better model, mean of {len(losses)} splits")


if __name__ == "__main__":
    main()
