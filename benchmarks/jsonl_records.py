"""Records of a benchmark, one JSON object a line. An interrupted benchmark continues after its last record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return all records of a file, or an empty list if the file does not exist."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def add_record(path: Path, record: dict[str, Any]) -> None:
    """Append a record to a file. Create the file if it does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")
