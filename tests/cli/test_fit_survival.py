"""``cubicflow fit`` as a process: interrupted, resumed and refused. Its help does not import torch."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.helpers.processes import run_held_command, start, start_command, wait_until

from cubicflow.training.checkpoint import NEWEST

SMALL = [
    "--model",
    "flow",
    "--num-layers",
    "1",
    "--hidden-features",
    "8",
    "--num-bins",
    "4",
    "--device",
    "cpu",
    "--patience",
    "0",
]


@pytest.mark.parametrize("kind", ["npy", pytest.param("parquet", marks=pytest.mark.soak)])
def test_an_interrupted_fit_resumes_and_a_second_one_is_refused(tmp_path, kind):
    values = np.random.default_rng(0).normal(size=(400, 2))
    data, run = tmp_path / f"data.{kind}", tmp_path / "run"
    if kind == "npy":
        np.save(data, values)
    else:
        pq.write_table(pa.table({"a": values[:, 0], "b": values[:, 1]}), data, row_group_size=100)
    command = ["fit", data, "-o", run, *SMALL, "--steps", 200, "--validate-every", 50]

    first = start(run_held_command, tmp_path / "go", *map(str, command), log=tmp_path / "first")
    wait_until((run / NEWEST).exists, first)
    first.send_signal(signal.SIGINT)
    (tmp_path / "go").touch()
    assert first.wait() == 130, first.log.read_text()
    assert "saved. To resume, run this again with --resume" in first.log.read_text()
    assert "--resume" in first.log.read_text()

    # Two processes start on the same folder. The one without --resume is refused; the one with --resume continues.
    refused = start_command(*command, log=tmp_path / "refused")
    resumed = start_command(*command, "--resume", log=tmp_path / "resumed")
    assert refused.wait() == 2
    said = refused.log.read_text()
    assert "already holds a run" in said or "is in use by" in said
    assert resumed.wait() == 0, resumed.log.read_text()
    assert "resuming at step" in resumed.log.read_text()
    assert json.loads((run / "config.json").read_text())["result"]["finished"]


def test_help_does_not_import_torch():
    program = (
        "import sys\n"
        "sys.argv = ['cubicflow', 'fit', '--help']\n"
        "from cubicflow.cli import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    heavy = [name for name in ('torch', 'numpy', 'pyarrow', 'matplotlib') if name in sys.modules]\n"
        "    sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--resume" in done.stdout
