"""Records of a benchmark, one JSON object a line, so that a run that was cut short goes on where it stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_records(path: Path) -> list[dict[str, Any]]:
    """All records of a file; none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def add_record(path: Path, record: dict[str, Any]) -> None:
    """Append a record to a file, which is made if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")
