"""Threads that compute while the server stays responsive. They are daemon threads and end with the process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")
LOG = logging.getLogger(__name__)
_thread = threading.local()


class Job(Future[T], Generic[T]):
    """The future result of a function in a worker. Nobody waits for it if it ``is_abandoned``."""

    is_abandoned = False


class AbandonedError(Exception):
    """An error that ends a job whose browser has left."""


def raise_if_abandoned() -> None:
    """Raise AbandonedError in a job that nobody waits for. Long answers call this after each of their parts."""
    job: Job[Any] | None = getattr(_thread, "job", None)
    if job is not None and job.is_abandoned:
        raise AbandonedError


class Worker:
    """A thread that runs jobs one after the other. Without jobs it calls ``idle`` as long as ``idle`` returns True.

    An error of ``idle`` goes to the log, once as long as it stays the same. The next job makes ``idle`` try again.

    >>> worker = Worker("an example")
    >>> worker.submit(lambda: 1 + 1).result()
    2
    >>> worker.close()
    """

    def __init__(self, name: str, idle: Callable[[], bool] = lambda: False) -> None:
        self._jobs: SimpleQueue[tuple[Job[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._idle = idle
        self._logged = ""
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], T]) -> Job[T]:
        """Call a function in the thread, after the jobs before it."""
        job = Job[T]()
        self._jobs.put((job, function))
        return job

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function in the thread, and return its result.

        The job of a cancelled caller is skipped, or told to end if it is running.
        """
        job = self.submit(function)
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            job.is_abandoned = True
            raise

    def wake(self) -> None:
        """Make the thread check again whether there is idle work."""
        self.submit(lambda: None)

    def close(self) -> None:
        """End the thread after the jobs that it has."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (found := self._jobs.get()) is not None:
            job, function = found
            _thread.job = job
            if job.set_running_or_notify_cancel():
                try:
                    job.set_result(function())
                except BaseException as error:
                    job.set_exception(error)
            del _thread.job, found, job, function  # an idle thread keeps no answer in memory
            while self._jobs.empty() and self._more():
                pass

    def _more(self) -> bool:
        try:
            return self._idle()
        except Exception as error:
            if repr(error) != self._logged:
                LOG.exception("preparing later answers failed")
            self._logged = repr(error)
            return False
