"""Kill a run at every filesystem operation and at random moments, and check that it can continue.

A worker counts the operations that Python reports to its audit hooks, and exits without clean-up just before a given
operation. After each kill, one copy of the folder is resumed and another one is overwritten. Both must end with the
weights and the files of a run that was never killed.
"""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import torch
from tests.helpers.counts import Counts
from tests.helpers.forks import KILLED, die_at, forked

import cubicflow as cf
from cubicflow.flows.serialization import read_tensors
from cubicflow.training import fit
from cubicflow.training.run_folder import check_folder

BEGUN = ("new", "overwrite", "resume")
LEFT = ["config.json", "metrics.jsonl", "model.safetensors"]


def train(run: Path, steps: int, **flags: bool) -> None:
    check_folder(run, may_exist=any(flags.values()))  # the command line does this before it reads a table
    torch.manual_seed(5)
    flow = cf.flows.tabular(2, num_layers=1, hidden_features=4, num_blocks=1, num_bins=4, dropout=0.1)
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    settings = {"steps": steps, "batch_size": 20, "validate_every": 2, "patience": 0, "checkpoint_seconds": 0.0}
    fit(flow, x, run=run, progress=False, **settings, **flags)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Scene:
    """The folders of one kind of run: complete, before a kill, and after a kill."""

    def __init__(self, folder: Path, begun: str, steps: int) -> None:
        folder.mkdir(parents=True)
        self.whole, self.start, self.killed, self.again = (
            folder / name for name in ("whole", "start", "killed", "again")
        )
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

    def kill(self, prepare: Callable[[], None]) -> int:
        """Start a run that kills itself, and return its exit status."""
        shutil.rmtree(self.killed, ignore_errors=True)
        if self.start.exists():
            shutil.copytree(self.start, self.killed)

        def work() -> None:
            prepare()
            train(self.killed, self.steps, **self.flags)

        return forked(work).status

    def go_on(self, counts: Counts, what: str) -> None:
        """Resume one copy of the folder, overwrite another one, and compare both with the complete run."""
        for flag in ("resume", "overwrite"):
            shutil.rmtree(self.again, ignore_errors=True)
            if self.killed.exists():
                shutil.copytree(self.killed, self.again)
            ended = forked(lambda flag=flag: train(self.again, self.steps, **{flag: True}))
            if ended.status:
                counts.fail(f"{what}: {flag} refused, {names(self.killed)}: {ended.errors[-300:]}")
                continue
            tensors = read_tensors(self.again / "model.safetensors", None)
            if not all(torch.equal(tensors[name], self.expected[name]) for name in self.expected):
                counts.fail(f"{what}: {flag} ends with other weights")
            if names(self.again) != LEFT:
                counts.fail(f"{what}: {flag} leaves {names(self.again)}")


def kill_everywhere(folder: Path, begun: str, steps: int) -> Counts:
    """Kill a run at every operation. The run starts in a new folder, or overwrites or resumes a folder."""
    scene, counts = Scene(folder, begun, steps), Counts()
    for operation in range(10_000):
        status = scene.kill(lambda at=operation: die_at(at, scene.killed))
        if status != KILLED:
            if status:
                counts.fail(f"{begun}: ends with status {status} where nobody kills it")
            break
        scene.go_on(counts, f"{begun}, killed at operation {operation}")
        counts.add("killed at an operation")
    return counts


def kill_at_random(folder: Path, begun: str, steps: int, number: int, rng: random.Random) -> Counts:
    """Kill a run at random moments."""
    scene, counts = Scene(folder, begun, steps), Counts()
    longest = 1.5 * scene.seconds
    while counts.total() < number:
        moment = rng.uniform(0.001, longest)

        def alarm(moment: float = moment) -> None:
            signal.setitimer(signal.ITIMER_REAL, moment)  # without a handler, the signal ends the process at once

        status = scene.kill(alarm)
        if status == -signal.SIGALRM:
            scene.go_on(counts, f"{begun}, killed after {moment:.4f} seconds")
            counts.add("killed at a random moment")
        elif status == 0:  # the run ended before the kill
            longest = max(0.9 * longest, 0.01)
        else:
            counts.fail(f"{begun}: ends with status {status} within {moment:.4f} seconds")
    return counts


def attack(folder: Path, number: int, seed: int = 0) -> Counts:
    """Kill runs at least ``number`` times: at every operation of ever longer runs, and a third at random moments."""
    counts, rng, steps = Counts(), random.Random(seed), 2
    while counts.total() < number:
        for begun in BEGUN:
            counts.join(kill_everywhere(folder / f"{begun}-{steps}", begun, steps))
            shutil.rmtree(folder / f"{begun}-{steps}")
            few = max(counts.total() // 2 - counts["killed at a random moment"], 0)
            at_random = min(few, number - counts.total(), 50)
            if at_random > 0:
                counts.join(kill_at_random(folder / f"random-{begun}-{steps}", begun, steps, at_random, rng))
                shutil.rmtree(folder / f"random-{begun}-{steps}")
            if counts.total() >= number:
                break
        steps += 2
    return counts
