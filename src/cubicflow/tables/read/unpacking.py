"""A limit on the unpacked size of compressed files, so that a few kilobytes cannot fill the memory."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pyarrow as pa

from cubicflow.tables.table_error import TableError

VARIABLE = "CUBICFLOW_UNPACK_RATIO"
RATIO = 200  # unpacked bytes per packed byte; tables of text and numbers have 2 to 30
FREE_BYTES = 1 << 27  # any file may unpack to this size


def most_unpacked(packed: int) -> int:
    """Return the largest allowed unpacked size, in bytes, of a file of ``packed`` bytes.

    >>> most_unpacked(4096), most_unpacked(10**6)
    (134217728, 200000000)
    """
    return max(FREE_BYTES, int(_ratio() * packed))


def _ratio() -> float:
    requested = os.environ.get(VARIABLE, "")
    try:
        ratio = float(requested) if requested else RATIO
    except ValueError:
        ratio = 0.0
    if not 1 <= ratio < 1e9:
        raise TableError(f"the environment variable {VARIABLE} should be a number from 1 to 1e9, got {requested!r}")
    return ratio


def check_unpacked(path: Path | str, packed: int, unpacked: int) -> None:
    """Raise TableError if a file unpacks to more than the allowed size.

    >>> check_unpacked(Path("t.npz"), 4096, 800_000_000)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    cubicflow.tables.table_error.TableError: t.npz: 4,096 bytes unpack to 800,000,000 or more, ...
    """
    if unpacked > most_unpacked(packed):
        raise TableError(
            f"{path}: {packed:,} bytes unpack to {unpacked:,} or more, over {_ratio():g} times as many; if that is "
            f"right, set the environment variable {VARIABLE} to a larger number"
        )


class Unpacked(io.RawIOBase):
    """The text in a gzip file. Reading raises TableError if the text is implausibly large for the file."""

    def __init__(self, path: Path, packed: io.RawIOBase) -> None:
        super().__init__()
        self._path, self._packed = path, path.stat().st_size
        self._stream = pa.input_stream(packed, compression="gzip")
        self._most, self._count = most_unpacked(self._packed), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._stream.readinto(buffer)
        self._count += count
        if self._count > self._most:
            check_unpacked(self._path, self._packed, self._count)
        return count
