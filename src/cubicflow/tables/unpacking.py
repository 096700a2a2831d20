"""How much a packed table may hold: a few kilobytes should not become a gigabyte without a word."""

from __future__ import annotations

import os
from pathlib import Path

from cubicflow.tables.table_error import TableError

VARIABLE = "CUBICFLOW_UNPACK_RATIO"
RATIO = 200  # unpacked bytes for each packed one; tables of text and numbers have 2 to 30
FREE_BYTES = 1 << 27  # that any file may unpack to


def most_unpacked(packed: int) -> int:
    """The bytes that a file of ``packed`` bytes may unpack to.

    >>> most_unpacked(4096), most_unpacked(10**6)
    (134217728, 200000000)
    """
    told = os.environ.get(VARIABLE, "")
    try:
        ratio = float(told) if told else RATIO
    except ValueError:
        ratio = 0.0
    if not 1 <= ratio < 1e9:
        raise TableError(f"the environment variable {VARIABLE} should be a number from 1 to 1e9, got {told!r}")
    return max(FREE_BYTES, int(ratio * packed))


def check_unpacked(path: Path | str, packed: int, unpacked: int) -> None:
    """Refuse a file that unpacks to more than that.

    >>> check_unpacked(Path("t.npz"), 4096, 800_000_000)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    cubicflow.tables.table_error.TableError: t.npz: 4,096 bytes unpack to 800,000,000 or more, ...
    """
    if unpacked > most_unpacked(packed):
        ratio = float(os.environ.get(VARIABLE) or RATIO)
        raise TableError(
            f"{path}: {packed:,} bytes unpack to {unpacked:,} or more, over {ratio:g} times as many; if that is right, "
            f"set the environment variable {VARIABLE} to a larger number"
        )
