"""metrics.jsonl: a line of JSON for each time that metrics were logged."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from cubicflow.plain_files import check_plain

METRICS_FILE = "metrics.jsonl"
MOST_BYTES = 1 << 26  # a quarter of a million lines
MOST_IN_LINE = 1 << 16
LARGEST = 2**53  # of whole numbers, which a float holds as well


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines that are whole, in order; none where there is no such file. Raises NotPlainError for what is no such
    file, and leaves out what no run has written: nested values, and numbers beyond any step or loss.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, METRICS_FILE).write_text('{"step": 1, "loss": 2.5}\\n{"step": 2, "lo')
    ...     read_metrics(Path(folder))
    [{'step': 1, 'loss': 2.5}]
    """
    path = folder / METRICS_FILE
    if not path.exists():
        return []
    check_plain(path, MOST_BYTES)
    whole = []
    with path.open("rb") as file:
        while line := file.readline(MOST_IN_LINE):
            with suppress(ValueError, RecursionError):
                metrics = json.loads(line)
                if _is_whole(metrics):
                    whole.append(metrics)
    return whole


def _is_whole(metrics: Any) -> bool:
    if not isinstance(metrics, dict) or not all(map(_is_plain, metrics.values())):
        return False
    step = metrics.get("step")
    return isinstance(step, int) and not isinstance(step, bool) and step >= 0


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | float) or (isinstance(value, int) and abs(value) <= LARGEST)
