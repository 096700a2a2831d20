"""A small Ray cluster for tests, its worker processes, and job folders on a full disk."""

from __future__ import annotations

import logging
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from cubicflow.clusters.blocks import Block, Outcome
from cubicflow.clusters.job_folder import JobFolder

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "1",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_enable_metrics_collection": "0",
    "RAY_health_check_timeout_ms": "600000",  # on a loaded machine, a slow node is not a dead node
    "RAY_prestart_worker_first_driver": "0",  # an idle worker takes seconds to start
}

FULL = Path("/dev/full")


@contextmanager
def cluster(cpus: int) -> Iterator[Any]:
    """Run a local Ray cluster with at most ``cpus`` workers, for any number of cores."""
    os.environ.update(QUIET)
    # Workers import the packages and the modules of the tests from the same folders as this process.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    import ray
    import ray.data

    memory = 80 * 2**20
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    ray.init(address="local", num_cpus=cpus, object_store_memory=memory, **quiet)
    try:
        yield ray
    finally:
        ray.shutdown()


def actors_below(pid: int) -> list[int]:
    """Return the ids of the descendants of process ``pid`` that run a BlockWorker."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            try:
                title = Path(f"/proc/{child}/cmdline").read_bytes()
                if title.startswith(b"ray::") and b"BlockWorker" in title:
                    found.append(int(child))
                found += actors_below(int(child))
            except (FileNotFoundError, ProcessLookupError):  # the process has ended
                continue
    return found


class DeadlyFolder(JobFolder):
    """A job folder that kills the first worker with block 3, just before it writes the part."""

    def write(self, block: Block, rows: pa.Table, outcome: Outcome) -> None:
        if block.number == 3 and not _note(self.place).exists():
            _note(self.place).write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(block, rows, outcome)


def killed_at(folder: Path) -> int:
    """Return the process id of the worker that :class:`DeadlyFolder` killed."""
    return int(_note(str(folder)).read_text())


def _note(place: str) -> Path:
    return Path(f"{place}.killed")


class FullFolder(JobFolder):
    """A job folder on a full disk: the system's limit on file sizes makes every write beyond 100 bytes fail."""

    def write(self, *args: Any) -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        try:
            super().write(*args)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


class FullFolderOfAWorker(JobFolder):
    """A job folder whose files go to /dev/full, where every write fails.

    The limit of FullFolder holds for the whole process. In a worker of Ray, it would hit Ray's log files as well.
    """

    def write(self, *args: Any) -> None:
        with patch("cubicflow.owned_folder.write_atomically", lambda _, content: FULL.write_bytes(content)):
            super().write(*args)
