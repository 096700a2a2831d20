"""The cache folder, which holds files that were downloaded or computed once."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "CUBICFLOW_CACHE"


def cache_folder() -> Path:
    """Return the folder in ``CUBICFLOW_CACHE``, else ``cubicflow`` in ``XDG_CACHE_HOME`` or ``~/.cache``."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "cubicflow"
