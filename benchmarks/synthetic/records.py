"""Records, one JSON file for each table and generator: numbers, settings, versions, hardware and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MODELS = {
    "cubicflow": "cubicflow",
    "sdv-gaussian-copula": "SDV GaussianCopula",
    "sdv-tvae": "SDV TVAE",
    "mostlyai": "mostlyai-engine",
    "sdv-ctgan": "SDV CTGAN",
}

Record = dict[str, Any]


def record_path(folder: Path, table: str, model: str) -> Path:
    return folder / f"{table}-{model}.json"


def make_record(table: str, model: str, generated: Record, judged: Record, where: Record) -> Record:
    """Return the record of one generator and its judges. ``where`` holds the command, the time and the machine."""
    found = {name: value for name, value in judged.items() if name != "versions"}
    packages = {**generated["versions"], **judged["versions"]}
    about = {name: generated[name] for name in ("settings", "seconds", "log_mass", "threads")}
    return {"table": table, "model": model, **where, "versions": packages, **about, "judged": found}


def failed_record(table: str, model: str, reason: str, where: Record) -> Record:
    """Return the record of a generator that failed, with the reason."""
    return {"table": table, "model": model, **where, "failed": reason}


def write_record(folder: Path, record: Record) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = record_path(folder, record["table"], record["model"])
    path.write_text(json.dumps(record, indent=1) + "\n")


def read_records(folder: Path, tables: list[str]) -> list[Record]:
    """Return the records that exist, ordered by table and then by generator."""
    paths = [record_path(folder, table, model) for table in tables for model in MODELS]
    return [json.loads(path.read_text()) for path in paths if path.exists()]
