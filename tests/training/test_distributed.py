"""Several processes give the result of one process, also if one of them is killed."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import cubicflow as cf
from cubicflow.training.checkpoint import NEWEST
from cubicflow.training.distributed import choose_device, join

WORKER = Path(__file__).with_name("gloo_worker.py")


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def test_two_gloo_processes_agree_with_one(tmp_path):
    """Train in float64 without dropout, on the same global batches of 33 rows, which two processes cannot halve."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-port", str(free_port()), str(WORKER), str(tmp_path)]
    together = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        spec = importlib.util.spec_from_file_location("gloo_worker", WORKER)
        alone = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(alone)
        expected = alone.outcome(alone.train())
        assert together.wait(timeout=240) == 0
    finally:
        if together.poll() is None:
            together.terminate()
            together.wait()
    first, second = (load_file(tmp_path / f"{rank}.safetensors") for rank in range(2))
    for name, value in expected.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name].double(), value.double(), rtol=0, atol=1e-9)
    for rank in range(2):
        assert "stopped at step 10 " in (tmp_path / f"{rank}.stopped").read_text()


def workers_of(agent):
    """Return the processes that torchrun started, by rank."""
    found = {}
    children = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    for child in children:
        environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        rank = next((entry for entry in environment if entry.startswith(b"RANK=")), None)
        if rank is not None:
            found[int(rank.removeprefix(b"RANK="))] = int(child)
    return found


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds torchrun's workers in /proc")
@pytest.mark.parametrize("killed", [pytest.param(0, marks=pytest.mark.soak), 1])
def test_torchrun_restarts_a_killed_worker_and_the_run_finishes(tmp_path, killed):
    generator = np.random.default_rng(0)
    np.save(tmp_path / "data.npy", generator.normal(size=(600, 2)))
    run = tmp_path / "run"
    steps = 300
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "3"]
    command += ["--master-port", str(free_port()), "-m", "cubicflow", "fit", str(tmp_path / "data.npy"), "-o", str(run)]
    command += ["--resume", "--steps", str(steps), "--patience", "0", "--validate-every", "100", "--device", "cpu"]
    command += ["--num-layers", "1", "--hidden-features", "8", "--num-bins", "4", "--checkpoint-seconds", "0.05"]
    log = (tmp_path / "log").open("w+")
    agent = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 120
        while not (run / NEWEST).exists() and agent.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(workers_of(agent.pid)[killed], signal.SIGKILL)
        status = agent.wait(timeout=240)
    finally:
        if agent.poll() is None:
            agent.terminate()
            agent.wait()
        log.seek(0)
        said = log.read()
        log.close()
    assert status == 0, said
    assert "resuming at step" in said
    result = json.loads((run / "config.json").read_text())["result"]
    assert (result["finished"], result["steps"]) == (True, steps)
    steps_logged = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps_logged == sorted(set(steps_logged))
    assert cf.load(run).log_prob(torch.zeros(1, 2)).isfinite().all()


def test_devices_that_are_not_there():
    with pytest.raises(ValueError, match="device must be 'auto', 'cpu', 'cuda'"):
        choose_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="torch finds no GPU; use device='cpu' or 'auto'"):
            choose_device("cuda")
        assert choose_device("auto") == torch.device("cpu")


def test_half_an_environment_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="WORLD_SIZE is set but RANK, MASTER_ADDR, MASTER_PORT is not"), join("cpu"):
        pass
