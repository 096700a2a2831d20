"""A time limit for one call. Training schedules count steps, so the moment at which a call ends changes no result."""

from __future__ import annotations

import time


class Deadline:
    """A moment ``seconds`` from now; None for no limit.

    >>> Deadline(None).over(), Deadline(0).over()
    (False, True)
    """

    def __init__(self, seconds: float | None) -> None:
        if seconds is not None and not 0 <= seconds < float("inf"):
            raise ValueError(f"seconds must be a number, 0 or more, got {seconds}")
        self.end = None if seconds is None else time.monotonic() + seconds

    def over(self) -> bool:
        """Return whether the deadline has passed."""
        return self.left() == 0

    def left(self) -> float | None:
        """Return the seconds until the deadline, at least 0; None for no limit."""
        return None if self.end is None else max(self.end - time.monotonic(), 0.0)
