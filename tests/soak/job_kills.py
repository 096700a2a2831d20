"""Kill jobs at every filesystem operation and at random moments, and check that they can continue.

After each kill, one copy of the folder is resumed and another one is overwritten. Both must end with the bytes of a job
that was never killed.
"""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from tests.helpers.counts import Counts
from tests.helpers.forks import forked
from tests.soak.killing import Scene, kill_all

from cubicflow.clusters import sample_files, score_files
from cubicflow.clusters.job_folder import JOB
from cubicflow.tables import FittedTable, fit_table

ROWS, BLOCK_ROWS = 100, 30
BEGUN = ("new", "overwrite", "resume")
TASKS = ("score", "sample")
Contents = dict[str, bytes]


def contents(folder: Path) -> Contents:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


class Jobs:
    """A fitted model, and the jobs that are done with it. Row 50 of the scored table is bad, and is skipped."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(0)
        kind = rng.choice(["ash", "oak"], ROWS)
        rows = pa.table({"kind": kind, "size": np.round(rng.gamma(2.0, 2.0, ROWS), 1)})
        parquet.write_table(rows, folder / "rows.parquet")
        settings = {"hidden_features": 8, "num_blocks": 1}
        fit_table(folder / "rows.parquet", folder / "run", None, settings, steps=10, progress=False)
        self.model = FittedTable.load(folder / "run", "cpu")
        sizes = rows.column("size").to_pylist()
        sizes[50] = float("inf")
        self.table = folder / "bad.parquet"
        parquet.write_table(rows.set_column(1, "size", pa.array(sizes)), self.table)

    def do(self, task: str, out: Path, seed: int = 1, **how: Any) -> None:
        """Do a job. Another ``seed`` makes another job."""
        how |= {"block_rows": BLOCK_ROWS, "workers": 1}
        if task == "score":
            score_files(self.model, str(self.table), str(out), observed_only=seed == 2, on_error="skip", **how)
        else:
            sample_files(self.model, ROWS, str(out), seed=seed, **how)


class JobScene(Scene):
    """A job in a new folder, or one that overwrites or resumes a folder."""

    def __init__(self, jobs: Jobs, folder: Path, task: str, begun: str) -> None:
        folder.mkdir()
        self.jobs, self.task, self.begun = jobs, task, begun
        self.name = f"{task}, {begun}"
        whole, self.start, self.folder, self.again = (folder / name for name in ("whole", "start", "killed", "again"))
        started = time.monotonic()
        ended = forked(lambda: jobs.do(task, whole))
        self.seconds = time.monotonic() - started
        assert ended.status == 0, ended.errors
        self.expected = contents(whole)
        if begun == "overwrite":
            jobs.do(task, self.start, seed=2)
        elif begun == "resume":
            shutil.copytree(whole, self.start)
            for name in list(self.expected)[2:]:
                (self.start / name).unlink()

    def prepare(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.start.exists():
            shutil.copytree(self.start, self.folder)

    def work(self) -> None:
        self.jobs.do(self.task, self.folder, **({} if self.begun == "new" else {self.begun: True}))

    def is_whole(self) -> bool:
        return contents(self.folder) == self.expected

    def check(self, counts: Counts, what: str) -> None:
        """Resume one copy of the folder, and overwrite another one. Both must equal the complete job."""
        for flag in ("resume", "overwrite"):
            shutil.rmtree(self.again, ignore_errors=True)
            if self.folder.exists():
                shutil.copytree(self.folder, self.again)
            ended = forked(lambda flag=flag: self.jobs.do(self.task, self.again, **{flag: True}))
            if not ended.status:
                if contents(self.again) != self.expected:
                    counts.fail(f"{what}: {flag} ends with other bytes, {sorted(contents(self.again))}")
            elif flag == "overwrite" or not self._holds_the_old_job(ended.errors):
                counts.fail(f"{what}: {flag} refused, {sorted(contents(self.folder))}: {ended.errors[-300:]}")

    def _holds_the_old_job(self, errors: str) -> bool:
        """Return whether the job that was to be overwritten is still in the folder, and is refused for that reason."""
        if self.begun != "overwrite" or "holds another job, with " not in errors:
            return False
        return (self.folder / JOB).read_bytes() == (self.start / JOB).read_bytes()


def attack(folder: Path, number: int, seed: int = 0) -> Counts:
    """Kill jobs at least ``number`` times."""
    jobs = Jobs(folder)
    scenes = [JobScene(jobs, folder / f"{task}-{begun}", task, begun) for task in TASKS for begun in BEGUN]
    return kill_all(scenes, number, random.Random(seed))
