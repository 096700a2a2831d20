"""Ctrl-C, SIGTERM and a function of the caller's as requests that the loop answers between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While this lasts, the first signal is only noted. A second one acts as usual, unless ``patient``: torchrun passes
    on what the terminal has already sent, and that must not cut the saving short. Signals act as usual where nothing is
    ``saved``; ``stop`` is asked all the same."""

    def __init__(self, *, saved: bool, patient: bool = False, stop: Callable[[], bool] | None = None) -> None:
        if stop is not None and not callable(stop):
            raise TypeError(f"stop must be a function without arguments that says whether to stop, got {stop!r}")
        self.saved = saved
        # Handlers can be set in the main thread alone; elsewhere signals act as usual.
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

    def asked(self) -> bool:
        """Whether a signal came, or ``stop`` says so."""
        return self.received is not None or (self.stop is not None and bool(self.stop()))

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.received = signal.Signals(number)
        if not self.patient:
            self._restore()

    def _restore(self) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.before = {}
