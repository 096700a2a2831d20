"""Display of progress: a live line in a terminal, plain lines elsewhere, a caller's function, or nothing.

A function that takes a while has an argument ``progress``: False, True, or a function that is called with each line.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

# Format of each metric in a line, in this order. A narrow terminal leaves out LEAST_NEEDED, its first ones first.
SHOWN = {
    "step": "step {:,}",
    "loss": "loss {:.4f}",
    "validation_loss": "validation {:.4f}",
    "validation_loss_averaged": "averaged {:.4f}",
    "rows_per_second": "{:,.0f} rows/s",
}
LEAST_NEEDED = ("rows_per_second", "validation_loss_averaged", "step", "validation_loss", "loss")
BAR_WIDTH = 16  # columns
PERCENT_WIDTH = 4
GAP = "  "


class Progress:
    """Base class, which shows nothing."""

    def update(self, done: float, metrics: Mapping[str, Any]) -> None:
        """Show the metrics of a logged step. ``done`` is the completed fraction of the run."""

    def show(self, done: float, texts: Mapping[str, str]) -> None:
        """Show a line of texts by name. A narrow terminal shows only some, but always the one named "left"."""

    def notify(self, text: str) -> None:
        """Show a sentence that stays visible."""

    def close(self) -> None:
        """Stop the display."""


class PlainLines(Progress):
    """Lines for a function ``write``: one for each validation, or for each logged step if there is no validation.

    Between two lines there are at least ``pause`` seconds.
    """

    def __init__(self, write: Callable[[str], object], *, validates: bool = False, pause: float = 0.0) -> None:
        self.write = write
        self.validates = validates
        self.pause = pause
        self.shown = time.monotonic()

    def update(self, done: float, metrics: Mapping[str, Any]) -> None:
        if not self.validates or "validation_loss" in metrics:
            self.show(done, texts_of(done, metrics))

    def show(self, done: float, texts: Mapping[str, str]) -> None:  # noqa: ARG002 - the texts say how much is left
        if time.monotonic() - self.shown >= self.pause:
            self.shown = time.monotonic()
            self.notify(GAP.join(texts.values()))

    def notify(self, text: str) -> None:
        self.write(text)


class LiveLine(Progress):
    """Progress bar on standard error, drawn by rich."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        columns = BarColumn(BAR_WIDTH), TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.description}")
        self.bar = RichProgress(*columns, console=Console(stderr=True))
        self.task = self.bar.add_task("starting", total=1.0)
        self.seen: dict[str, Any] = {}
        self.bar.start()

    def update(self, done: float, metrics: Mapping[str, Any]) -> None:
        self.seen |= metrics  # keeps the last validation loss in the line
        self.show(done, texts_of(done, self.seen))

    def show(self, done: float, texts: Mapping[str, str]) -> None:
        # rich takes the columns that are missing from the bar, until no bar is left.
        room = self.bar.console.width - BAR_WIDTH - PERCENT_WIDTH - 2
        self.bar.update(self.task, completed=done, description=fitted(texts, room))

    def notify(self, text: str) -> None:
        self.bar.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self.bar.stop()


class PieceProgress:
    """Number of finished pieces of work, such as blocks of rows, and the remaining time.

    Args:
        display: where to show them.
        what: the name of a piece.
        number: the number of all pieces.
        before: the number of pieces that an earlier call finished.
    """

    def __init__(self, display: Progress, what: str, number: int, before: int = 0) -> None:
        self.display, self.what, self.number, self.before = display, what, number, before
        self.began = time.monotonic()

    def update(self, done: int) -> None:
        """Show that so many pieces are finished, those of an earlier call included."""
        seconds = (time.monotonic() - self.began) / (done - self.before) * (self.number - done)
        counted = f"{self.what} {done:,} of {self.number:,}"
        self.display.show(done / self.number, {self.what: counted, "left": f"{clock(seconds)} left"})


def make_progress(progress: bool | Callable[[str], object], *, validates: bool = False, pause: float = 0.0) -> Progress:
    """Return a display: a live line in a terminal if rich is installed, else plain lines.

    ``pause`` is the time between two lines on standard error, in seconds. A function gets all lines.
    """
    if progress is False:
        return Progress()
    if progress is True and sys.stderr.isatty():
        with suppress(ImportError):  # rich is optional
            return LiveLine()
    return PlainLines(line_writer(progress), validates=validates, pause=pause if progress is True else 0.0)


def line_writer(progress: bool | Callable[[str], object]) -> Callable[[str], object]:
    """Return a function that shows a line as ``progress`` says: not at all, on standard error, or by the caller.

    >>> lines = []
    >>> line_writer(lines.append)("half done")
    >>> lines
    ['half done']
    """
    if not isinstance(progress, bool):
        if not callable(progress):
            raise TypeError(f"progress must be True, False or a function of a line, got {progress!r}")
        return progress
    return _print_line if progress else _ignore_line


def _print_line(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _ignore_line(line: str) -> None:
    """Print nothing."""


def texts_of(done: float, metrics: Mapping[str, Any]) -> dict[str, str]:
    """Format the metrics and the remaining time.

    >>> metrics = {"step": 500, "loss": 3.21, "validation_loss": 3.5, "rows_per_second": 81234.0, "seconds": 65.0}
    >>> "  ".join(texts_of(0.5, metrics).values())
    'step 500  loss 3.2100  validation 3.5000  81,234 rows/s  1:05 left'
    """
    texts = {name: text.format(metrics[name]) for name, text in SHOWN.items() if name in metrics}
    return texts | ({"left": f"{clock(metrics['seconds'] * (1 - done) / done)} left"} if done > 0 else {})


def fitted(texts: Mapping[str, str], width: int) -> str:
    """Join the texts that fit into a width in characters.

    >>> fitted({"step": "step 500", "loss": "loss 3.2100", "left": "1:05 left"}, 24)
    'loss 3.2100  1:05 left'
    """
    kept = dict(texts)
    others = [name for name in texts if name not in LEAST_NEEDED and name != "left"]
    for name in (*LEAST_NEEDED, *reversed(others)):
        if len(GAP.join(kept.values())) > width:
            kept.pop(name, None)
    return GAP.join(kept.values())


def clock(seconds: float) -> str:
    """Format seconds as minutes and seconds, with hours if there are any.

    >>> clock(65), clock(3661)
    ('1:05', '1:01:01')
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
