"""Kill a run at every filesystem operation and at random moments, and check that it can continue.

After each kill, one copy of the folder is resumed and another one is overwritten. Both must end with the
weights and the files of a run that was never killed.
"""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import torch
from tests.helpers.counts import Counts
from tests.helpers.forks import KILLED, die_at, forked
from tests.soak.killing import Scene

import cubicflow as cf
from cubicflow.flows.serialization import read_tensors
from cubicflow.training import fit
from cubicflow.training.run_folder import RunFolder

BEGUN = ("new", "overwrite", "resume")
LEFT = ["config.json", "metrics.jsonl", "model.safetensors"]


def train(run: Path, steps: int, **flags: bool) -> None:
    RunFolder(run).check(**flags)  # the command line does this before it reads a table
    torch.manual_seed(5)
    flow = cf.flows.tabular(2, num_layers=1, hidden_features=4, num_blocks=1, num_bins=4, dropout=0.1)
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    settings = {"steps": steps, "batch_size": 20, "validate_every": 2, "patience": 0, "checkpoint_seconds": 0.0}
    fit(flow, x, run=run, progress=False, **settings, **flags)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class FitScene(Scene):
    """The folders of one kind of run: complete, before a kill, and after a kill."""

    def __init__(self, folder: Path, begun: str, steps: int) -> None:
        folder.mkdir(parents=True)
        self.whole, self.start, self.folder, self.again = (
            folder / name for name in ("whole", "start", "killed", "again")
        )
        self.name = begun
        self.steps, self.flags = steps, {} if begun == "new" else {begun: True}
        started = time.monotonic()
        ended = forked(lambda: train(self.whole, steps))
        self.seconds = time.monotonic() - started
        assert ended.status == 0, ended.errors
        self.expected = read_tensors(self.whole / "model.safetensors", None)
        if begun == "overwrite":
            shutil.copytree(self.whole, self.start)
        elif begun == "resume":  # a run interrupted after some steps
            self._interrupt()

    def _interrupt(self) -> None:
        def partly(saves: int) -> None:
            die_at(saves, self.start)
            train(self.start, self.steps)

        for operation in range(1000):
            shutil.rmtree(self.start, ignore_errors=True)
            assert forked(lambda at=operation: partly(at)).status == KILLED
            if (self.start / "checkpoint-previous.safetensors").exists():
                return

    def prepare(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.start.exists():
            shutil.copytree(self.start, self.folder)

    def work(self) -> None:
        train(self.folder, self.steps, **self.flags)

    def is_whole(self) -> bool:
        return names(self.folder) == LEFT

    def check(self, counts: Counts, what: str) -> None:
        """Resume one copy of the folder, overwrite another one, and compare both with the complete run."""
        for flag in ("resume", "overwrite"):
            shutil.rmtree(self.again, ignore_errors=True)
            if self.folder.exists():
                shutil.copytree(self.folder, self.again)
            ended = forked(lambda flag=flag: train(self.again, self.steps, **{flag: True}))
            if ended.status:
                counts.fail(f"{what}: {flag} refused, {names(self.folder)}: {ended.errors[-300:]}")
                continue
            tensors = read_tensors(self.again / "model.safetensors", None)
            if not all(torch.equal(tensors[name], self.expected[name]) for name in self.expected):
                counts.fail(f"{what}: {flag} ends with other weights")
            if names(self.again) != LEFT:
                counts.fail(f"{what}: {flag} leaves {names(self.again)}")


def attack(folder: Path, number: int, seed: int = 0) -> Counts:
    """Kill runs at least ``number`` times: at every operation of ever longer runs, and a third at random moments."""
    counts, rng, steps = Counts(), random.Random(seed), 2
    while counts.total() < number:
        for begun in BEGUN:
            counts.join(FitScene(folder / f"{begun}-{steps}", begun, steps).kill_everywhere())
            shutil.rmtree(folder / f"{begun}-{steps}")
            few = max(counts.total() // 2 - counts["killed at a random moment"], 0)
            at_random = min(few, number - counts.total(), 50)
            if at_random > 0:
                scene = FitScene(folder / f"random-{begun}-{steps}", begun, steps)
                counts.join(scene.kill_at_random(at_random, rng))
                shutil.rmtree(folder / f"random-{begun}-{steps}")
            if counts.total() >= number:
                break
        steps += 2
    return counts
