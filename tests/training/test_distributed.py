"""Several processes give the result of one process, also if one of them is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.helpers import processes
from tests.helpers.processes import free_port, torchrun, wait_until, worker_of_torchrun

import cubicflow as cf
from cubicflow.training.checkpoint import NEWEST
from cubicflow.training.distributed import choose_device, join

from . import gloo_worker


def test_two_gloo_processes_agree_with_one(tmp_path):
    """Train in float64 without dropout, on the same global batches of 33 rows, which two processes cannot halve."""
    together = processes.start(torchrun, ["--nproc-per-node", "2"], gloo_worker.main, tmp_path, log=tmp_path / "log")
    expected = gloo_worker.outcome(gloo_worker.train())
    assert together.wait() == 0, together.log.read_text()
    first, second = (load_file(tmp_path / f"{rank}.safetensors") for rank in range(2))
    for name, value in expected.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name].double(), value.double(), rtol=0, atol=1e-9)
    for rank in range(2):
        assert "stopped at step 10 " in (tmp_path / f"{rank}.stopped").read_text()


@pytest.mark.parametrize("killed", [pytest.param(0, marks=pytest.mark.soak), 1])
def test_torchrun_restarts_a_killed_worker_and_the_run_finishes(tmp_path, killed):
    generator = np.random.default_rng(0)
    np.save(tmp_path / "data.npy", generator.normal(size=(600, 2)))
    run, steps = tmp_path / "run", 60
    command = ["fit", str(tmp_path / "data.npy"), "-o", str(run), "--resume", "--steps", str(steps), "--patience", "0"]
    command += ["--validate-every", "20", "--device", "cpu", "--num-layers", "1", "--hidden-features", "8"]
    command += ["--num-bins", "4", "--checkpoint-seconds", "0.02"]
    workers = (worker_of_torchrun, tmp_path, 0, *command)
    options = ["--nproc-per-node", "2", "--max-restarts", "3"]
    agent = processes.start(torchrun, options, *workers, log=tmp_path / "log")
    wait_until((run / NEWEST).exists, agent)
    os.kill(int((tmp_path / str(killed)).read_text()), signal.SIGKILL)
    (tmp_path / "go").touch()
    assert agent.wait() == 0, agent.log.read_text()
    assert "resuming at step" in agent.log.read_text()
    result = json.loads((run / "config.json").read_text())["result"]
    assert (result["finished"], result["steps"]) == (True, steps)
    steps_logged = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps_logged == sorted(set(steps_logged))
    assert cf.load(run).log_prob(torch.zeros(1, 2)).isfinite().all()


@pytest.mark.soak
def test_the_command_torchrun_starts_two_processes(tmp_path):
    """Soak only: three new interpreters import torch. The other tests use the agent of torchrun, which forks."""
    np.save(tmp_path / "data.npy", np.random.default_rng(0).normal(size=(100, 2)))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-port", str(free_port()), "-m", "cubicflow", "fit", str(tmp_path / "data.npy")]
    command += ["-o", str(tmp_path / "run"), "--steps", "2", "--hidden-features", "4", "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "config.json").read_text())["result"]["steps"] == 2


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
