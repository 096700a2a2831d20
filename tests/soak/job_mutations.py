"""Hostile job folders. Whatever a folder contains, a job in it works, or fails with a one-line error.

Each attempt changes a finished job folder, and runs the job on it, with ``--resume``, ``--overwrite`` or neither. A job
that works must leave the rows of the honest job. Then ``--overwrite`` must work, unless a file that no job wrote is in
the way. No file outside the folder may change.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from tests.helpers.counts import Counts
from tests.helpers.forks import Ended, command, forked, warm_up
from tests.soak.hostile_values import as_text, changed, damaged, hostile
from tests.soak.job_kills import BLOCK_ROWS, ROWS, Jobs
from tests.soak.mutations import verdict

from cubicflow.clusters.job_folder import JOB, LOCK, SKIPPED, part_name
from cubicflow.files import locked

PARTS = [part_name(i) for i in range(-(-ROWS // BLOCK_ROWS))]
BEYOND = [part_name(77), "part-000000001.parquet", "part-99999999999999999999.parquet"]
BESIDE = ["mine.parquet", "part-1.parquet", ".part-00000000.parquet.bak", "_job.json.old", "part-00000000.parquet.gz"]
TEMPORARY = [f".{name}.0123456789abcdef" for name in (JOB, PARTS[0], SKIPPED)]
FLAGS = ((), ("--resume",), ("--resume",), ("--overwrite",))


class Attempt:
    """A copy of a finished job folder, to be changed by one of the methods below."""

    def __init__(self, folder: Path, whole: Path, other: Path, outside: Path, rng: random.Random) -> None:
        self.folder, self.other, self.outside, self.rng = folder, other, outside, rng
        shutil.copytree(whole, folder)
        self.part = folder / rng.choice(PARTS)

    def remove(self, name: str) -> Path:
        path = self.folder / name
        path.unlink(missing_ok=True)
        return path

    # Each method returns whether --overwrite must be refused, because a file that no job wrote is in the way.

    def pipe(self) -> bool:
        name = self.rng.choice([JOB, *PARTS, SKIPPED, LOCK, *BEYOND, *BESIDE, *TEMPORARY])
        os.mkfifo(self.remove(name))
        return name == LOCK or name in BESIDE

    def subfolder(self) -> bool:
        name = self.rng.choice([JOB, *PARTS, SKIPPED, LOCK, *BEYOND, *BESIDE])
        self.remove(name).mkdir()
        return True

    def link(self) -> bool:
        name = self.rng.choice([JOB, *PARTS, SKIPPED, LOCK, *BEYOND, *BESIDE, *TEMPORARY])
        target = self.rng.choice([self.outside, self.other / PARTS[0], Path("/dev/zero"), self.folder / "nowhere"])
        self.remove(name).symlink_to(target)
        return name == LOCK or name in BESIDE

    def description(self) -> bool:
        path = self.folder / JOB
        content = path.read_bytes()
        match self.rng.randrange(5):
            case 0:
                path.write_bytes(b"[" * 200_000 + b"]" * 200_000)
            case 1:
                path.write_bytes(damaged(content, self.rng))
            case 2:
                path.write_bytes(as_text(hostile(self.rng)))
            case 3:
                path.write_bytes((self.other / JOB).read_bytes())
            case _:
                path.write_bytes(as_text(changed(json.loads(content), self.rng)))
        return False

    def renamed_part(self) -> bool:
        target = self.rng.choice([*PARTS, *BEYOND])
        self.part.rename(self.folder / target)
        return False

    def another_name_of_a_part(self) -> bool:
        name = self.rng.choice([*BEYOND, *BESIDE, *TEMPORARY])
        shutil.copy(self.part, self.folder / name)
        return name in BESIDE

    def truncated_part(self) -> bool:
        content = self.part.read_bytes()
        self.part.write_bytes(content[: self.rng.choice([0, 4, 12, self.rng.randrange(len(content))])])
        return False

    def damaged_footer(self) -> bool:
        content = bytearray(self.part.read_bytes())
        start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        for _ in range(self.rng.choice([1, 1, 10])):
            content[self.rng.randrange(start, len(content))] = self.rng.randrange(256)
        self.part.write_bytes(bytes(content))
        return False

    def part_of_another_job(self) -> bool:
        shutil.copy(self.other / self.rng.choice(PARTS), self.part)
        return False

    def foreign_part(self) -> bool:
        table = pa.table({"a": list(range(self.rng.choice([0, 1, BLOCK_ROWS])))})
        parquet.write_table(table, self.part)
        return False

    def other_footer(self) -> bool:
        rows = parquet.read_table(self.part)
        about = dict(rows.schema.metadata)
        key = self.rng.choice([b"cubicflow.block", b"cubicflow.job"])
        match self.rng.randrange(3):
            case 0:
                del about[key]
            case 1:
                about[key] = as_text(hostile(self.rng))
            case _:
                about[key] = as_text(changed(json.loads(about[b"cubicflow.block"]), self.rng))
        parquet.write_table(rows.replace_schema_metadata(about), self.part)
        return False

    def other_rows(self) -> bool:
        rows = parquet.read_table(self.part)
        parquet.write_table(self.rng.choice([rows[:-1], rows[:0], pa.concat_tables([rows, rows])]), self.part)
        return False

    def missing_files(self) -> bool:
        names = self.rng.sample([JOB, *PARTS], self.rng.choice([1, 2, len(PARTS)]))
        for name in names:
            self.remove(name)
        return JOB in names  # parts without a job belong to somebody else

    def foreign_file(self) -> bool:
        (self.folder / self.rng.choice(BESIDE)).write_bytes(b"mine")
        return True

    def temporary_file(self) -> bool:
        (self.folder / self.rng.choice(TEMPORARY)).write_bytes(b"half")
        return False

    def old_lock(self) -> bool:
        (self.folder / LOCK).write_bytes(self.rng.choice([b"", b"process 7 on elsewhere\n", b"\xff" * 1000]))
        return False


CHANGES: list[Callable[[Attempt], bool]] = [
    Attempt.pipe,
    Attempt.subfolder,
    Attempt.link,
    *[Attempt.description] * 3,
    *[Attempt.renamed_part] * 2,
    Attempt.another_name_of_a_part,
    *[Attempt.truncated_part] * 2,
    Attempt.damaged_footer,
    Attempt.part_of_another_job,
    Attempt.foreign_part,
    *[Attempt.other_footer] * 2,
    Attempt.other_rows,
    Attempt.missing_files,
    Attempt.foreign_file,
    Attempt.temporary_file,
    Attempt.old_lock,
]


class Hostile:
    """An honest job, another job, and attempts on copies of the honest one."""

    def __init__(self, folder: Path, seed: int) -> None:
        jobs = Jobs(folder)
        self.folder, self.seed = folder, seed
        self.whole, self.other, self.outside = folder / "whole", folder / "other", folder / "thesis.tex"
        self.arguments = ("sample", folder / "run", "-n", ROWS, "--engine", "local", "--block-rows", BLOCK_ROWS)
        self.arguments = (*self.arguments, "--seed", 1, "--workers", 1)
        warm_up([(*self.arguments, "-o", self.whole)])
        jobs.do("sample", self.other, seed=2)
        self.rows = parquet.read_table(self.whole)
        self.outside.write_text("years of work")
        ended = forked(lambda: command(*self.arguments, "-o", folder / "honest"))
        assert ended.status == 0, ended.errors
        self.memory = ended.memory

    def job(self, out: Path, *flags: str) -> Ended:
        return forked(lambda: command(*self.arguments, "-o", out, *flags))

    def fault(self, out: Path, ended: Ended) -> str | None:
        """Return the fault of a job's end, or None."""
        if wrong := verdict(ended, self.memory):
            return wrong
        if ended.status == 0 and not self.has_the_rows(out):
            return "ends with other rows"
        if self.outside.read_text() != "years of work" or not self.rows_of_the_other():
            return "changes a file outside"
        return None

    def has_the_rows(self, out: Path) -> bool:
        try:
            return bool(parquet.read_table(out).equals(self.rows))
        except (pa.ArrowException, OSError):
            return False

    def rows_of_the_other(self) -> bool:
        return sorted(path.name for path in self.other.iterdir()) == [JOB, *PARTS]

    def attempt(self, number: int, counts: Counts) -> None:
        rng = random.Random(f"{self.seed} {number}")
        out = self.folder / f"attempt-{number}"
        change, flags = rng.choice(CHANGES), rng.choice(FLAGS)
        refused = change(Attempt(out, self.whole, self.other, self.outside, rng))
        what = f"attempt {number} (seed {self.seed}), {change.__name__}, {' '.join(flags) or 'plain'}"
        ended = self.job(out, *flags)
        if wrong := self.fault(out, ended):
            counts.fail(f"{what}: {wrong}")
        again = self.job(out, "--overwrite")
        if wrong := self.fault(out, again):
            counts.fail(f"{what}, then --overwrite: {wrong}")
        elif again.status and not refused:
            counts.fail(f"{what}, then --overwrite: refused: {again.errors[-300:]}")
        counts.add("refused" if ended.status == 2 else "worked" if ended.status == 0 else "failed")
        shutil.rmtree(out)

    def two_at_once(self, number: int, counts: Counts) -> None:
        """Start the job while another process holds the folder, and once more when that process is gone."""
        rng = random.Random(f"{self.seed} {number}")
        out, flags = self.folder / f"attempt-{number}", rng.choice(FLAGS)
        shutil.copytree(self.whole, out)
        (out / rng.choice(PARTS)).unlink()
        before = sorted(path.name for path in out.iterdir())
        what = f"attempt {number} (seed {self.seed}), a second process, {' '.join(flags) or 'plain'}"
        with locked(out / LOCK):
            ended = self.job(out, *flags)
            left: Any = sorted(path.name for path in out.iterdir() if path.name != LOCK)
            if self.fault(out, ended) or ended.status != 2 or "is in use by" not in ended.errors or left != before:
                counts.fail(f"{what}: not refused: {ended.errors[-300:]}")
        (out / LOCK).write_text("a process that is gone\n")
        again = self.job(out, "--resume")
        if again.status or not self.has_the_rows(out):
            counts.fail(f"{what}: cannot go on: {again.errors[-300:]}")
        counts.add("refused")
        shutil.rmtree(out)


def attack(folder: Path, number: int, seed: int = 0, first: int = 0) -> Counts:
    """Try ``number`` hostile folders. The seed and the attempt's number, from ``first`` on, determine each."""
    counts, jobs = Counts(), Hostile(folder, seed)
    for i in range(first, first + number):
        if i % 20 == 19:
            jobs.two_at_once(i, counts)
        else:
            jobs.attempt(i, counts)
    return counts
