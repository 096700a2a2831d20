"""The script that runs experiments on a lent machine: its commands, what it brings home, and a change of machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paper.cells import load_scores
from tests.helpers.command_line import Command

from .conftest import TINY_TABLE

ROOT = Path(__file__).parents[2]
# STUB replaces Python. It logs its arguments and fails for figure-3. A cell of the quadratic model has a checkpoint. It
# gets its record when the file GO exists.
STUB = """#!{python}
import os, pathlib, sys, time
arguments = " ".join(sys.argv[1:])
with open(os.environ["CALLS"], "a") as file:
    file.write(arguments + "\\n")
print("said by " + arguments, flush=True)
folder = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
run = folder / "cells" / sys.argv[-3] / "run"
if "table-1" in arguments:
    run.mkdir(parents=True, exist_ok=True)
    for name in ("checkpoint", "checkpoint-previous", "model"):
        (run / (name + ".safetensors")).write_bytes(name.encode() * 10_000)
    for name in ("lock", "config.json", "metrics.jsonl"):
        (run / name).write_text(name)
    (folder / "table-1.md").write_text("a part of the table")
    while "quadratic" in arguments and not os.path.exists(os.environ["GO"]):
        time.sleep(0.05)
    (run.parent / "record.json").touch()
sys.exit(3 if "figure-3" in arguments else 0)
"""


class Machine:
    """A machine with its own folder of runs, on which the script is called."""

    def __init__(self, folder: Path, name: str, python: Path | str, **environment: object) -> None:
        self.work, self.out = folder / name, folder / f"out-{name}"
        self.calls, self.go = folder / "calls", folder / "go"
        places = {"PYTHON": python, "WORK": self.work, "CALLS": self.calls, "GO": self.go, "DEVICE": "cpu"}
        self.environment = {**os.environ, **{name: str(value) for name, value in {**places, **environment}.items()}}

    def __call__(self, *pieces: str, **environment: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(ROOT / "paper" / "gpu.sh"), str(self.out), *pieces],
            env={**self.environment, **{name: str(value) for name, value in environment.items()}},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def begin(self, *pieces: str) -> None:
        """Call the script until an unfinished run is there: on a busy machine, the first call may end before."""
        done = self(*pieces, WAIT=1)
        while "run: metrics.jsonl" not in done.stdout:
            assert done.returncode == 75
            done = self(*pieces, WAIT=1)
        assert done.returncode == 75

    def commands(self) -> list[str]:
        return self.calls.read_text().splitlines()

    def vanish(self) -> None:
        """End the process session of the pieces."""
        if (self.work / "pid").exists():
            try:
                os.killpg(int((self.work / "pid").read_text()), signal.SIGKILL)
            except ProcessLookupError:
                return


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Any]:
    stub = tmp_path / "python"
    stub.write_text(STUB.format(python=sys.executable))
    stub.chmod(0o755)
    made: list[Machine] = []

    def make(name: str, python: Path | str = stub, **environment: object) -> Machine:
        made.append(Machine(tmp_path, name, python, **environment))
        return made[-1]

    yield make
    for machine in made:
        machine.vanish()


def names(archive: Path) -> set[str]:
    with tarfile.open(archive) as opened:
        return {name.removeprefix("./") for name in opened.getnames()}


def test_pieces_run_one_after_the_other_and_their_records_come_home(machines: Any) -> None:
    machine = machines("a", QUICK=1)
    done = machine("miniboone:cubic,affine@0,3", "figure-3", "peers-bsds300:zuko-maf", "appendix", "figure-2-paper")
    table = f"-m paper table-1 -o {machine.work}/table-1 --dataset miniboone --model cubic --model affine --device cpu"
    assert machine.commands() == [
        f"{table} --quick --seed 0",
        f"{table} --quick --seed 3",
        f"-m paper figure-3 -o {machine.work}/figure-3 --device cpu --quick",
        f"-m paper peers -o {machine.work}/table-1 --dataset bsds300 --model zuko-maf --device cpu --quick --seed 0",
        f"-m paper appendix -o {machine.work}/appendix --device cpu --quick",
        f"-m paper figure-2 -o {machine.work}/figure-2-paper --paper --device cpu --quick",
    ]
    assert done.returncode == 3, done.stderr  # the status of figure-3; the pieces after it ran
    log = (machine.out / "log").read_text()
    assert "figure-3: status 3" in log
    assert "said by -m paper appendix" in log
    assert {path.name for path in machine.out.iterdir()} == {"log", "records.tar.gz"}
    found = names(machine.out / "records.tar.gz")
    assert any(name.endswith("record.json") for name in found)
    assert not any("run" in name.split("/") or name.endswith(("table-1.md", "log", "pid", "status")) for name in found)


def test_a_call_that_ends_first_leaves_the_pieces_running(machines: Any) -> None:
    machine = machines("a", PART="7K")
    machine.begin("miniboone:quadratic", "appendix")
    parts = sorted(path.name for path in machine.out.glob("state.[0-9]*"))
    assert len(parts) > 10
    assert max((machine.out / part).stat().st_size for part in parts) == 7 * 1024
    assert all(path.stat().st_nlink == 1 for path in machine.work.rglob("*") if path.is_file()), "a run has no links"
    assert machine("miniboone:quadratic", "appendix", WAIT=0).returncode == 75
    assert len(machine.commands()) == 1, "nothing is started twice"
    machine.go.touch()
    assert machine("miniboone:quadratic", "appendix").returncode == 0
    assert not list(machine.out.glob("state.*")), "a finished cell has no state"


def test_another_machine_continues_from_the_parts(machines: Any, tmp_path: Path) -> None:
    first = machines("a", PART="9K")
    first.begin("miniboone:quadratic")
    first.vanish()
    lost = next(first.out.glob("state.01"))
    content = lost.read_bytes()
    second = machines("b", STATE=first.out)
    for damaged in (None, content[1:] + b"!"):
        lost.unlink() if damaged is None else lost.write_bytes(damaged)
        done = second("miniboone:quadratic")
        assert done.returncode == 2
        assert f"{first.out} lacks a part of the unfinished runs" in done.stderr
        assert len(second.commands()) == 1, "nothing is started"
    lost.write_bytes(content)
    done = second("miniboone:quadratic", WAIT=0)
    assert f"continued from {first.out}" in done.stdout
    (before,), (after,) = (list(machine.work.rglob("run")) for machine in (first, second))
    restored = {"checkpoint.safetensors", "config.json", "metrics.jsonl"}
    for name in restored:
        assert (after / name).read_bytes() == (before / name).read_bytes()
    first.go.touch()
    assert second("miniboone:quadratic").returncode == 0


def test_pieces_that_were_killed_are_started_again(machines: Any) -> None:
    machine = machines("a")
    machine.begin("miniboone:quadratic")
    machine.vanish()
    machine.go.touch()
    assert machine("miniboone:quadratic").returncode == 0
    assert len(machine.commands()) == 2


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        ("minibone", "there is no piece 'minibone'"),
        ("miniboone:cubik", "there is no model 'cubik' for miniboone"),
        ("peers-miniboone:cubic", "there is no model 'cubic' for peers-miniboone"),
        ("figure-2@3", "figure-2 has no models or seeds to choose"),
        ("miniboone@one", "'miniboone@one' is no piece"),
        ("miniboone:,@,", "'miniboone:,@,' is no piece"),
        ("", "'' is no piece"),
    ],
)
def test_a_wrong_piece_is_refused_before_anything_runs(machines: Any, piece: str, message: str) -> None:
    machine = machines("a")
    done = machine("figure-1", piece)
    assert done.returncode == 2
    assert message in done.stderr
    assert not machine.calls.exists()


@pytest.mark.soak  # starts Python three times; the tests above replace Python by a stub
def test_a_cell_that_changed_its_machine_has_the_same_scores(
    paper: Command, machines: Any, table_data: Path, tiny_table: Path, tmp_path: Path
) -> None:
    training = "steps = 12, batch_size = 64"
    tiny_table.write_text(TINY_TABLE.replace(training, "steps = 400, batch_size = 64, checkpoint_seconds = 0"))
    common = {"CUBICFLOW_DATA": table_data, "RECIPE": tiny_table, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    first = machines("a", sys.executable, **common)
    run = first.work / "table-1" / "cells" / "miniboone" / "cubic" / "seed-0" / "run"
    piece = "miniboone:cubic@0"
    assert first(piece, WAIT=0).returncode == 75
    while not ((run / "checkpoint-previous.safetensors").exists() and (run / "metrics.jsonl").read_text()):
        time.sleep(0.1)
    done = first(piece, WAIT=0)
    assert done.returncode == 75, (first.out / "log").read_text()
    first.vanish()
    steps = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert 0 < steps < 400
    second = machines("b", sys.executable, STATE=first.out, **common)
    assert second(piece).returncode == 0
    assert "resuming at step" in (second.out / "log").read_text()
    again = ("table-1", "-o", tmp_path / "again", "--data", table_data, "--recipe", tiny_table, "--device", "cpu")
    assert paper(*again, "--dataset", "miniboone", "--model", "cubic", "--seed", 0).status == 0
    scores = [
        load_scores(folder / "cells" / "miniboone" / "cubic" / "seed-0" / "test_scores.npz")
        for folder in (second.work / "table-1", tmp_path / "again")
    ]
    np.testing.assert_array_equal(*scores)
