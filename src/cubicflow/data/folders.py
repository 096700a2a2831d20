"""The data folder, which holds data files, and the cache folder, which holds files computed from them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

DATA_VARIABLE = "CUBICFLOW_DATA"
CACHE_VARIABLE = "CUBICFLOW_CACHE"


class MissingDataError(FileNotFoundError):
    """Files of a data set are missing. The message gives their names, their origin and where to put them."""


def data_folder(folder: str | Path | None = None) -> Path:
    """Return ``folder`` if given, else the folder in ``CUBICFLOW_DATA``, else ``data`` in the cache folder."""
    if folder is not None:
        return Path(folder).expanduser()
    if named := os.environ.get(DATA_VARIABLE):
        return Path(named).expanduser()
    return cache_folder() / "data"


def cache_folder() -> Path:
    """Return the folder in ``CUBICFLOW_CACHE``, else ``cubicflow`` in ``XDG_CACHE_HOME`` or ``~/.cache``."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "cubicflow"


def find(folder: Path, names: Sequence[str]) -> Path | None:
    """Return the first of ``names`` (relative paths, best first) that exists under ``folder``, or None."""
    return next((path for name in names if (path := folder / name).exists()), None)


def how_to_choose_folder(folder: Path) -> str:
    """Return the last sentence of every message about missing files."""
    return (
        f"The data folder is {folder}; to use another folder, pass folder=... (--data) or set the environment "
        f"variable {DATA_VARIABLE}."
    )
