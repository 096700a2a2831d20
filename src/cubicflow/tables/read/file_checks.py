"""Checks of files: a file must not change while it is read, nor unpack to an implausible size; and its fingerprint."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cubicflow.tables.table_error import TableError

TICK = 10_000_000  # ns; the resolution of file timestamps

BLOCKS = 64  # blocks of a file that its fingerprint covers
BLOCK_BYTES = 1 << 16

VARIABLE = "CUBICFLOW_UNPACK_RATIO"
RATIO = 200  # unpacked bytes per packed byte; tables of text and numbers have 2 to 30
FREE_BYTES = 1 << 27  # any file may unpack to this size


# --- changes ---


class Stamps:
    """The sizes and timestamps of files, to detect changes.

    No program can set the time of the last change (``ctime``). So a changed or replaced file is detected even if its
    size and modification time were restored. A file that was only touched counts as changed, because the two cannot be
    told apart. Inode numbers would add nothing, and some filesystems reassign them.

    Args:
        find: returns the files; called for every comparison, because a folder may gain files.
    """

    def __init__(self, find: Callable[[], Sequence[Path]]) -> None:
        self._find = find
        newest = max((stamp[-1] for stamp in self._found()), default=0)
        # Another change within the same tick would leave the timestamp unchanged.
        if 0 <= time.time_ns() - newest < TICK:
            time.sleep(TICK / 1e9)
        self._recorded = self._found()

    def _found(self) -> list[tuple[int, int, int]]:
        """Return the size, the modification time and the change time of each file."""
        found = [path.stat() for path in self._find()]
        return [(file.st_size, file.st_mtime_ns, file.st_ctime_ns) for file in found]

    def are_current(self) -> bool:
        """Return whether no file has changed."""
        try:
            return self._found() == self._recorded
        except OSError:
            return False


def changed(path: object, before: int | None = None, after: int | None = None) -> TableError:
    """Return the error for a file that changed: ``before`` and ``after`` are its rows in two passes, if they differ."""
    how = "" if before is None else f": {before} rows were found at first, {after} later"
    return TableError(f"{path}: the file changed while it was read{how}; start again when no program writes to it")


# --- fingerprints: they tell whether a table is the fitted one ---


def fingerprint_of_files(paths: Sequence[Path]) -> str:
    """Return a hash of the sizes of the files and of their blocks.

    A file up to 4 MiB is hashed whole. Of a larger file only 64 evenly spaced blocks are hashed, so the time does not
    grow with the file.
    """
    digest = hashlib.sha256()
    for path in paths:
        size = path.stat().st_size
        digest.update(size.to_bytes(8, "big"))
        with path.open("rb") as file:
            if size <= BLOCKS * BLOCK_BYTES:
                digest.update(file.read())
                continue
            for i in range(BLOCKS):
                file.seek((size - BLOCK_BYTES) * i // (BLOCKS - 1))
                digest.update(file.read(BLOCK_BYTES))
    return digest.hexdigest()


# --- unpacked sizes: a few kilobytes must not fill the memory ---


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
    """Raise TableError if a file of ``packed`` bytes unpacks to more than the allowed size."""
    ratio = _ratio()
    if unpacked > max(FREE_BYTES, ratio * packed):
        raise TableError(
            f"{path}: {packed:,} bytes unpack to {unpacked:,} or more, over {ratio:g} times as many; if that is "
            f"right, set the environment variable {VARIABLE} to a larger number"
        )
