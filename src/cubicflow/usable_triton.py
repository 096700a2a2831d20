"""Whether Triton is installed in a version that runs cubicflow's kernels."""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib.metadata import PackageNotFoundError, version

OLDEST = (3, 4)  # no older version has been tried


@cache
def why_no_triton() -> str | None:
    """Return why the kernels cannot run on the installed Triton, or None. Triton is not imported."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed; on Linux, pip install triton"
    try:
        found = version("triton")
    except PackageNotFoundError:  # a build of Triton without metadata, such as pytorch-triton
        return None
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST:
        return f"Triton {found} is older than {'.'.join(map(str, OLDEST))}; install a torch that comes with a newer one"
    return None
