"""The Ray engine: blocks run on the actors of a Ray cluster.

An actor holds the model, reads the rows of its block and writes the block's part, so rows never pass through Ray's
object store. If an actor dies, Ray restarts it, and the new actor does the block again.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

import torch

from cubicflow.clusters.blocks import Block
from cubicflow.clusters.engines import Result, RunBlocks
from cubicflow.clusters.tasks import Task
from cubicflow.extras import need
from cubicflow.tables import TableError, checked_device

PATIENCE = 5.0  # seconds to wait for a connection to a cluster


class BlockWorker:
    """A Ray actor that holds a task and runs it on blocks."""

    def __init__(self, packed: bytes, device: str | None) -> None:
        torch.set_num_threads(1)
        self.task: Task = pickle.loads(packed)  # noqa: S301 - our own, from the driver
        self.task.to(device)

    def run(self, block: Block) -> Result:
        return self.task(block)


@contextmanager
def on_ray(workers: int | None, address: str | None, device: str | None) -> Iterator[RunBlocks]:
    """Connect to a Ray cluster, or start one on this machine until the context ends."""
    ray = need("ray", "the engine ray")
    begun = not ray.is_initialized()
    if begun and address is None:
        address = os.environ.get("RAY_ADDRESS")
    if address is not None:
        _check_answers(address)
    # Ray reports dead workers on standard output, which is for the results of a command.
    with redirect_stdout(sys.stderr):
        if begun:
            _connect(ray, address, workers)
        gpus = int(ray.cluster_resources().get("GPU", 0)) if device is None or device.startswith("cuda") else 0
        try:
            placed = "cuda" if gpus else checked_device(device)
            yield lambda task, blocks: _outcomes(ray, task, blocks, workers, gpus, placed)
        finally:
            if begun:
                ray.shutdown()


@contextmanager
def _stderr_silenced() -> Iterator[None]:
    """Redirect file descriptor 2 to null: Ray's C++ code writes a message about its log level there."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _connect(ray: Any, address: str | None, workers: int | None) -> None:
    # Silence Ray's messages about usage statistics and its backend: they would mix with the job's output.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    how: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        with _stderr_silenced():
            ray.init(address="local", num_cpus=max(cores, workers or 1), include_dashboard=False, **how)
        return
    try:
        with _stderr_silenced():
            ray.init(address=address, **how)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError, SystemExit) as error:
        raise _no_cluster(address, str(error) or "no answer") from None


def _check_answers(address: str) -> None:
    """Raise TableError if no server listens at HOST:PORT. Ray itself would wait for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address in ("auto", "local"):
        return
    if not colon or not port.isdigit():
        raise TableError(f"the address of a Ray cluster is auto, HOST:PORT or ray://HOST:PORT, got {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, getattr(error, "strerror", None) or str(error)) from None


def _no_cluster(address: str, reason: str) -> TableError:
    first = " ".join(reason.split())[:200].rstrip(".")
    return TableError(
        f"there is no Ray cluster at {address!r}: {first}; start one with: ray start --head, or leave the address out"
    )


def _outcomes(
    ray: Any, task: Task, blocks: Sequence[Block], workers: int | None, gpus: int, device: str | None
) -> Generator[Result, None, None]:
    if not blocks:
        return
    from ray.util import ActorPool

    number = workers or gpus or max(int(ray.cluster_resources().get("CPU", 1)), 1)
    for_ever = {"max_restarts": -1, "max_task_retries": -1}
    actor = ray.remote(num_cpus=1, num_gpus=min(1, gpus / number) if gpus else None, **for_ever)(BlockWorker)
    packed = ray.put(pickle.dumps(task))
    actors = [actor.remote(packed, device) for _ in range(min(number, len(blocks)))]
    try:
        yield from ActorPool(actors).map_unordered(lambda worker, block: worker.run.remote(block), blocks)
    finally:  # the consumer may have closed this generator while blocks run
        for worker in actors:
            ray.kill(worker)
