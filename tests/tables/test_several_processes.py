"""A table fitted by several processes: killing one of them does not change the result."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.training.test_distributed import free_port, workers_of

from cubicflow.flows.serialization import read_tensors

STEPS = 400


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write words, steps, real numbers and gaps to a folder of two files."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("parts")
    kind = rng.choice(["ash", "oak", "elm"], 400)
    size = np.round(rng.gamma(2.0, 2.0, 400) + (kind == "oak"), 1)
    gaps = rng.random(400) < 0.1
    rows = pa.table({"kind": kind, "size": pa.array(size, mask=gaps), "height": rng.normal(10, 2, 400) + size})
    parquet.write_table(rows[:150], folder / "0.parquet")
    parquet.write_table(rows[150:], folder / "1.parquet")
    return folder


def arguments(table: Path, run: Path) -> list[str]:
    settings = ["--steps", str(STEPS), "--validate-every", "50", "--patience", "0", "--hidden-features", "8"]
    settings += ["--device", "cpu", "--checkpoint-seconds", "0.05", "--seed", "3", "--resume"]
    return ["-m", "cubicflow", "fit", str(table), "-o", str(run), *settings]


def start(table: Path, run: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "2"]
    command += ["--master-port", str(free_port()), *arguments(table, run)]
    with run.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=log, stderr=log)


def finish(agent: subprocess.Popen[bytes], run: Path) -> str:
    try:
        status = agent.wait(timeout=300)
    finally:
        if agent.poll() is None:
            agent.terminate()
            agent.wait()
    said = run.with_suffix(".log").read_text()
    assert status == 0, said
    return said


def lines(run: Path) -> list[dict[str, float]]:
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds torchrun's workers in /proc")
def test_killing_a_process_does_not_change_the_result(table: Path, tmp_path: Path) -> None:
    """Both runs have two processes. In the second run, one process is killed, and torchrun starts it again."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    finish(start(table, whole), whole)
    agent = start(table, cut)
    deadline = time.monotonic() + 200
    while len(lines(cut)) < 2 and agent.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(workers_of(agent.pid)[1], signal.SIGKILL)
    said = finish(agent, cut)
    resumed = re.search(r"resuming at step (\d+)", said)
    assert resumed is not None, said
    assert 0 < int(resumed[1]) < STEPS
    results = [json.loads((run / "config.json").read_text())["result"] for run in (whole, cut)]
    assert results[0]["finished"]
    for name in ("validation_loss", "best_step", "weights", "steps"):
        assert results[0][name] == results[1][name], name
    weights = [read_tensors(run / "model.safetensors", None) for run in (whole, cut)]
    assert all(bool((value == weights[1][name]).all()) for name, value in weights[0].items())
    validated = [[line for line in lines(run) if "validation_loss" in line] for run in (whole, cut)]
    assert [line["validation_loss"] for line in validated[0]] == [line["validation_loss"] for line in validated[1]]
