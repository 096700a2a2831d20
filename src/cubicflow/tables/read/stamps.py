"""Stamps of files: a file must not change between the opening of a table and the reading of its last row."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cubicflow.tables.table_error import TableError

TICK = 10_000_000  # ns; the resolution of file timestamps


class Stamps:
    """The sizes and timestamps of files, to detect changes.

    No program can set the time of the last change (``ctime``). So a changed or replaced file is detected even if its
    size and modification time were restored. A file that was only touched counts as changed, because the two cannot be
    told apart. Inode numbers would add nothing, and some filesystems reassign them.

    Args:
        find: returns the files; called for every comparison, because a folder may gain files.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "t.csv")
    ...     _ = path.write_text("a,b")
    ...     stamps = Stamps(lambda: [path])
    ...     before = stamps.are_current()
    ...     _ = path.write_text("b,a")
    ...     before, stamps.are_current()
    (True, False)
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


def changed(path: object, how: str = "") -> TableError:
    """Return the error for a file that changed."""
    return TableError(f"{path}: the file changed while it was read{how}; start again when no program writes to it")


def file_changed(path: object, before: int, after: int) -> TableError:
    """Return the error for a file with another number of rows in a later pass."""
    return changed(path, f": {before} rows were found at first, {after} later")
