"""Display of training progress: a live line in a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

# Format of each metric in a line, in this order.
SHOWN = {
    "loss": "loss {:.4f}",
    "validation_loss": "validation {:.4f}",
    "validation_loss_averaged": "averaged {:.4f}",
    "rows_per_second": "{:,.0f} rows/s",
}


class Progress:
    """Base class, which shows nothing."""

    def update(self, done: float, metrics: Mapping[str, Any]) -> None:
        """Show the metrics of a logged step. ``done`` is the completed fraction of the run."""

    def notify(self, text: str) -> None:
        """Show a sentence that stays visible."""

    def close(self) -> None:
        """Stop the display."""


class PlainLines(Progress):
    """Lines on standard error: one for each validation, or one for each logged step if there is no validation."""

    def __init__(self, *, validates: bool) -> None:
        self.validates = validates

    def update(self, done: float, metrics: Mapping[str, Any]) -> None:
        if not self.validates or "validation_loss" in metrics:
            self.notify(describe(done, metrics))

    def notify(self, text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


class LiveLine(Progress):
    """Progress bar on standard error, drawn by rich."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        columns = BarColumn(bar_width=24), TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.description}")
        self.bar = RichProgress(*columns, console=Console(stderr=True))
        self.task = self.bar.add_task("starting", total=1.0)
        self.seen: dict[str, Any] = {}
        self.bar.start()

    def update(self, done: float, metrics: Mapping[str, Any]) -> None:
        self.seen |= metrics  # keeps the last validation loss in the line
        self.bar.update(self.task, completed=done, description=describe(done, self.seen))

    def notify(self, text: str) -> None:
        self.bar.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self.bar.stop()


def make_progress(show: bool, *, validates: bool) -> Progress:
    """Return the display: a live line in a terminal if rich is installed, else plain lines; none unless ``show``."""
    if not show:
        return Progress()
    if sys.stderr.isatty():
        with suppress(ImportError):  # rich is optional
            return LiveLine()
    return PlainLines(validates=validates)


def describe(done: float, metrics: Mapping[str, Any]) -> str:
    """Format the metrics as a line.

    >>> describe(0.5, {"step": 500, "loss": 3.21, "validation_loss": 3.5, "rows_per_second": 81234.0, "seconds": 65.0})
    'step 500  loss 3.2100  validation 3.5000  81,234 rows/s  1:05 left'
    """
    parts = [f"step {metrics['step']:,}"]
    parts += [text.format(metrics[name]) for name, text in SHOWN.items() if name in metrics]
    if done > 0:
        parts.append(f"{clock(metrics['seconds'] * (1 - done) / done)} left")
    return "  ".join(parts)


def clock(seconds: float) -> str:
    """Format seconds as minutes and seconds, with hours if there are any.

    >>> clock(65), clock(3661)
    ('1:05', '1:01:01')
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
