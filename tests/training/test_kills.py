"""A run that is killed several times ends with the bits of an undisturbed run."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from tests.helpers import processes
from tests.helpers.processes import wait_until

from cubicflow.training.checkpoint import NEWEST

from . import kill_worker


def metrics_without_times(run):
    lines = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    timed = ("seconds", "rows_per_second", "first_step_seconds")
    return [{k: v for k, v in line.items() if k not in timed} for line in lines]


def start(run, steps, hold=None):
    return processes.start(kill_worker.main, str(run), steps, hold, log=run.with_suffix(".log"))


def time_of(path):
    return path.stat().st_mtime_ns if path.exists() else None


def kill_until_finished(run, steps, kills, chance):
    """Kill the worker several times at random moments after its training begins. Then let it finish.

    Before a kill, the worker trains only up to a part of the steps: it must not end first.
    """
    landed = 0
    for kill in range(kills):
        worker = start(run, steps, steps * (kill + 1) // (kills + 1))
        before = time_of(run / NEWEST)
        wait_until(lambda before=before: time_of(run / NEWEST) != before, worker)
        time.sleep(chance.uniform(0, 0.2))
        landed += worker.poll() is None
        worker.kill()
    last = start(run, steps)
    assert last.wait() == 0
    return landed


def check_kills(tmp_path, assert_same, steps, kills):
    whole = start(tmp_path / "whole", steps)
    landed = kill_until_finished(tmp_path / "killed", steps, kills, random.Random(0))
    assert whole.wait() == 0
    assert landed == kills
    assert_same(tmp_path / "whole", tmp_path / "killed")
    assert metrics_without_times(tmp_path / "whole") == metrics_without_times(tmp_path / "killed")
    assert sorted(p.name for p in (tmp_path / "killed").iterdir()) == [
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
    ]


def test_killed_runs_end_bit_identical(tmp_path, assert_same):
    check_kills(tmp_path, assert_same, steps=250, kills=3)


@pytest.mark.soak
def test_many_kills_end_bit_identical(tmp_path, assert_same):
    check_kills(tmp_path, assert_same, steps=2500, kills=25)


@pytest.mark.soak
def test_kills_while_starting(tmp_path, assert_same):
    """Kill the worker at any moment from its start on."""
    chance = random.Random(1)
    whole = start(tmp_path / "whole", 50)
    assert whole.wait() == 0
    for _ in range(30):
        worker = start(tmp_path / "killed", 50)
        time.sleep(chance.uniform(0, 1))
        worker.kill()
    assert start(tmp_path / "killed", 50).wait() == 0
    assert_same(tmp_path / "whole", tmp_path / "killed")
