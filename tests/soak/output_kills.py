"""Kill commands that write several files, and check that old and new files never stand beside each other.

The command fills the gaps of a table three times. After each kill, every output is whole, old or new or missing, and
the same command then writes all of them.
"""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

from tests.helpers.counts import Counts
from tests.helpers.forks import command, forked, warm_up
from tests.soak.killing import Scene, kill_all
from tests.soak.victims import make_table

DRAWS = 3
ENDINGS = ("csv", "parquet")


class OutputScene(Scene):
    """A command, its outputs after an older command, and its outputs when nobody kills it."""

    def __init__(self, folder: Path, run: Path, table: Path, ending: str, *, there: bool) -> None:
        self.folder = folder
        self.names = [f"filled-{i:02}.{ending}" for i in range(1, DRAWS + 1)]
        self.arguments = ("impute", run, table, "-o", self.folder / f"filled.{ending}", "--draws", DRAWS, "--overwrite")
        self.name = f"{ending}, {'new' if not there else 'over older files'}"
        self.old: dict[str, bytes] = {}
        if there:
            self.old = self._written(seed=1)
        started = time.monotonic()
        self.new = self._written(seed=2)
        self.seconds = time.monotonic() - started

    def prepare(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        for name, content in self.old.items():
            (self.folder / name).write_bytes(content)

    def _written(self, seed: int) -> dict[str, bytes]:
        self.prepare()
        ended = forked(lambda: command(*self.arguments, "--seed", seed))
        assert ended.status == 0, ended.errors
        found = self.found()
        assert sorted(found) == self.names == sorted(path.name for path in self.folder.iterdir())
        return found

    def found(self) -> dict[str, bytes]:
        return {name: (self.folder / name).read_bytes() for name in self.names if (self.folder / name).exists()}

    def work(self) -> None:
        command(*self.arguments, "--seed", 2)

    def is_whole(self) -> bool:
        return self.found() == self.new

    def check(self, counts: Counts, what: str) -> None:
        found = self.found()
        if not any(found.items() <= whole.items() for whole in (self.old, self.new)):
            kinds = {
                name: "old" if content == self.old.get(name) else "new" if content == self.new[name] else "neither"
                for name, content in found.items()
            }
            counts.fail(f"{what}: leaves a mixture, {kinds}")
        ended = forked(self.work)
        if ended.status or not self.is_whole():
            counts.fail(f"{what}: the next command ends with {ended.status}: {ended.errors[-300:]}")


def attack(folder: Path, number: int, seed: int = 0) -> Counts:
    """Kill commands at least ``number`` times."""
    table, run = make_table(folder / "gaps.csv"), folder / "run"
    small = ("--steps", 6, "--hidden-features", 4, "--num-bins", 4, "--num-blocks", 1, "--device", "cpu")
    warm_up([("fit", table, "-o", run, "--model", "columns", *small), ("impute", run, table, "-o", folder / "w.csv")])
    kinds = [(ending, there) for ending in ENDINGS for there in (False, True)]
    scenes = [OutputScene(folder / f"{ending}-{there}", run, table, ending, there=there) for ending, there in kinds]
    return kill_all(scenes, number, random.Random(seed))
