"""Engines that run blocks: threads of this process, or the workers of a Ray cluster.

An engine takes a task and blocks, and yields outcomes in any order, as soon as they are ready. The engine does not
change the results: on a CPU every worker uses one thread of torch, because two threads may round a matrix product
differently.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager

import torch

from cubicflow.arguments import unknown_name
from cubicflow.clusters.blocks import Block, Outcome
from cubicflow.clusters.tasks import Task
from cubicflow.tables.fitted import checked_device
from cubicflow.tables.table_error import TableError

ENGINES = ("local", "ray")
Result = Outcome | TableError  # a TableError is returned, not raised: an engine would wrap it in an error of its own
Run = Callable[[Task, Sequence[Block]], Generator[Result, None, None]]


def open_engine(
    name: str, *, workers: int | None = None, address: str | None = None, device: str | None = None
) -> AbstractContextManager[Run]:
    """Return a context manager for an engine. An engine is a function that takes a task and its blocks, and yields
    outcomes.

    Args:
        name: ``"local"`` or ``"ray"``.
        workers: the number of workers; by default one for each core, or one for each GPU if GPUs are used.
        address: the address of a Ray cluster; by default a cluster is started on this machine.
        device: the device of the workers; by default GPUs if the Ray cluster has GPUs.

    >>> with open_engine("local", workers=2) as run:
    ...     callable(run)
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
def _local(workers: int | None, device: str | None) -> Iterator[Run]:
    device = checked_device(device)
    before = torch.get_num_threads()
    on_gpu = device is not None and torch.device(device).type == "cuda"
    number = workers or (1 if on_gpu else before)

    def run(task: Task, blocks: Sequence[Block]) -> Generator[Result, None, None]:
        own = threading.local()
        packed = pickle.dumps(task)

        def do(block: Block) -> Result:
            if not hasattr(own, "task"):
                own.task = pickle.loads(packed)  # noqa: S301 - packed three lines above
                own.task.to(device)
            done: Result = own.task(block)
            return done

        with ThreadPoolExecutor(number) as pool:
            yield from _completed(pool, do, blocks, 2 * number)

    torch.set_num_threads(1)
    try:
        yield run
    finally:
        torch.set_num_threads(before)


def _completed(
    pool: ThreadPoolExecutor, do: Callable[[Block], Result], blocks: Sequence[Block], most: int
) -> Iterator[Result]:
    """Yield outcomes as blocks are done, with at most ``most`` blocks submitted at a time."""
    coming = iter(blocks)
    running: set[Future[Result]] = set()
    try:
        while True:
            while len(running) < most and (block := next(coming, None)) is not None:
                running.add(pool.submit(do, block))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    finally:  # the consumer closed this generator, or a block raised
        for future in running:
            future.cancel()
