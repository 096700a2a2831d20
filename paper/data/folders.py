"""The data folder, which holds the files of benchmark tables and images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from cubicflow.files import cache_folder

DATA_VARIABLE = "CUBICFLOW_DATA"


class MissingDataError(FileNotFoundError):
    """Files of a data set are missing. The message gives their names, their origin and where to put them."""


def data_folder(folder: str | Path | None = None) -> Path:
    """Return ``folder`` if given, else the folder in ``CUBICFLOW_DATA``, else ``data`` in the cache folder."""
    if folder is not None:
        return Path(folder).expanduser()
    if named := os.environ.get(DATA_VARIABLE):
        return Path(named).expanduser()
    return cache_folder() / "data"


def find(folder: Path, names: Sequence[str]) -> Path | None:
    """Return the first of ``names`` (relative paths, best first) that exists under ``folder``, or None."""
    return next((path for name in names if (path := folder / name).exists()), None)


def how_to_choose_folder(folder: Path) -> str:
    """Return the last sentence of every message about missing files."""
    return (
        f"The data folder is {folder}; to use another folder, pass folder=... (--data) or set the environment "
        f"variable {DATA_VARIABLE}."
    )
