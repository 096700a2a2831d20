"""judge.json in a run folder: a judgement of samples, and a hash of the weights that drew the samples."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from cubicflow.files import check_plain, write_atomically
from cubicflow.flows.serialization import WEIGHTS_FILE
from cubicflow.tables.judging.judgement import Judgement, Line

JUDGE_FILE = "judge.json"
MOST_BYTES = 1 << 24


class SavedJudgement(NamedTuple):
    """The parts of a judgement that a report shows."""

    verdict: str
    lines: list[Line]
    remarks: list[str]


def judgement_text(judgement: Judgement, run: Path | None = None) -> str:
    """Return a judgement as JSON. If a run is given, the JSON includes a hash of the run's weights."""
    about = {} if run is None else {"weights": _hash_of_weights(run)}
    return json.dumps({**judgement.to_json(), **about}, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def write_judgement(path: Path, judgement: Judgement, run: Path | None = None) -> None:
    """Write a judgement atomically."""
    write_atomically(path, judgement_text(judgement, run).encode())


def read_judgement(run: Path) -> SavedJudgement | None:
    """Return the saved judgement of a run's samples; None if there is none for the current weights or it is invalid.

    >>> read_judgement(Path("no/such/run")) is None
    True
    """
    try:
        check_plain(run / JUDGE_FILE, MOST_BYTES)
        found = json.loads((run / JUDGE_FILE).read_text(encoding="utf-8"))
        if found["weights"] != _hash_of_weights(run):  # the run was fitted again
            return None
        lines = [(str(what), str(ours), str(new)) for what, ours, new in found["lines"]]
        return SavedJudgement(str(found["verdict"]), lines, [*map(str, found["worst"]), *map(str, found["notes"])])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _hash_of_weights(run: Path) -> Any:
    with (run / WEIGHTS_FILE).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
