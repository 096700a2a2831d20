"""The overview of a run, kept in the cache folder, so that a page that is opened again shows it at once.

The overview needs the answers of three routes: the run, its columns and its data. They depend on the run folder, the
fitted table, and the versions and threads that compute them; a hash of all of these is the *state*. A cached overview
is shown only for the same state. This module does not import torch, which takes seconds.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from cubicflow.explore.framed import framed, unframed
from cubicflow.files import cache_folder, check_plain, write_atomically

CONFIG, WEIGHTS, CHECKPOINT = "config.json", "model.safetensors", "checkpoint.safetensors"  # the files of a run
OVERVIEW = ("run", "columns", "data")
MOST_CONFIG = 1 << 24  # bytes of the largest config.json that is read here
LONGEST_NAME = 24  # characters of the name of a cached file


def signature(run: Path) -> str:
    """Return a name of the state of a run folder: a hash of the sizes and modification times of its files."""
    found = [_stat(run / name) for name in (CONFIG, WEIGHTS, CHECKPOINT)]
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]


def sound_config(run: Path) -> dict[str, Any] | None:
    """Return config.json of a run; None if the file is missing, damaged or too large.

    >>> sound_config(Path("no/such/run")) is None
    True
    """
    try:
        check_plain(run / CONFIG, MOST_CONFIG)
        config = json.loads((run / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    is_sound = isinstance(config, dict) and config.get("format") == "cubicflow" and config.get("version") == 1
    return config if is_sound else None


class CachedOverview:
    """The cached answers of one run.

    Attributes:
        answers: the answers by their route; empty if none are cached for the run's present state.
    """

    def __init__(self, run: Path) -> None:
        self.run, self.state = run, _state(run)
        name = hashlib.sha256(os.fsencode(run.resolve())).hexdigest()[:LONGEST_NAME]
        self.path = cache_folder() / "explore" / f"{name}.safetensors"
        self.answers = self._read()
        self._new: dict[str, bytes] = {}

    def keep(self, route: str, answer: bytes) -> None:
        """Keep the answer of a route of the overview. The file is written when there are answers of all three."""
        if self.answers or self.state is None or route not in OVERVIEW:
            return
        self._new[route] = answer
        if len(self._new) < len(OVERVIEW) or self.state != _state(self.run):
            return
        arrays = {name: np.frombuffer(content, np.uint8) for name, content in self._new.items()}
        with suppress(OSError):  # a cache folder that cannot be written costs only time
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, framed({"state": self.state}, arrays))
        self.answers = self._new

    def _read(self) -> Mapping[str, bytes]:
        if self.state is None:
            return {}
        try:
            header, arrays = unframed(self.path.read_bytes())
        except (OSError, ValueError):
            return {}
        is_same = header.get("state") == self.state and set(arrays) == set(OVERVIEW)
        return {name: array.tobytes() for name, array in arrays.items()} if is_same else {}


def _state(run: Path) -> str | None:
    """Return a hash of all that the overview depends on; None for a run that is unfinished or not sound."""
    config = sound_config(run) or {}
    result, table = (value if isinstance(value := config.get(key), dict) else {} for key in ("result", "table"))
    if result.get("finished") is not True:
        return None
    source = table.get("source")
    versions: list[Any] = [_version(name) for name in ("cubicflow", "torch", "numpy", "pyarrow")]
    versions += [_stat(path) for path in sorted(Path(__file__).parent.glob("*.py"))]  # the code of the answers
    threads = [os.cpu_count(), os.environ.get("OMP_NUM_THREADS")]
    parts = [signature(run), _stat(Path(str(source))) if source else None, versions, threads]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _stat(path: Path) -> tuple[int, int] | None:
    with suppress(OSError, ValueError):
        found = path.stat()
        return found.st_size, found.st_mtime_ns
    return None


def _version(name: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(name)
    return None
