"""Where data files are looked for, and where what is computed from them is kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

DATA_VARIABLE = "CUBICFLOW_DATA"
CACHE_VARIABLE = "CUBICFLOW_CACHE"


class MissingDataError(FileNotFoundError):
    """A data set's files are not there; the message names them, where they come from and where to put them."""


def data_folder(folder: str | Path | None = None) -> Path:
    """``folder`` if given, else the one ``CUBICFLOW_DATA`` names, else ``data`` in the cache folder."""
    if folder is not None:
        return Path(folder).expanduser()
    if named := os.environ.get(DATA_VARIABLE):
        return Path(named).expanduser()
    return cache_folder() / "data"


def cache_folder() -> Path:
    """The folder ``CUBICFLOW_CACHE`` names, else ``cubicflow`` where this system keeps a user's caches."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "cubicflow"


def find(folder: Path, names: Sequence[str]) -> Path | None:
    """The first of ``names`` (relative paths, best first) that is a file or a folder under ``folder``."""
    return next((path for name in names if (path := folder / name).exists()), None)


def how_to_choose_folder(folder: Path) -> str:
    """The sentence that ends every message about missing files."""
    return (
        f"Files are looked for under {folder}; to use another folder, pass folder=... (--data) or set the environment "
        f"variable {DATA_VARIABLE}."
    )
