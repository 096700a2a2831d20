"""A Ray cluster on this machine gives the output of one process, for any number of workers and if a worker dies."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.helpers.command_line import Command
from tests.helpers.processes import start_command

from cubicflow.clusters import TableScorer, sample_files, score_files
from cubicflow.tables import FittedTable

from .lake import BLOCK_ROWS, ROWS, Scene, parts
from .ray_workers import DeadlyFolder, FullFolderOfAWorker, cluster, killed_at

pytestmark = pytest.mark.filterwarnings("ignore")  # ignore the warnings of Ray's own code

SMALL_BLOCKS = 20
PROGRESS = re.compile(r"block [\d,]+ of [\d,]+  \d+:\d\d left")


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    with cluster(cpus=4) as started:
        yield started


@pytest.fixture(scope="module")
def local_samples(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the parts that one process writes."""
    folder = tmp_path_factory.mktemp("samples") / "local"
    sample_files(scene.columns, ROWS, str(folder), seed=5, block_rows=SMALL_BLOCKS)
    return parts(folder)


def samples_by_ray(scene: Scene, out: Path, workers: int) -> dict[str, bytes]:
    how = {"engine": "ray", "workers": workers}
    done = sample_files(scene.columns, ROWS, str(out), seed=5, block_rows=SMALL_BLOCKS, **how)
    assert done.blocks == 35
    return parts(out)


def test_samples_by_two_workers_of_which_one_is_killed(
    ray: Any,
    scene: Scene,
    tmp_path: Path,
    local_samples: dict[str, bytes],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first worker that writes block 3 kills itself just before it writes the part."""
    monkeypatch.setattr("cubicflow.clusters.jobs.JobFolder", DeadlyFolder)
    out = tmp_path / "two"
    assert samples_by_ray(scene, out, 2) == local_samples
    assert capfd.readouterr().out == ""  # Ray reports the dead worker on standard error
    assert not Path(f"/proc/{killed_at(out)}").exists()
    assert len(list(out.iterdir())) == 36  # 35 parts and _job.json, without temporary files


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 4])
def test_samples_by_other_numbers_of_workers(
    ray: Any, scene: Scene, tmp_path: Path, local_samples: dict[str, bytes], workers: int
) -> None:
    """Every worker is a process that imports torch, which takes long. The previous test starts three workers."""
    assert samples_by_ray(scene, tmp_path / "out", workers) == local_samples


@pytest.mark.soak
def test_a_function_of_batches(ray: Any, scene: Scene) -> None:
    """Call the scorer as a user's own Ray pipeline does.

    Soak only: a new worker imports torch. test_blocks.py calls the scorer.
    """
    rows = ray.data.from_arrow(scene.rows)
    how = {"batch_format": "pyarrow", "batch_size": 100, "concurrency": 1}
    found = rows.map_batches(TableScorer, fn_constructor_args=[str(scene.columns), "cpu"], **how)
    scored = pa.concat_tables(ray.get(found.to_arrow_refs())).sort_by("id")
    expected = [FittedTable.load(scene.columns, "cpu").score(scene.rows[i : i + 100]) for i in range(0, 700, 100)]
    assert scored.column("log_likelihood").to_pylist() == [score for batch in expected for score in batch.tolist()]


def test_the_command_line_finds_a_cluster_by_its_address(ray: Any, scene: Scene, tmp_path: Path) -> None:
    expected = tmp_path / "local"
    score_files(scene.columns, scene.files, str(expected), keys=["id"], block_rows=BLOCK_ROWS)
    how = ["--key", "id", "--block-rows", BLOCK_ROWS, "--engine", "ray", "--workers", 1]
    how += ["--address", ray.get_runtime_context().gcs_address]
    command = ["score", scene.columns, scene.files, "-o", tmp_path / "out", *how]
    done = start_command(*command, log=tmp_path / "log", environment=os.environ)
    assert done.wait() == 0, done.log.read_text()
    # A job of more than ten seconds prints its progress. Ray itself prints nothing.
    assert [line for line in done.log.read_text().splitlines() if not PROGRESS.fullmatch(line)] == []
    assert parts(tmp_path / "out") == parts(expected)


@pytest.mark.soak
def test_a_full_disk_of_a_worker_is_one_line(
    ray: Any, scene: Scene, tmp_path: Path, cubicflow: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cubicflow.clusters.jobs.JobFolder", FullFolderOfAWorker)
    out = tmp_path / "out"
    done = cubicflow("score", scene.columns, scene.files, "-o", out, "--engine", "ray", "--workers", 1)
    assert done.status == 2
    assert done.errors.count("\n") == 1, done.errors
    assert "part-00000000.parquet: No space left on device" in done.errors
    assert [path.name for path in out.iterdir()] == ["_job.json"]


def test_an_old_version_of_ray(
    scene: Scene, tmp_path: Path, cubicflow: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cubicflow.extras.version", lambda _: "2.9.3")
    done = cubicflow("sample", scene.columns, "-n", 10, "-o", tmp_path / "out", "--engine", "ray")
    assert (done.status, done.errors.count("\n")) == (2, 1)
    assert "ray 2.50 or newer, found 2.9.3; use: pip install 'cubicflow[ray]' --upgrade" in done.errors
    assert not (tmp_path / "out").exists()
