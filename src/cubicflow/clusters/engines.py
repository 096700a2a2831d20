"""Engines that run blocks: threads of this process, or the workers of a Ray cluster.

An engine takes a task and blocks, and yields outcomes in any order. The engine does not
change the results: on a CPU every worker uses one thread of torch, because two threads may round a matrix product
differently.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager

import torch

from cubicflow.arguments import unknown_name
from cubicflow.clusters.blocks import Block, Outcome
from cubicflow.clusters.tasks import Task
from cubicflow.tables import TableError, checked_device

ENGINES = ("local", "ray")
Result = Outcome | TableError  # a TableError is returned, not raised: an engine would wrap it in an error of its own
RunBlocks = Callable[[Task, Sequence[Block]], Generator[Result, None, None]]


def open_engine(
    name: str, *, workers: int | None = None, address: str | None = None, device: str | None = None
) -> AbstractContextManager[RunBlocks]:
    """Return a context manager for an engine. An engine is a function that takes a task and its blocks, and yields
    outcomes.

    Args:
        name: ``"local"`` or ``"ray"``.
        workers: the number of workers; by default one for each core, or one for each GPU if GPUs are used.
        address: the address of a Ray cluster; by default a cluster is started on this machine.
        device: the device of the workers; by default GPUs if the Ray cluster has GPUs.

    >>> with open_engine("local", workers=2) as run_blocks:
    ...     callable(run_blocks)
    True
    """
    if name not in ENGINES:
        raise TableError(unknown_name("cubicflow", "engine", name, list(ENGINES)))
    if workers is not None and workers < 1:
        raise TableError(f"the number of workers must be 1 or more, got {workers}")
    if name == "local":
        if address is not None:
            raise TableError("only a Ray cluster has an address; leave it out, or choose that engine", engine="ray")
        return _local(workers, device)
    from cubicflow.clusters.ray_engine import on_ray

    return on_ray(workers, address, device)


@contextmanager
def _local(workers: int | None, device: str | None) -> Iterator[RunBlocks]:
    device = checked_device(device)
    before = torch.get_num_threads()
    on_gpu = device is not None and torch.device(device).type == "cuda"
    number = workers or (1 if on_gpu else before)

    def run_blocks(task: Task, blocks: Sequence[Block]) -> Generator[Result, None, None]:
        own, packed = threading.local(), pickle.dumps(task)

        def do(block: Block) -> Result:
            if not hasattr(own, "task"):
                own.task = pickle.loads(packed)  # noqa: S301 - packed above
                own.task.to(device)
            done: Result = own.task(block)
            return done

        with ThreadPoolExecutor(number) as pool:  # an error, or a consumer that stops, cancels the blocks that wait
            yield from pool.map(do, blocks)

    torch.set_num_threads(1)
    try:
        yield run_blocks
    finally:
        torch.set_num_threads(before)
