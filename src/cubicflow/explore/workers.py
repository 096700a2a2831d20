"""Threads that compute while the server stays responsive. They are daemon threads and end with the process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
LOG = logging.getLogger(__name__)


class Worker:
    """A thread that runs jobs one after the other. Without jobs it calls ``idle`` as long as ``idle`` returns True.

    An error of ``idle`` goes to the log, once as long as it stays the same. The next job makes ``idle`` try again.

    >>> worker = Worker("an example")
    >>> worker.close()
    """

    def __init__(self, name: str, idle: Callable[[], bool] = lambda: False) -> None:
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._idle = idle
        self._is_open = True
        self._logged = ""
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a function in the thread, and return its result. The job of a cancelled caller is skipped."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if not future.done():  # the request may have been cancelled
                future.set_result(result) if error is None else future.set_exception(error)

        def job() -> None:
            if future.cancelled():
                return
            result, failure = None, None
            try:
                result = function(*arguments, **options)
            except BaseException as error:
                failure = error
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result, failure)

        self._jobs.put(job)
        return await future

    def wake(self) -> None:
        """Make the thread check again whether there is idle work."""
        self._jobs.put(lambda: None)

    def close(self) -> None:
        """End the thread after its current job."""
        self._is_open = False
        self.wake()
        self._thread.join()

    def _work(self) -> None:
        while self._is_open:
            self._jobs.get()()
            while self._is_open and self._jobs.empty() and self._more():
                pass

    def _more(self) -> bool:
        try:
            return self._idle()
        except Exception as error:
            if repr(error) != self._logged:
                LOG.exception("preparing later answers failed")
            self._logged = repr(error)
            return False
