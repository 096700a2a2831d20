"""metrics.jsonl: one line of JSON for each logged step."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from cubicflow.files import check_plain
from cubicflow.saved import LARGEST

METRICS_FILE = "metrics.jsonl"
MOST_BYTES = 1 << 26  # a quarter of a million lines
MOST_IN_LINE = 1 << 16  # bytes


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the complete lines of metrics.jsonl in order; an empty list if there is no file.

    Lines that no run writes are left out: lines with nested values, with integers above LARGEST, or without a step.

    Raises:
        NotPlainError: the path is not a plain file, or the file is larger than MOST_BYTES.

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
    complete = []
    with path.open("rb") as file:
        while line := file.readline(MOST_IN_LINE):
            with suppress(ValueError, RecursionError):
                metrics = json.loads(line)
                if _is_valid(metrics):
                    complete.append(metrics)
    return complete


def _is_valid(metrics: Any) -> bool:
    if not isinstance(metrics, dict) or not all(map(_is_plain, metrics.values())):
        return False
    step = metrics.get("step")
    return isinstance(step, int) and not isinstance(step, bool) and step >= 0


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | float) or (isinstance(value, int) and abs(value) <= LARGEST)
