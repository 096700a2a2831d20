"""Kill a run at every filesystem operation, and see that it can go on: python kill_everywhere.py FOLDER BEGUN.

A process that imported everything forks the workers, so that one of them takes a few hundredths of a second. A worker
counts the operations that Python reports to its audit hooks, and ends without any clean-up just before the one it was
told. Prints one line of JSON: how many kills landed, and what could not go on.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import cubicflow as cf
from cubicflow.flows.serialization import read_tensors
from cubicflow.training import fit
from cubicflow.training.run_folder import check_folder

KILLED = 9
OPERATIONS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "fcntl.flock")
LEFT = ["config.json", "metrics.jsonl", "model.safetensors"]


def train(run: Path, steps: int, **flags: bool) -> None:
    check_folder(run, may_exist=any(flags.values()))  # as the command line does before it reads a table
    torch.manual_seed(5)
    flow = cf.flows.tabular(2, num_layers=1, hidden_features=4, num_blocks=1, num_bins=4, dropout=0.1)
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    settings = {"steps": steps, "batch_size": 20, "validate_every": 2, "patience": 0, "checkpoint_seconds": 0.0}
    fit(flow, x, run=run, progress=False, **settings, **flags)


def forked(work: Callable[[], None]) -> int:
    """The exit status of a process of its own that does the work."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except Exception as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_at(operation: int, folder: Path) -> None:
    """End this process just before an operation below the folder."""
    remaining = [operation]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in OPERATIONS:
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        if event != "fcntl.flock" and not str(arguments[0]).startswith(str(folder)):
            return
        if remaining[0] == 0:
            os._exit(KILLED)
        remaining[0] -= 1

    sys.addaudithook(hook)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def kill_everywhere(folder: Path, begun: str, steps: int) -> dict[str, Any]:
    """Kills at every operation of a run that begins in no folder, or overwrites or resumes what is there."""
    whole, start, killed, again = (folder / name for name in ("whole", "start", "killed", "again"))
    assert forked(lambda: train(whole, steps)) == 0
    expected = read_tensors(whole / "model.safetensors", None)
    if begun == "overwrite":
        shutil.copytree(whole, start)
    elif begun == "resume":  # after some steps

        def partly() -> None:
            die_at(operations // 2, start)
            train(start, steps)

        operations = count(lambda: train(folder / "counted", steps), folder / "counted")
        assert forked(partly) == KILLED
    flags = {} if begun == "new" else {begun: True}
    failures = []
    kills = 0
    while True:

        def die(kill: int = kills) -> None:
            die_at(kill, killed)
            train(killed, steps, **flags)

        shutil.rmtree(killed, ignore_errors=True)
        if start.exists():
            shutil.copytree(start, killed)
        status = forked(die)
        if status != KILLED:
            break
        for flag in ("resume", "overwrite"):
            shutil.rmtree(again, ignore_errors=True)
            if killed.exists():
                shutil.copytree(killed, again)
            if forked(lambda flag=flag: train(again, steps, **{flag: True})):
                failures.append(f"{flag} after kill {kills}: refused, {names(killed)}")
                continue
            tensors = read_tensors(again / "model.safetensors", None)
            if not all(torch.equal(tensors[name], expected[name]) for name in expected):
                failures.append(f"{flag} after kill {kills}: other weights")
            if names(again) != LEFT:
                failures.append(f"{flag} after kill {kills}: leaves {names(again)}")
        kills += 1
    return {"kills": kills, "status": status, "failures": failures}


def count(work: Callable[[], None], folder: Path) -> int:
    """How many operations the work takes."""
    operations = 0
    while True:
        shutil.rmtree(folder, ignore_errors=True)

        def die(at: int = operations) -> None:
            die_at(at, folder)
            work()

        if forked(die) != KILLED:
            return operations
        operations += 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    outcome = kill_everywhere(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    sys.stdout.write(json.dumps(outcome) + "\n")
