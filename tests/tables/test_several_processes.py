"""A table fitted by several processes: killing one of them does not change the result."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.helpers import processes
from tests.helpers.processes import Forked, torchrun, wait_until, worker_of_torchrun

from cubicflow.flows.serialization import read_tensors

STEPS = 60


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


def start(table: Path, run: Path) -> Forked:
    command = ["fit", str(table), "-o", str(run), "--steps", str(STEPS), "--validate-every", "10", "--patience", "0"]
    command += ["--hidden-features", "4", "--num-bins", "4", "--num-blocks", "1", "--device", "cpu"]
    command += ["--checkpoint-seconds", "0", "--seed", "3", "--resume"]
    run.with_suffix(".pids").mkdir()
    options = ["--nproc-per-node", "2", "--max-restarts", "2"]
    workers = (worker_of_torchrun, run.with_suffix(".pids"), 20, *command)
    return processes.start(torchrun, options, *workers, log=run.with_suffix(".log"))


def lines(run: Path) -> list[dict[str, float]]:
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_killing_a_process_does_not_change_the_result(table: Path, tmp_path: Path) -> None:
    """Both runs have two processes. In the second run, one process is killed, and torchrun starts both again."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    agents = [start(table, run) for run in (whole, cut)]
    (whole.with_suffix(".pids") / "go").touch()
    wait_until(lambda: len(lines(cut)) >= 2, agents[1])  # the checkpoint after the first of these lines is written
    os.kill(int((cut.with_suffix(".pids") / "1").read_text()), signal.SIGKILL)
    (cut.with_suffix(".pids") / "go").touch()
    for agent in agents:
        assert agent.wait() == 0, agent.log.read_text()
    said = agents[1].log.read_text()
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
