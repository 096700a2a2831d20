"""Requests to stop (Ctrl-C, SIGTERM, the caller's ``stop`` function), which the loop handles between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Context manager that records the first signal instead of acting on it.

    Args:
        saved: whether the run is saved. Signals act as usual if not; ``stop`` works in both cases.
        patient: whether to ignore a second signal as well; otherwise a second signal acts as usual. Under torchrun
            a signal arrives twice, from the terminal and from torchrun, and the second must not interrupt saving.
        stop: a function without arguments that returns True to stop the run.
    """

    def __init__(self, *, saved: bool, patient: bool = False, stop: Callable[[], bool] | None = None) -> None:
        if stop is not None and not callable(stop):
            raise TypeError(f"stop must be a function without arguments that returns True to stop, got {stop!r}")
        self.saved = saved
        # Python sets signal handlers only in the main thread. In other threads signals act as usual.
        self.enabled = saved and threading.current_thread() is threading.main_thread()
        self.patient = patient
        self.stop = stop
        self.received: signal.Signals | None = None
        self.before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if self.enabled:
            self.before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def requested(self) -> bool:
        """Return whether a signal was received or ``stop`` returns True."""
        return self.received is not None or (self.stop is not None and bool(self.stop()))

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.received = signal.Signals(number)
        if not self.patient:
            self._restore()

    def _restore(self) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.before = {}
