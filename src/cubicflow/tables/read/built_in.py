"""Built-in tables, which commands accept by name in place of a file: points of the plane densities."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from cubicflow.data.plane import GaussianGrid, ImageDensity
from cubicflow.files import cache_folder, replacing

POINTS = 100_000
BUILT_IN: dict[str, Callable[[], GaussianGrid | ImageDensity]] = {
    "gaussians": GaussianGrid,
    "grace-hopper": ImageDensity.from_file,
}


def built_in_table(name: str) -> Path:
    """Return the path of a built-in table, an .npz file with columns x and y.

    The file is created on first use in the cache folder. A file in the working folder takes precedence over a built-in
    table of the same name: commands call this function only if no such file exists.
    """
    path = cache_folder() / "built-in" / f"{name}.npz"
    if not path.exists():
        points = BUILT_IN[name]().sample(POINTS, 0)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            np.savez(file, x=points[:, 0], y=points[:, 1])
    return path
