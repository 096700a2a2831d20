"""Kill workers of a Ray cluster with SIGKILL during jobs, and compare the output byte by byte with a local run."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from tests.clusters.ray_workers import actors_below, cluster
from tests.helpers.counts import Counts

from cubicflow.clusters import sample_files, score_files
from cubicflow.tables import FittedTable, fit_table

ROWS = 4_000
BLOCK_ROWS = 40
PATIENCE = 300  # seconds to wait for a worker


class Killer(threading.Thread):
    """A thread that kills a worker of this process's cluster each time a given number of parts is written."""

    def __init__(self, folder: Path, moments: list[int]) -> None:
        super().__init__(daemon=True)
        self.folder, self.moments, self.killed = folder, moments, 0

    def run(self) -> None:
        for moment in self.moments:
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                if len(list(self.folder.glob("part-*"))) >= moment and (actors := actors_below(os.getpid())):
                    os.kill(random.choice(actors), signal.SIGKILL)
                    self.killed += 1
                    break
                time.sleep(0.002)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith("_")}


def attack(folder: Path, number: int, seed: int = 0) -> Counts:
    """Kill workers at least ``number`` times, alternating between scoring and sampling with two workers."""
    counts, rng = Counts(), random.Random(seed)
    values = np.random.default_rng(0)
    kind = values.choice(["ash", "oak", "elm"], ROWS)
    rows = pa.table({"kind": kind, "size": np.round(values.gamma(2.0, 2.0, ROWS) + (kind == "oak"), 1)})
    parquet.write_table(rows, folder / "rows.parquet", row_group_size=300)
    fit_table(folder / "rows.parquet", folder / "run", None, {"hidden_features": 8}, steps=20, progress=False)
    model = FittedTable.load(folder / "run", "cpu")

    def work(task: str, out: Path, engine: str) -> None:
        how = {"block_rows": BLOCK_ROWS, "engine": engine, "workers": 2}
        if task == "score":
            score_files(model, str(folder / "rows.parquet"), str(out), **how)
        else:
            sample_files(model, ROWS, str(out), seed=1, **how)

    for task in ("score", "sample"):
        work(task, folder / task, "local")
    with cluster(cpus=2):
        while counts.total() < number:
            for task in ("score", "sample"):
                out = folder / "killed"
                shutil.rmtree(out, ignore_errors=True)
                killer = Killer(out, sorted(rng.sample(range(1, ROWS // BLOCK_ROWS - 10), 3)))
                killer.start()
                work(task, out, "ray")
                for _ in range(killer.killed):
                    counts.add(f"workers killed in the middle of a {task}")
                if content(out) != content(folder / task):
                    counts.fail(f"{task}: other parts after {killer.killed} kills")
    return counts
