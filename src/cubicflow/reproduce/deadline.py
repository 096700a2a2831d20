"""How long one call may take. The schedule of a training run is in steps, so where a call ends changes no result."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

RETRY_SECONDS = 0.2


class Deadline:
    """So many seconds from now, or never.

    The training loop answers SIGTERM between two steps: it saves and raises TrainingInterrupted. When the time is over
    this process sends that signal to itself, but only while the loop listens: at any other moment it would die of it.

    >>> Deadline(None).over, Deadline(0).over
    (False, True)
    """

    def __init__(self, seconds: float | None) -> None:
        if seconds is not None and not 0 <= seconds < float("inf"):
            raise ValueError(f"seconds must be a number, 0 or more, got {seconds}")
        self.end = None if seconds is None else time.monotonic() + seconds

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self.end is not None and time.monotonic() >= self.end

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While this lasts, a training loop that runs past the end is asked to stop. In the main thread alone, where
        the loop listens too."""
        if self.end is None or threading.current_thread() is not threading.main_thread():
            yield
            return
        self.handler_outside = signal.getsignal(signal.SIGTERM)
        before = signal.signal(signal.SIGALRM, self._ask)
        signal.setitimer(signal.ITIMER_REAL, max(self.end - time.monotonic(), 1e-3), RETRY_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def _ask(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if signal.getsignal(signal.SIGTERM) is not self.handler_outside:
            signal.raise_signal(signal.SIGTERM)
