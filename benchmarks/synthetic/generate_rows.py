"""Fit one table generator to a file of training rows, and write as many sampled rows. This script imports no other file
of the project, because it runs in an environment with the generator's package:

    python generate_rows.py MODEL FOLDER [--seconds 900] [--steps 10000]

FOLDER holds train.csv, test.csv and table.json, which lists the columns of words. The script writes the samples to
MODEL.csv. It writes the settings, the times and, if the generator has one, the log probability of test rows to
MODEL.json.

Every generator has its package's defaults. Two settings of the packages limit the training time: ``epochs`` of SDV's
networks, for at most --steps steps of 500 rows, and ``max_training_time`` of mostlyai-engine.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import random
import resource
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

EPOCHS, BATCH = 300, 500  # SDV's defaults
PACKAGES = ("cubicflow", "sdv", "ctgan", "copulas", "mostlyai-engine", "torch", "numpy", "pandas", "pyarrow")

OWN_SETTINGS = ("core", "hidden_features", "token_features", "num_blocks", "num_bins", "dropout", "cell_dropout")

Sample = Callable[[int], Any]  # number of rows -> frame
LogMass = Callable[[], dict[str, Any]] | None  # log probability of the test rows
Fitted = tuple[Sample, LogMass, dict[str, Any]]  # the dict holds the settings


def read_table(path: Path, words: list[str]) -> Any:
    """Return a CSV file as a frame, with words as text and other columns as pandas infers them."""
    import pandas as pd

    rows = pd.read_csv(path, dtype=dict.fromkeys(words, "object"), keep_default_na=False, na_values=["", "NA"])
    for name in words:  # a gap among words is None, not NaN
        rows[name] = rows[name].astype(object).where(rows[name].notna(), None)
    return rows


def epochs_within(steps: int, rows: int) -> int:
    """Return SDV's default number of epochs, or fewer if they would exceed ``steps`` steps.

    >>> epochs_within(10_000, 300), epochs_within(10_000, 50_000)
    (300, 100)
    """
    return max(min(EPOCHS, steps // -(-rows // BATCH)), 1)


def sdv_generator(model: str, rows: Any, words: list[str], steps: int) -> Fitted:
    from sdv.metadata import Metadata
    from sdv.single_table import CTGANSynthesizer, GaussianCopulaSynthesizer, TVAESynthesizer

    columns = {name: {"sdtype": "categorical" if name in words else "numerical"} for name in rows.columns}
    metadata = Metadata.load_from_dict({"tables": {"table": {"columns": columns}}})
    chosen: dict[str, Any] = {}
    if model == "sdv-gaussian-copula":
        generator = GaussianCopulaSynthesizer(metadata)
    else:
        chosen = {"epochs": epochs_within(steps, len(rows)), "enable_gpu": False}
        generator = (TVAESynthesizer if model == "sdv-tvae" else CTGANSynthesizer)(metadata, **chosen)
    generator.fit({"table": rows})

    def sample(n: int) -> Any:
        drawn = generator.sample(num_rows=n)
        return drawn["table"] if isinstance(drawn, dict) else drawn

    return sample, None, chosen


def mostly_generator(rows: Any, test: Any, words: list[str], seconds: float) -> Fitted:
    from mostlyai.engine import TabularARGN

    kinds = {name: "TABULAR_CATEGORICAL" if name in words else "TABULAR_NUMERIC_AUTO" for name in rows.columns}
    chosen: dict[str, Any] = {"max_training_time": seconds / 60}
    generator = TabularARGN(tgt_encoding_types=kinds, device="cpu", random_state=0, **chosen)
    generator.fit(X=rows)

    def log_mass() -> dict[str, Any]:
        found = np.asarray(generator.log_prob(test), np.float64)
        return {**mean_of(found), "of": "the codes that its encoding makes of a row"}

    def sample(n: int) -> Any:
        return generator.sample(n_samples=n)

    return sample, log_mass, chosen


def own_generator(train: Path, test: Path, run: Path) -> Fitted:
    from cubicflow.tables import fit_table, open_table
    from cubicflow.tables.run.scored_parts import score_parts

    result = fit_table(train, run, overwrite=True, say=print)
    config, training = result.fitted.flow.config(), asdict(result.fit.config)
    chosen = {name: config[name] for name in OWN_SETTINGS if name in config} | {"training": training}
    chosen |= {"steps": result.fit.steps, "stopped": result.fit.stopped}

    def log_mass() -> dict[str, Any]:
        scored = score_parts(result.fitted, open_table(test)).whole
        found = {"mean": scored.model.mean, "error": scored.model.error, "rows": scored.model.rows}
        return {**found, "independent": scored.independent and scored.independent.mean, "of": "the cells of a row"}

    def sample(n: int) -> Any:
        return result.fitted.sample(n, seed=0)

    return sample, log_mass, chosen


def mean_of(scores: Any) -> dict[str, Any]:
    """Return the mean over rows, twice its standard error, and the number of rows."""
    error = 2 * float(scores.std(ddof=1)) / len(scores) ** 0.5
    return {"mean": float(scores.mean()), "error": error, "rows": len(scores)}


def write_rows(rows: Any, path: Path) -> None:
    """Write a pandas frame or an Arrow table as CSV."""
    if hasattr(rows, "to_csv"):
        rows.to_csv(path, index=False)
        return
    import pyarrow.csv

    pyarrow.csv.write_csv(rows, path)


def processor_seconds() -> float:
    """Return the processor seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def versions() -> dict[str, str]:
    """Return the versions of the installed packages in PACKAGES."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--steps", type=int, default=10_000)
    arguments = parser.parse_args()
    model, folder = arguments.model, arguments.folder
    words = json.loads((folder / "table.json").read_text())["words"]
    rows, test = (read_table(folder / f"{part}.csv", words) for part in ("train", "test"))
    import torch

    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the peers draw from NumPy's global generator
    torch.manual_seed(0)
    marks = [(time.monotonic(), processor_seconds())]
    if model == "cubicflow":
        sample, log_mass, chosen = own_generator(folder / "train.csv", folder / "test.csv", folder / "cubicflow.run")
    elif model.startswith("sdv-"):
        sample, log_mass, chosen = sdv_generator(model, rows, words, arguments.steps)
    else:
        sample, log_mass, chosen = mostly_generator(rows, test, words, arguments.seconds)
    marks.append((time.monotonic(), processor_seconds()))
    write_rows(sample(len(rows)), folder / f"{model}.csv")
    marks.append((time.monotonic(), processor_seconds()))
    fitting, sampling = (
        {"wall": round(after[0] - before[0], 1), "processor": round(after[1] - before[1], 1)}
        for before, after in pairwise(marks)
    )
    about = {
        "settings": chosen,
        "seconds": {"fit": fitting, "sample": sampling},
        "log_mass": None if log_mass is None else log_mass(),
        "versions": versions(),
        "threads": torch.get_num_threads(),
    }
    (folder / f"{model}.json").write_text(json.dumps(about, indent=1))


if __name__ == "__main__":
    main()
