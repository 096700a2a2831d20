"""The attacks detect faults that are injected on purpose."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.helpers import changing_tables
from tests.helpers.forks import Ended, forked, series
from tests.soak import spline_sweep
from tests.soak.hostile_values import as_text, changed, damaged
from tests.soak.mutations import verdict

from cubicflow.tables.read.file_checks import Stamps

ROOT = Path(__file__).parents[2]


def test_workers_report_status_errors_and_timeouts() -> None:
    assert forked(lambda: sys.exit(2))[:2] == (2, "")
    failed = forked(lambda: 1 // 0)
    assert failed.status == 1
    assert "ZeroDivisionError" in failed.errors
    assert forked(lambda: os.kill(os.getpid(), signal.SIGKILL)).status == -signal.SIGKILL
    assert forked(lambda: time.sleep(60), 0.05, limits=False).late


def test_a_series_ends_with_the_work_that_kills_it() -> None:
    works = [lambda: sys.exit(2), lambda: None, lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: None]
    assert [ended.status for ended in series(works, 1 << 40)] == [2, 0, -signal.SIGKILL]


MEMORY = """
from tests.helpers.forks import forked, series
large, small = lambda: bytearray(300 << 20), lambda: None
usual = forked(small).memory
assert forked(large).memory - usual > 200_000
assert len(series([small, large, small], usual + 200_000)) == 2
"""


def test_workers_measure_memory() -> None:
    """In a new interpreter: in a process that has freed much memory, an allocation need not raise the peak."""
    done = subprocess.run([sys.executable, "-c", MEMORY], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (Ended(0, "", 100, False), None),
        (Ended(2, "error: no\n", 100, False), None),
        (Ended(2, "no\n", 100, False), "says nothing clear"),
        (Ended(1, "Traceback ...\nKeyError: 1\n", 100, False), "ends with status 1: KeyError"),
        (Ended(0, "x.py:1: RuntimeWarning: overflow\n", 100, False), "warns"),
        (Ended(-11, "", 100, False), "ends by signal 11"),
        (Ended(0, "", 100, True), "takes too long"),
        (Ended(0, "", 300_100, False), "takes 300,000 KB more"),
    ],
)
def test_faults_of_a_command_are_recognised(ended: Ended, said: str | None) -> None:
    found = verdict(ended, 100)
    assert found is None if said is None else found is not None and found.startswith(said)


def test_mutations_are_determined_by_their_seed() -> None:
    honest = {"a": [1, 2.5, {"b": "x"}], "c": None}
    found = [as_text(changed(honest, random.Random(seed))) for seed in range(200)]
    assert found == [as_text(changed(honest, random.Random(seed))) for seed in range(200)]
    assert len(set(found)) > 100
    assert honest == {"a": [1, 2.5, {"b": "x"}], "c": None}
    content = json.dumps(honest).encode()
    assert sum(damaged(content, random.Random(seed)) != content for seed in range(100)) > 90


def test_an_undetected_change_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stamps, "are_current", lambda _: True)
    monkeypatch.setattr(changing_tables, "WAYS", {"other values": changing_tables.WAYS["other values"]})
    counts = changing_tables.attack(tmp_path, "t.parquet", iter([6]))
    assert counts.failures == ["t.parquet: other values, 6 batches in, is accepted"]


def test_the_sweep_counts_evaluations_and_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spline_sweep, "ROWS", 1000)
    counts = spline_sweep.attack(20_000)
    assert counts.failures == []
    assert counts.total() == 20_000
    original = spline_sweep.cubic_spline

    def broken(x, params, **how):
        y, log_slope = original(x, params, **how)
        return y.clone().index_fill_(0, y.new_tensor([500]).long(), float("nan")), log_slope

    monkeypatch.setattr(spline_sweep, "cubic_spline", broken)
    assert len(spline_sweep.attack(5000).failures) == 5
