"""Ctrl-C and SIGTERM as a request that the loop answers between two steps."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While this lasts, the first signal is only noted. A second one acts as usual, unless ``patient``: torchrun passes
    on what the terminal has already sent, and that must not cut the saving short."""

    def __init__(self, *, enabled: bool, patient: bool = False) -> None:
        # Handlers can be set in the main thread alone; elsewhere signals act as usual.
        self.enabled = enabled and threading.current_thread() is threading.main_thread()
        self.patient = patient
        self.received: signal.Signals | None = None
        self.before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if self.enabled:
            self.before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.received = signal.Signals(number)
        if not self.patient:
            self._restore()

    def _restore(self) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.before = {}
