"""Tables that can be named where a file is expected: points of the plane densities."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from cubicflow.atomic_files import replacing
from cubicflow.data.folders import cache_folder
from cubicflow.data.plane import GaussianGrid, ImageDensity

POINTS = 100_000
BUILT_IN: dict[str, Callable[[], GaussianGrid | ImageDensity]] = {
    "gaussians": GaussianGrid,
    "grace-hopper": ImageDensity.from_file,
}


def built_in_table(name: str) -> Path:
    """The .npz file of a built-in table with columns x and y, made on first use and kept in the cache folder.

    A name that a file shares is the file's: commands ask for a built-in table only where there is none.
    """
    path = cache_folder() / "built-in" / f"{name}.npz"
    if not path.exists():
        points = BUILT_IN[name]().sample(POINTS, 0)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            np.savez(file, x=points[:, 0], y=points[:, 1])
    return path
