"""Full disks, at every fill level: the error is clear, no partial file has a final name, and the run can continue.

A limit on the size of one file (RLIMIT_FSIZE) in a forked worker simulates the full disk: a write beyond it fails.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
from pathlib import Path

import torch
from tests.helpers.counts import Counts
from tests.helpers.forks import command, forked
from tests.soak.kills import LEFT, names, train
from tests.soak.victims import Victim

from cubicflow.flows.serialization import read_tensors
from cubicflow.training import RunFolderError

STEPS = 4
LEVELS = 40


def limit(size: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # messages would hit the limit too; the exit status is enough
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def fits(folder: Path, counts: Counts) -> None:
    whole, full = folder / "whole", folder / "full"
    assert forked(lambda: train(whole, STEPS)).status == 0
    expected = read_tensors(whole / "model.safetensors", None)
    largest = 6 * max(file.stat().st_size for file in whole.iterdir())
    for level in range(LEVELS):
        size = largest * level // LEVELS

        def on_a_full_disk(size: int = size) -> None:
            limit(size)
            try:
                train(full, STEPS)
            except RunFolderError:
                raise SystemExit(2) from None

        shutil.rmtree(full, ignore_errors=True)
        ended = forked(on_a_full_disk)
        if ended.status not in (0, 2):
            counts.fail(f"a fit with room for files of {size:,} bytes: {ended.errors[-300:]}")
        counts.add("fits that were refused" if ended.status else "fits that had room")
        ended = forked(lambda: train(full, STEPS, resume=True))
        if ended.status:
            counts.fail(f"a fit with room for files of {size:,} bytes cannot go on: {ended.errors[-300:]}")
            continue
        tensors = read_tensors(full / "model.safetensors", None)
        if names(full) != LEFT or not all(torch.equal(tensors[name], expected[name]) for name in expected):
            counts.fail(f"a fit with room for files of {size:,} bytes ends with other weights or {names(full)}")


def samples(victims: list[Victim], folder: Path, counts: Counts) -> None:
    for victim in [victim for victim in victims if victim.finished]:
        for ending in ("csv", "parquet"):
            for size in (0, 1, 100, 1000, 4000):
                output = folder / f"samples.{ending}"
                output.unlink(missing_ok=True)

                def on_a_full_disk(size: int = size, output: Path = output, run: Path = victim.run) -> None:
                    limit(size)
                    command("sample", run, "-n", 5000, "-o", output)

                ended = forked(on_a_full_disk)
                if ended.status != 2 or "Traceback" in ended.errors or output.exists():
                    counts.fail(
                        f"samples of {victim.name} as {ending} with room for {size} bytes: {ended.errors[-300:]}"
                    )
                counts.add("outputs that were refused")


def attack(victims: list[Victim], folder: Path) -> Counts:
    counts = Counts()
    fits(folder, counts)
    samples(victims, folder, counts)
    return counts
